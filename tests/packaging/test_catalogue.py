"""The catalogue of messages: `journalctl -x` explains every finding and every kind of line, and says what to do."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from sparkd.core import checks
from sparkd.core.model import Phase
from sparkd.core.rails import ABOUT
from sparkd.reconcile.messages import KINDS, message_id
from tests.packaging.built import ROOT, run

CATALOGUE = ROOT / "units/catalog/sparkd.catalog"
# What a check calls its finding that takes the name from its caller.
NAMED_BY_THE_CALLER = {"between", "changed", "_refuse"}


def made_in_the_core() -> set[str]:
    """The ids with which findings are made anywhere in the core, read from its source."""
    found: set[str] = set()
    for path in sorted((ROOT / "sparkd/core").rglob("*.py")):
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in ast.walk(function):
                if not isinstance(node, ast.Call) or getattr(node.func, "id", "") not in ("Finding", "_refuse"):
                    continue
                if isinstance(node.args[0], ast.Constant):
                    found.add(str(node.args[0].value))
                else:
                    assert function.name in NAMED_BY_THE_CALLER, f"{path}: {function.name}: the id is not seen here"
    return found


def findings() -> set[str]:
    listed = {check.id for check in checks.CHECKS} | {comparison.id for comparison in checks.COMPARISONS} | set(ABOUT)
    return made_in_the_core() | listed | {"firmware-changed"}


def messages() -> set[str]:
    summaries = {f"summary-{phase}" for phase in get_args(Phase)}
    return {*KINDS, *summaries, *(f"finding-{finding}" for finding in findings())}


def entries(text: str) -> dict[str, tuple[str, str]]:
    """Id and body of each message by its name."""
    parts = re.split(r"^# ([a-z0-9-]+)\n-- ", text, flags=re.MULTILINE)[1:]
    return {name: (body[:32], body[32:]) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def test_every_message_and_no_other_is_explained() -> None:
    found = entries(CATALOGUE.read_text())
    missing = {f"# {name}\n-- {message_id(name)}" for name in messages() - found.keys()}
    assert missing == set()
    assert found.keys() - messages() == set()
    assert len(findings()) > 40
    assert {name: id_ for name, (id_, _) in found.items()} == {name: message_id(name) for name in messages()}


def test_every_finding_says_what_to_do() -> None:
    for name, (_, body) in entries(CATALOGUE.read_text()).items():
        subject = re.findall(r"^Subject: (.+)$", body, re.MULTILINE)
        assert len(subject) == 1 and len(subject[0]) < 70, name
        words = body.partition("\n\n")[2]
        assert len(words) > 40, name
        if name.startswith("finding-") and name != "finding-gone":
            assert "What to do: @SPARKD_FIX@" in words, name


def test_the_journal_takes_the_catalogue(tmp_path: Path) -> None:
    """systemd's own compiler reads all of it."""
    place = tmp_path / "usr/lib/systemd/catalog"
    place.mkdir(parents=True)
    (place / "sparkd.catalog").write_text(CATALOGUE.read_text())
    (tmp_path / "var/lib/systemd/catalog").mkdir(parents=True)
    done = run(["journalctl", "--update-catalog", f"--root={tmp_path}"], "systemd")
    assert done.stderr == ""
    listed = run(["journalctl", "--list-catalog", f"--root={tmp_path}"], "systemd").stdout
    assert {line.split()[0] for line in listed.splitlines()} == {message_id(name) for name in messages()}
    assert "A cable comes back to the same node" in listed
