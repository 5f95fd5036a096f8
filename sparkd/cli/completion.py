"""The completions of bash and zsh, made from the command line itself: `python3 -m sparkd.cli.completion bash|zsh`.

What is in packaging/completion is what this prints; a test compares the two. Words that only this machine knows come
from `sparkctl _words`, see sparkd.cli.words.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence

from sparkd.cli import words
from sparkd.cli.leaves import Path, commands, operands, options

# By the name that a value has in --help.
_WORDS = {"EPOCH": "epochs", "RANK": "ranks", "NAME": "profiles", "KEY": "keys", "DROP-IN": "dropins"}
_FILES = ("FILE", "PATH", "DIR", "ROOT", "CLUSTER.toml", "DIR/NODE", "FILE.tar.gz", "FILE.svg", "OLD.json")
_MANY = 5
_WIDTH = 110
_HEAD = "# Made by `python3 -m sparkd.cli.completion {dialect}`; tests compare it with the commands.\n"

_BASH = """\
_sparkctl_words()
{{
    # The shell waits for this one; it takes its answer from this machine and gives up soon.
    local IFS=$'\\n'
    COMPREPLY=($(compgen -W "$(sparkctl _words "$1" 2>/dev/null)" -- "$cur"))
}}

_sparkctl_files()
{{
    local IFS=$'\\n'
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$cur"))
}}

_sparkctl()
{{
    local cur=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path="" word skip="" number=0
    COMPREPLY=()
    # --option=VALUE comes as three words.
    [ "$cur" = "=" ] && cur=""
    [ "$before" = "=" ] && before=${{COMP_WORDS[COMP_CWORD-2]}}
    for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        if [ -n "$skip" ]; then
            [ "$word" = "=" ] || skip=""
            continue
        fi
        case "$path:$word" in
{paths}
            *:-*) case "$path:$word" in {valued}) skip=1 ;; esac ;;
            *) number=$((number + 1)) ;;
        esac
    done
    case "$path:$before" in
{values}
    esac
    if [[ "$cur" == -* ]]; then
        case "$path" in
{options}
        esac
        return
    fi
    case "$path:$number" in
{operands}
    esac
}}

