"""config: what is in force and from where, and changes that are tried before any file is touched."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkd.cli.etc import REJECTED, Etc
from tests.cli.conftest import Ctl, Ended
from tests.config.etc import CLUSTER, NODE
from tests.config.etc import Etc as Files

Config = Callable[..., Ended]


@pytest.fixture
def here(etc: Files, ctl: Ctl) -> Config:
    """`sparkctl config` for the configuration of the test."""

    def run(*arguments: str) -> Ended:
        return ctl("config", *arguments, "--config", str(etc.main), daemon=False)

    return run


@pytest.fixture
def editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes an editor of a script that gets the file as $1."""

    def make(script: str) -> None:
        file = tmp_path / "an editor"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        monkeypatch.delenv("VISUAL", raising=False)
        monkeypatch.setenv("EDITOR", f"'{file}'")

    return make


def values(out: str) -> dict[str, str]:
    return {line.split()[0]: line.split("=", 1)[1].strip() for line in out.splitlines()}


def test_show(here: Config, etc: Files) -> None:
    code, out, err = here("show")
    assert (code, err) == (0, "")
    assert values(out)["recovery.restarts"] == "3"
    assert values(out)["node.name"] == '"spark1"'
    secrets = [(etc.folder / name).read_text().strip() for name in ("cluster.key", "tls/node.key")]
    assert not [secret for secret in secrets if secret in out]


def test_origin_names_file_and_line(here: Config, etc: Files) -> None:
    etc.write("sparkd.toml", NODE + '[cluster]\nmanagement_interface = "eth0"\n' + CLUSTER.replace("\n[cluster]\n", ""))
    etc.write("sparkd.toml.d/10-a.toml", "\n[recovery]\n\nrestarts = 4\n")
    told = values(here("show", "--origin").out)
    value, origin = told["recovery.restarts"].split("#")
    assert (value.strip(), origin.strip()) == ("4", f"{etc.folder}/sparkd.toml.d/10-a.toml:4")
    assert told["recovery.backoff_seconds"].endswith("# default")
    assert told["cluster.node[1].management_interface"].endswith(f"# {etc.main}:4")
    listed = json.loads(here("show", "--json").out)["keys"]
    row = next(row for row in listed if row["key"] == "cluster.node[0].name")
    assert (row["value"], row["file"], row["line"]) == ('"spark1"', str(etc.main), 8)


def test_check(here: Config, etc: Files) -> None:
    assert here("check").out == f"{etc.main}: good: spark1 is rank 0 of a ring of 3\n"
    etc.write("sparkd.toml.d/10-a.toml", "[recovery]\nrestarts = -1\nrestart = 3\n")
    code, out, err = here("check")
    assert (code, out) == (7, "")
    assert f"{etc.folder}/sparkd.toml.d/10-a.toml: recovery.restarts: found -1, expected an integer" in err
    assert "recovery.restart: " in err
    assert json.loads(here("check", "--json").out)["error"]["kind"] == "config"


def test_set_writes_a_drop_in_and_keeps_what_is_in_it(here: Config, etc: Files) -> None:
    before = etc.main.read_text()
    code, out, _ = here("set", "recovery.restarts", "5")
    assert code == 0
    drop_in = etc.folder / "sparkd.toml.d/50-sparkctl.toml"
    assert out.splitlines() == [
        f"recovery.restarts = 5 ({drop_in})",
        "  recovery.restarts from 3 to 5",
        "next: systemctl reload sparkd",
    ]
    drop_in.write_text(drop_in.read_text() + "# mine\n")
    assert here("set", "engine.api", "127.0.0.1:9000").out.splitlines()[-1].startswith("next: the same on every node")
    assert here("set", "recovery.restarts", "6").code == 0
    assert drop_in.read_text().splitlines()[1:] == [
        "",
        "[recovery]",
        "restarts = 6",
        "# mine",
        "",
        "[engine]",
        'api = "127.0.0.1:9000"',
    ]
    assert etc.load().policy.restarts == 6
    assert etc.main.read_text() == before
    assert here("unset", "recovery.restarts").out.splitlines()[0] == "recovery.restarts = 3 (default)"
    assert "# mine" in drop_in.read_text()
    assert etc.load().policy.restarts == 3


@pytest.mark.parametrize(
    ("key", "value", "code", "sentence"),
    [
        ("recovery.restarts", "-1", 7, "recovery.restarts: found -1, expected an integer from 0 to 100"),
        ("recovery.restarts", "many", 7, 'found "many", expected an integer'),
        ("recovery.restarts", "true", 2, "recovery.restarts: true is neither a number nor text"),
        ("recovery.restart", "5", 2, "recovery.restart is no key of sparkd.toml; perhaps recovery.restarts"),
        ("listen.peer_port", "7474", 7, "listen.operator: found port 7474"),
        ("node.name", "spark2", 2, "node.name is the same question on every node"),
        ("cluster.name", "x", 2, "cluster.name is the same question on every node"),
    ],
)
def test_a_value_that_would_be_faulty_is_not_written(
    key: str, value: str, code: int, sentence: str, here: Config, etc: Files
) -> None:
    ended = here("set", key, value)
    assert ended.code == code
    assert sentence in ended.err
    assert "/tmp/sparkctl-" not in ended.err
    assert not (etc.folder / "sparkd.toml.d/50-sparkctl.toml").exists()


