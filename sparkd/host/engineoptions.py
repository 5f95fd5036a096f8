"""What an installed SGLang says of its own options and variables, read from its source and never imported.

Importing SGLang costs seconds and needs a GPU's libraries. Its options are declared as annotated fields (in 0.5.23
`srt/arg_groups/fields/*.py`, before in `srt/server_args.py`) and as calls of `add_argument`; its variables as fields
of the class `Envs` in `srt/environ.py`. The syntax trees of those files are some ten megabytes, so the daemon runs this
file as a program of its own, with nothing but the standard library:

    python3 -I -S engineoptions.py DIRECTORY-OF-THE-PACKAGE < {"options": [...], "variables": [...]}
"""

from __future__ import annotations

import ast
import difflib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

_SCALARS = {"bool": "flag", "int": "integer", "float": "number"}
# What names a variable that `Envs` does not: only these parts of the package serve.
_SERVING = ("srt", "kernels")
_FEWEST = 50  # options; with less this is a layout that is not understood


class OptionsError(Exception):
    """The package's options cannot be read. One sentence."""


def ask(package: Path, options: Iterable[str], variables: Iterable[str]) -> dict[str, Any]:
    """What the package knows of these options (without dashes) and variables.

    `options` of the answer: by name null, or {kind, many, alone, choices, deprecated}, where kind is flag, integer,
    number or text, many says whether it takes several words, alone whether none will do, and choices is null where any
    value is taken or they are worked out only at run time. `variables`: by name null, or the kind (flag, integer,
    number, text, or "" for one that is only read somewhere). `like`: names that an unknown one may have been meant for.
    `known`: the number of options and of variables. Raises OptionsError, OSError.
    """
    known, names = read_options(package), read_variables(package)
    told = {name: names.get(name) for name in variables}
    told |= dict.fromkeys(_mentioned(package, [name for name, kind in told.items() if kind is None]), "")
    answer = {name: known.get(name) for name in options}
    like = _alike(answer, known) | _alike(told, names)
    return {"options": answer, "variables": told, "like": like, "known": [len(known), len(names)]}


def _alike(told: Mapping[str, object], among: Iterable[str]) -> dict[str, list[str]]:
    return {name: difflib.get_close_matches(name, among, 2, 0.75) for name, found in told.items() if found is None}


def read_options(package: Path) -> dict[str, dict[str, Any]]:
    """Every option by name without dashes, aliases too."""
    source = _Source(package)
    found: dict[str, dict[str, Any]] = {}
    files = sorted((package / "srt/arg_groups/fields").glob("*.py"))
    for file in [*files, package / "srt/server_args.py"]:
        module = source.module(file)
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        found |= _declared(line.target.id, line.annotation, module)
            elif isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
                found |= _added(node, module)
    if len(found) < _FEWEST:
        raise OptionsError(f"only {len(found)} options were found in {package}/srt: another layout than that of 0.5.23")
    return found


def read_variables(package: Path) -> dict[str, str]:
    """The kind of every variable in `Envs`, and "deprecated" for those that SGLang only warns of."""
    tree = ast.parse((package / "srt/environ.py").read_bytes())
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Envs":
            for line in node.body:
                if isinstance(line, ast.Assign) and isinstance(line.value, ast.Call):
                    kind = _kind_of_variable(_word(line.value.func))
                    found |= {target.id: kind for target in line.targets if isinstance(target, ast.Name)}
                    old = _keywords(line.value).get("deprecated_name")
                    if isinstance(old, ast.Constant):
                        found[str(old.value)] = "deprecated"
        elif (
            isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict) and "DEPRECATED" in _word(node.target)
        ):
            found |= {str(key.value): "deprecated" for key in node.value.keys if isinstance(key, ast.Constant)}
    if not found:
        raise OptionsError(f"no variable was found in {package}/srt/environ.py: another layout than that of 0.5.23")
    return found


def _kind_of_variable(name: str) -> str:
    for part, kind in (("Bool", "flag"), ("Int", "integer"), ("Float", "number")):
        if part in name:
            return kind
    return "text"