complete -F _sparkctl sparkctl
"""


def bash(top: argparse.ArgumentParser) -> str:
    every = list(_every(top))
    paths = [
        f'            "{" ".join(path[:-1])}:{path[-1]}") path="{" ".join(path)}"; number=0 ;;' for path, _ in every[1:]
    ]
    values, valued, given, places = [], [], [], []
    for path, parser in every:
        name = " ".join(path)
        for action in options(parser):
            if _takes_value(action):
                spelled = "|".join(f'"{name}:{option}"' for option in action.option_strings)
                valued.append(spelled)
                values.append(f"        {spelled}) {_bash(action)}; return ;;")
        listed = " ".join(_spelled(parser))
        given.append(f'            "{name}") COMPREPLY=($(compgen -W "{listed}" -- "$cur")) ;;')
        below = _visible(parser)
        if below:
            places.append(f'        "{name}:0") COMPREPLY=($(compgen -W "{" ".join(below)}" -- "$cur")) ;;')
        places += [f'        "{name}:{index}") {_bash(each)} ;;' for index, each in enumerate(operands(parser))]
    return _HEAD.format(dialect="bash") + _BASH.format(
        paths="\n".join(paths), valued="|".join(valued), values="\n".join(values), options="\n".join(given),
        operands="\n".join(places),
    )  # fmt: skip


def _bash(action: argparse.Action) -> str:
    if action.choices:
        return f'COMPREPLY=($(compgen -W "{" ".join(map(str, action.choices))}" -- "$cur"))'
    name = _name(action)
    if name in _WORDS:
        return f"_sparkctl_words {_WORDS[name]}"
    return "_sparkctl_files" if name in _FILES else ":"


def zsh(top: argparse.ArgumentParser) -> str:
    return "".join(
        [
            "#compdef sparkctl\n",
            _HEAD.format(dialect="zsh"),
            "_sparkctl_words() {\n",
            "    local -a found\n",
            '    found=(${(f)"$(sparkctl _words $1 2>/dev/null)"})\n',
            "    compadd -a found\n",
            "}\n",
            *(f"\n{function}" for function in _functions(top)),
            '\n_sparkctl "$@"\n',
        ]
    )


def _shared(top: argparse.ArgumentParser) -> dict[str, tuple[str, ...]]:
    """Options that many commands have together, by the name of the array that they are written in once."""
    users: dict[str, list[Path]] = {}
    for path, parser in _every(top):
        for action in () if _visible(parser) else options(parser):
            users.setdefault(_option(action), []).append(path)
    groups: dict[tuple[Path, ...], list[str]] = {}
    for spec, paths in users.items():
        groups.setdefault(tuple(paths), []).append(spec)
    many = [specs for paths, specs in groups.items() if len(paths) >= _MANY and len(specs) > 1]
    return {f"_sparkctl_options_{number}": tuple(specs) for number, specs in enumerate(many, 1)}


def _functions(top: argparse.ArgumentParser) -> Iterator[str]:
    shared = _shared(top)
    for name, group in shared.items():
        yield "\n".join([f"{name}=(", *(f"    {spec}" for spec in group), ")", ""])
    for path, parser in _every(top):
        lines = [f"{_function(path)}() {{"]
        below = _visible(parser)
        specs = [_option(action) for action in options(parser)]
        if below:
            lines += ["    local context state line", "    _arguments -C \\"]
            lines += [f"        {spec} \\" for spec in specs]
            lines += [
                "        '1:command:->command' \\",
                "        '*::rest:->rest'",
                "    case $state in",
                "        command)",
            ]
            lines.append("            local -a found")
            lines.append("            found=(")
            lines += [f"                {_quoted(f'{name}:{text}')}" for name, text in below.items()]
            lines += [
                "            )",
                "            _describe command found ;;",
                "        rest)",
                "            case $line[1] in",
            ]
            lines += [f"                {name}) {_function((*path, name))} ;;" for name in below]
            lines += ["            esac ;;", "    esac"]
        else:
            for name, group in shared.items():
                if set(group) <= set(specs):
                    specs = [*[spec for spec in specs if spec not in group], f"${name}"]
            told = [*specs, *(_operand(index, each) for index, each in enumerate(operands(parser), 1))]
            lines += _packed("    _arguments", told)
        yield "\n".join([*lines, "}", ""])


def _packed(start: str, words: Sequence[str]) -> Iterator[str]:
    """The words behind the start on as few lines as that takes."""
    line = start
    for word in words:
        if len(line) + len(word) > _WIDTH:
            yield f"{line} \\"
            line = "       "
        line += f" {word}"
    yield line


def _option(action: argparse.Action) -> str:
    text = _plain(action.help)
    spelled = action.option_strings
    value = f":{_name(action)}:{_zsh(action)}" if _takes_value(action) else ""
    head = f"'({' '.join(spelled)})'{{{','.join(spelled)}}}" if len(spelled) > 1 else ""
    return head + _quoted(f"[{text}]{value}" if head else f"{spelled[0]}[{text}]{value}")


def _operand(index: int, action: argparse.Action) -> str:
    optional = ":" if action.nargs == "?" else ""
    return _quoted(f"{index}:{optional}{_name(action)}:{_zsh(action)}")


def _zsh(action: argparse.Action) -> str:
    if action.choices:
        return f"({' '.join(map(str, action.choices))})"
    name = _name(action)
    if name in _WORDS:
        return f"_sparkctl_words {_WORDS[name]}"
    return "_files" if name in _FILES else " "


def _function(path: Path) -> str:
    return "_".join(("_sparkctl", *path)).replace("-", "_")


def _every(top: argparse.ArgumentParser, path: Path = ()) -> Iterator[tuple[Path, argparse.ArgumentParser]]:
    """Every level, also those that are no command alone."""
    yield path, top
    for name, each in commands(top).items():
        if name != words.COMMAND:
            yield from _every(each, (*path, name))


def _visible(parser: argparse.ArgumentParser) -> dict[str, str]:
    """The commands below, with what --help says of them."""
    told = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: _plain(choice.help) for choice in action._choices_actions}
    return {name: told.get(name, "") for name in commands(parser) if name != words.COMMAND}


def _spelled(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in options(parser):
        yield from action.option_strings


def _takes_value(action: argparse.Action) -> bool:
    return action.nargs != 0


def _name(action: argparse.Action) -> str:
    return str(action.metavar or action.dest.upper())


def _plain(text: str | None) -> str:
    """Without what means something within a specification of zsh."""
    kept = "".join(char for char in (text or "") if char not in "[]'\\`$\"%")
    return kept.replace(":", "\\:").strip()


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "") + "'"


def main(arguments: Sequence[str]) -> int:
    from sparkd.cli.command import parser

    makers = {"bash": bash, "zsh": zsh}
    if len(arguments) != 1 or arguments[0] not in makers:
        print("usage: python3 -m sparkd.cli.completion bash|zsh", file=sys.stderr)
        return 2
    print(makers[arguments[0]](parser()), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