def test_a_drop_in_that_counts_more_is_named(here: Config, etc: Files) -> None:
    etc.write("sparkd.toml.d/60-b.toml", "[recovery]\nrestarts = 9\n")
    code, _, err = here("set", "recovery.restarts", "5")
    assert code == 7
    assert "60-b.toml has recovery.restarts as well and counts more than" in err
    assert "hint: change it there: sparkctl config edit 60-b.toml" in err
    assert etc.load().policy.restarts == 9


def test_text_needs_no_quotes(here: Config, etc: Files) -> None:
    assert here("set", "engine.python", "/opt/x/bin/python").code == 0
    assert here("set", "engine.profile", "2026").code == 0
    assert (etc.load().engine.python, etc.load().engine.profile) == ("/opt/x/bin/python", "2026")


def test_edit_replaces_the_file_and_keeps_its_mode(here: Config, etc: Files, editor: Callable[[str], None]) -> None:
    etc.main.chmod(0o604)
    editor('printf "[recovery]\\nrestarts = 8\\n" >> "$1"')
    code, out, _ = here("edit")
    assert code == 0
    assert out.splitlines() == [
        f"{etc.main}: changed",
        "  recovery.restarts from 3 to 8",
        "next: systemctl reload sparkd",
    ]
    assert etc.load().policy.restarts == 8
    assert etc.main.stat().st_mode & 0o7777 == 0o604


def test_what_is_faulty_replaces_nothing_and_is_not_lost(
    here: Config, etc: Files, editor: Callable[[str], None]
) -> None:
    before = etc.main.read_text()
    editor('printf "[recovery]\\nrestarts = 800\\n" >> "$1"')
    code, out, err = here("edit")
    assert (code, out) == (7, "")
    assert f"{etc.main}: recovery.restarts: found 800" in err
    assert etc.main.read_text() == before
    kept = etc.main.with_name(etc.main.name + REJECTED)
    assert f"what you wrote is in {kept}" in err
    assert kept.read_text() == before + "[recovery]\nrestarts = 800\n"
    assert etc.load().policy.restarts == 3


def test_what_is_not_utf_8_is_not_lost_either(here: Config, etc: Files, editor: Callable[[str], None]) -> None:
    before = etc.main.read_text()
    editor(r"""printf '# K\366ln\n' >> "$1" """)
    code, out, err = here("edit")
    assert (code, out) == (7, "")
    assert "UTF-8" in err
    assert etc.main.read_text() == before
    assert etc.main.with_name(etc.main.name + REJECTED).read_bytes() == before.encode() + b"# K\xf6ln\n"


def test_edit_of_a_drop_in_that_is_new(here: Config, etc: Files, editor: Callable[[str], None]) -> None:
    editor('printf "[peers]\\nfresh_seconds = 30\\n" > "$1"')
    assert here("edit", "20-mine.toml").code == 0
    assert etc.load().policy.peer_fresh == 30
    for name in ("../x.toml", ".x.toml", "x.conf"):
        assert here("edit", name).code == 2


@pytest.mark.parametrize(
    ("script", "code", "sentence"),
    [
        ("exit 0", 0, "nothing has changed"),
        ("exit 3", 1, "has left with status 3; nothing has changed"),
    ],
)
def test_an_editor_that_changes_nothing(
    script: str, code: int, sentence: str, here: Config, editor: Callable[[str], None]
) -> None:
    editor(script)
    ended = here("edit")
    assert ended.code == code
    assert sentence in ended.out + ended.err


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(
    here: Config, etc: Files, editor: Callable[[str], None]
) -> None:
    editor(f'echo "# theirs" >> {etc.main}; echo "# mine" >> "$1"')
    code, _, err = here("edit")
    assert code == 7
    assert "was changed by somebody else meanwhile" in err
    assert etc.main.read_text().endswith("# theirs\n")
    assert etc.main.with_name(etc.main.name + REJECTED).read_text().endswith("# mine\n")


def test_an_editor_that_is_not_there(here: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VISUAL", "no-such-editor")
    code, _, err = here("edit")
    assert (code, err.splitlines()[0]) == (1, "sparkctl: cannot run no-such-editor: No such file or directory")


def test_no_secret_is_copied_anywhere(etc: Files) -> None:
    with Etc(etc.main)._copy({etc.main: "x"}) as copy:
        files = [path for path in copy.parent.rglob("*") if path.is_file() and not path.is_symlink()]
        assert files == [copy]
        assert os.path.realpath(copy.parent / "cluster.key") == str(etc.folder / "cluster.key")