def _mentioned(package: Path, names: list[str]) -> Iterator[str]:
    """Those of the names that the serving parts of the package read somewhere: not every variable is in `Envs`."""
    if not names:
        return
    left = re.compile(rb"[\"'](" + b"|".join(re.escape(name.encode()) for name in names) + rb")[\"']")
    seen: set[str] = set()
    for part in _SERVING:
        for file in sorted((package / part).rglob("*.py")):
            seen |= {match.decode() for match in left.findall(file.read_bytes())}
            if len(seen) == len(names):
                break
    yield from seen


class _Module:
    def __init__(self, file: Path, source: _Source) -> None:
        self.tree = ast.parse(file.read_bytes())
        self._source = source

    @cached_property
    def _imports(self) -> dict[str, tuple[str, str]]:
        """By the name here: module and name there, also of imports within functions."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def choices(self, expression: ast.expr | None, local: Mapping[str, ast.expr] | None = None) -> list[Any] | None:
        """The values of a list that can be told without running it; None for any other."""
        local = local or {}
        match expression:
            case ast.List(items) | ast.Tuple(items) | ast.Set(items):
                values = [item.value for item in items if isinstance(item, ast.Constant)]
                return values if len(values) == len(items) else None
            case ast.BinOp(left, ast.Add(), right):
                parts = self.choices(left, local), self.choices(right, local)
                return None if parts[0] is None or parts[1] is None else [*parts[0], *parts[1]]
            case ast.Call(ast.Name("list" | "set" | "frozenset" | "tuple" | "sorted"), [inner], []):
                return self.choices(inner, local)
            case ast.Call(ast.Name(function), [], []):
                return self._returned(function)
            case ast.Attribute(ast.Name(owner), name):
                return self._of_class(owner, name)
            case ast.Name(name) if name in local:
                return self.choices(local[name], {key: value for key, value in local.items() if key != name})
            case ast.Name(name):
                return self._named(name)
            case _:
                return None

    def _named(self, name: str) -> list[Any] | None:
        values = dict(_assigned(self.tree.body))
        if name in values:
            return self.choices(values[name])
        there = self._there(name)
        return there[0]._named(there[1]) if there else None

    def _of_class(self, owner: str, name: str) -> list[Any] | None:
        for node in self.tree.body:
            if isinstance(node, ast.ClassDef) and node.name == owner:
                values = dict(_assigned(node.body))
                found = values.get(name)
                if isinstance(found, ast.List | ast.Tuple) and all(isinstance(item, ast.Name) for item in found.elts):
                    items = [values.get(_word(item)) for item in found.elts]
                    return self.choices(ast.Tuple([item for item in items if item is not None]))
                return self.choices(found)
        there = self._there(owner)
        return there[0]._of_class(there[1], name) if there else None

    def _returned(self, function: str) -> list[Any] | None:
        """What a function of this module returns in the end."""
        for node in self.tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == function:
                returns = [line for line in node.body if isinstance(line, ast.Return)]
                return self.choices(returns[-1].value, dict(_assigned(node.body))) if returns else None
        return None

    def _there(self, name: str) -> tuple[_Module, str] | None:
        module, real = self._imports.get(name, ("", ""))
        found = self._source.imported(module)
        return (found, real) if found is not None else None


class _Source:
    def __init__(self, package: Path) -> None:
        self._package = package
        self._modules: dict[Path, _Module] = {}

    def module(self, file: Path) -> _Module:
        if file not in self._modules:
            self._modules[file] = _Module(file, self)
        return self._modules[file]

    def imported(self, name: str) -> _Module | None:
        parts = name.split(".")[1:]
        file = self._package.joinpath(*parts).with_suffix(".py") if parts else None
        return self.module(file) if file is not None and file.is_file() else None


def _declared(field: str, annotation: ast.expr, module: _Module) -> dict[str, dict[str, Any]]:
    """Of `field: A[TYPE, "help"]` or `field: A[TYPE, Arg(...)]`."""
    if not isinstance(annotation, ast.Subscript) or _word(annotation.value) not in ("A", "Annotated"):
        return {}
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    argument = next((part for part in parts[1:] if isinstance(part, ast.Call) and _word(part.func) == "Arg"), None)
    told = _keywords(argument) if argument is not None else {}
    # Implicitly joined texts are one constant, others a sum.
    if not parts[1:] or (argument is None and not isinstance(parts[1], ast.Constant | ast.BinOp | ast.JoinedStr)):
        return {}
    if _value(told.get("no_cli")):
        return {}
    names = [_value(told.get("cli_name")) or f"--{field.replace('_', '-')}", *(_strings(told.get("aliases")))]
    kind, many, literal = _type(parts[0])
    extra = _constants(told.get("action_kwargs"))
    nargs = _value(told.get("nargs", extra.get("nargs")))
    if "type_parser" in told:
        kind, many = "text", False
    many = many if nargs is None else nargs != "?"
    if "action" in told:
        kind = "flag" if "Boolean" in _word(told["action"]) else "text"
    choices = module.choices(told.get("choices")) if "choices" in told else literal
    option = {"kind": kind, "many": many, "alone": nargs in ("?", "*"), "choices": choices, "deprecated": False}
    found = {name.removeprefix("--"): option for name in names}
    if "Boolean" in _word(told.get("action")):
        found |= {f"no-{name}": option for name in found}
    return found


def _added(function: ast.FunctionDef, module: _Module) -> dict[str, dict[str, Any]]:
    """Of calls `parser.add_argument("--name", ...)`."""
    found: dict[str, dict[str, Any]] = {}
    local = dict(_assigned(function.body))
    for node in ast.walk(function):
        if not isinstance(node, ast.Call) or _word(node.func) != "add_argument":
            continue
        told = _keywords(node)
        action = _value(told.get("action")) or _word(told.get("action"))
        bare = action in ("store_true", "store_false") or ("Deprecated" in action and "nargs" not in told)
        kind = "flag" if bare or "Boolean" in action else _SCALARS.get(_word(told.get("type")), "text")
        nargs = _value(told.get("nargs"))
        choices = module.choices(told["choices"], local) if "choices" in told else None
        old = "Deprecated" in action or "deprecated" in str(_value(told.get("help"))).lower()[:12]
        many, alone = nargs not in (None, "?"), nargs in ("?", "*")
        option = {"kind": kind, "many": many, "alone": alone, "choices": choices, "deprecated": old}
        for name in node.args:
            if isinstance(name, ast.Constant) and str(name.value).startswith("--"):
                found[str(name.value).removeprefix("--")] = option
    return found


def _type(node: ast.expr) -> tuple[str, bool, list[Any] | None]:
    """Kind, whether of several words, and the values of a Literal."""
    if isinstance(node, ast.BinOp):  # X | None
        sides = [side for side in (node.left, node.right) if not (isinstance(side, ast.Constant) and not side.value)]
        return _type(sides[0]) if len(sides) == 1 else ("text", False, None)
    if isinstance(node, ast.Subscript):
        inside = node.slice
        match _word(node.value):
            case "Optional":
                return _type(inside)
            case "List" | "list":
                return _type(inside)[0], True, None
            case "Literal":
                values = inside.elts if isinstance(inside, ast.Tuple) else [inside]
                literal = [value.value for value in values if isinstance(value, ast.Constant)]
                numbers = all(isinstance(value, int) for value in literal)
                return ("integer" if numbers else "text"), False, [value for value in literal if value is not None]
        return "text", False, None
    return _SCALARS.get(_word(node), "text"), False, None


def _assigned(body: Iterable[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for line in body:
        if isinstance(line, ast.Assign) and len(line.targets) == 1:
            yield _word(line.targets[0]), line.value
        elif isinstance(line, ast.AnnAssign) and line.value is not None:
            yield _word(line.target), line.value


def _keywords(call: ast.Call) -> dict[str, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}


def _constants(node: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(node, ast.Dict):
        return {}
    return {str(_value(key)): value for key, value in zip(node.keys, node.values, strict=True)}


def _strings(node: ast.expr | None) -> list[str]:
    return [str(item.value) for item in getattr(node, "elts", []) if isinstance(item, ast.Constant)]


def _value(node: ast.expr | None) -> Any:
    """Of a constant; None for anything else."""
    return node.value if isinstance(node, ast.Constant) else None


def _word(node: ast.expr | None) -> str:
    """The last name in `a.b.c`, "" for what is no name."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def main() -> int:
    request = json.load(sys.stdin)
    try:
        answer = ask(Path(sys.argv[1]), request["options"], request["variables"])
    except (OptionsError, OSError, SyntaxError) as error:
        answer = {"error": str(error)}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
