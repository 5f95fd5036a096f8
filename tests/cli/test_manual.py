"""What sparkctl says of itself, in --help, in the manual and in the completions of the shells, is one and the same."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from sparkd.cli import completion, words
from sparkd.cli.command import parser
from sparkd.cli.failure import Exit
from sparkd.cli.leaves import leaves, operands, options

PACKAGING = Path(__file__).parents[2] / "packaging"
EVERYWHERE = {"-h", "--help", "--json", "--color", "--socket", "--url", "--token-file"}
COMMANDS = [(path, each) for path, each in leaves(parser()) if path[0] != words.COMMAND]


def manual() -> str:
    """Without fonts and escapes."""
    text = (PACKAGING / "man/sparkctl.1").read_text("utf-8").replace("\\-", "-")
    text = re.sub(r"\\f[A-Z]|\\\(aq", "", text)
    return re.sub(r"^\.(B|I|BR|BI|RB|RI|IR)\b", "", text, flags=re.MULTILINE).replace('"', "")


def section(title: str) -> str:
    return manual().partition(f"\n.SH {title}\n")[2].partition("\n.SH ")[0]


@pytest.mark.parametrize("path", [path for path, _ in COMMANDS], ids=" ".join)
def test_every_command_and_option_is_in_the_manual(path: tuple[str, ...]) -> None:
    command = dict(COMMANDS)[path]
    synopsis = " ".join(section("SYNOPSIS").split())
    assert re.search(rf"sparkctl {' '.join(path)}\b", synopsis), "not in the synopsis"
    described = section("COMMANDS")
    assert re.search(rf"\b{path[-1]}\b", described)
    for action in options(command):
        for option in set(action.option_strings) - EVERYWHERE:
            assert re.search(rf"{option}\b", described), f"{option} is not described"


def test_the_options_of_all_commands_are_in_the_manual() -> None:
    for option in EVERYWHERE - {"-h", "--help"}:
        assert option in section("OPTIONS")
    for path, command in COMMANDS:
        given = {option for action in options(command) for option in action.option_strings}
        assert {"--json", "--color", "--help"} <= given, path


def test_every_exit_status_is_in_the_manual() -> None:
    told = section("EXIT STATUS")
    for code in Exit:
        assert re.search(rf"(^|\b) ?{code.value}\b", told, re.MULTILINE), code.name
        assert code.meaning


@pytest.mark.parametrize(("dialect", "file"), [("bash", "bash/sparkctl"), ("zsh", "zsh/_sparkctl")])
def test_the_completions_are_those_of_the_commands(dialect: str, file: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = (PACKAGING / "completion" / file).read_text("utf-8")
    assert completion.main([dialect]) == 0
    again = f"python3 -m sparkd.cli.completion {dialect} > packaging/completion/{file}"
    assert capsys.readouterr().out == made, f"the commands have changed; run {again}"
    for path, command in COMMANDS:
        assert path[-1] in made
        for action in options(command):
            assert all(option in made for option in action.option_strings)
        assert all(str(action.metavar or action.choices) for action in operands(command))
    assert completion.main(["fish"]) == 2


def completed(*words: str, epochs: str = "7 8") -> list[str]:
    """What bash offers for the last of these words."""
    given = " ".join(f"'{word}'" for word in words)
    script = f"""
        source {PACKAGING}/completion/bash/sparkctl
        sparkctl() {{ [ "$1 $2" = "_words epochs" ] && printf '%s\\n' {epochs}; }}
        COMP_WORDS=(sparkctl {given}); COMP_CWORD={len(words)}; _sparkctl; printf '%s\\n' "${{COMPREPLY[@]}}"
    """
    return subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        (["re"], ["restart", "resume", "report"]),
        (["fabric", ""], ["down", "up", "measure", "show"]),
        (["up", "--w"], ["--wait"]),
        (["up", "--json", "--ti"], ["--timeout"]),
        (["incidents", "show", ""], ["7", "8"]),
        (["incidents", "show", "8"], ["8"]),
        (["logs", "--epoch", ""], ["7", "8"]),
        (["logs", "--epoch", "=", "8"], ["8"]),
        (["status", "--color", "a"], ["auto", "always"]),
        (["logs", "--grep", "up", "--fo"], ["--follow"]),
        (["no-such-command", ""], []),
    ],
)
def test_what_bash_offers(line: list[str], offered: list[str]) -> None:
    assert completed(*line) == offered
