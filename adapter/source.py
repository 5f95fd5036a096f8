"""The installed SGLang as text: where it is, and whether what is hooked is still what it was. Imports none of it."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from adapter.declare import Adapter, AdapterError, Symbol

DIGITS = 16
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Drift:
    """found: the digest that the installed source has, or what is in its place."""

    symbol: Symbol
    found: str

    def sentence(self, version: str) -> str:
        return (
            f"SGLang {version or 'of unknown version'} has another {self.symbol.name} than the release that this was "
            f"written for: digest {self.found}, expected {self.symbol.digest}; install the pinned SGLang, or turn the "
            "adapter off in /etc/sparkd/engine.toml"
        )


def installed() -> Path:
    """The directory of the package in this interpreter. Raises AdapterError."""
    spec = importlib.util.find_spec("sglang")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        return Path(place)
    raise AdapterError("no SGLang is installed beside this Python; run this with the engine's interpreter")


def version(package: Path) -> str:
    """By the description beside the package; "" where there is none."""
    found = sorted(package.parent.glob("sglang-[0-9]*.dist-info"))
    return found[0].name.removeprefix("sglang-").removesuffix(".dist-info") if found else ""


@lru_cache(maxsize=32)
def _parsed(file: Path, stamp: tuple[int, int]) -> tuple[list[str], ast.Module]:
    text = file.read_text(encoding="utf-8")
    return text.split("\n"), ast.parse(text)


def forget() -> None:
    """Syntax trees are many times the size of the source, and nobody needs them after the start."""
    _parsed.cache_clear()


def digest_of(package: Path, name: str) -> str:
    """First digits of the SHA-256 of a symbol's source lines, decorators and comments included.

    name: "sglang.module:Class.method", or "sglang.module:NAME" for a plain assignment. Raises AdapterError.
    """
    module, _, path = name.partition(":")
    base = package.parent.joinpath(*module.split("."))
    file = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    try:
        status = file.stat()
        lines, tree = _parsed(file, (status.st_mtime_ns, status.st_size))
    except (OSError, SyntaxError, ValueError) as error:
        raise AdapterError(f"no source of {module}: {error}") from error
    node: ast.stmt | ast.Module = tree
    for part in path.split("."):
        # The last one counts, as when Python runs it.
        found = [each for each in _statements(node) if _defines(each, part)]
        if not found:
            raise AdapterError(f"no {part} in {module}")
        node = found[-1]
    assert isinstance(node, ast.stmt)
    first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))])
    text = "\n".join(lines[first - 1 : node.end_lineno])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


def _statements(node: ast.stmt | ast.Module) -> Iterator[ast.stmt]:
    """Of its body, also below if and try, in which modules choose between variants."""
    for each in getattr(node, "body", ()):
        yield each
        if isinstance(each, ast.If | ast.Try):
            yield from _statements(each)


def _defines(node: ast.stmt, name: str) -> bool:
    if isinstance(node, _Definition):
        return node.name == name
    if isinstance(node, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    return isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name


def drifts(package: Path, symbols: Iterable[Symbol]) -> list[Drift]:
    """Those that are not what they were."""
    found: list[Drift] = []
    for symbol in symbols:
        try:
            seen = digest_of(package, symbol.name)
        except AdapterError as error:
            seen = str(error)
        if seen != symbol.digest:
            found.append(Drift(symbol, seen))
    return found


def digest_of_adapter(adapter: Adapter, options: object) -> str:
    """Of its code, its options and what it hooks: the same on every rank of a ring."""
    here = Path(__file__).parent
    own = here / adapter.name
    files = [own.with_suffix(".py")]
    if own.is_dir():
        files = sorted(file for file in own.rglob("*") if file.suffix in (".py", ".cpp", ".hpp"))
    files += [file for shared in adapter.shares for file in sorted((here / shared).rglob("*.py"))]
    found = hashlib.sha256(repr((adapter.name, options, adapter.symbols)).encode())
    for file in files:
        found.update(str(file.relative_to(here)).encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:DIGITS]
