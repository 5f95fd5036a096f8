"""What sparkd-engine has put on a host is told by name, and by what it wrote itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint.verify import record
from runtime.engine_install.versions import in_use
from runtime.manage.main import main
from sparkd.host.installed import manifest_of, version_of
from tests.runtime.checkpoint import made
from tests.runtime.engine_install.made import lock, wheel


def test_the_version_in_use_is_the_one_that_was_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, python = tmp_path / "engine", f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    assert version_of(str(root / "bin/python")) == "absent"
    path = lock(tmp_path / "l.toml", wheel(tmp_path, "tiny"))
    arguments = ["install", "--root", root, "--lock", path, "--wheels", tmp_path, "--python", python, "--quiet"]
    assert main(list(map(str, arguments))) == 0, capsys.readouterr().err

    assert version_of(str(root / "bin/python")) == in_use(root) != ""
    assert version_of(str(root / in_use(root) / "bin/python")) == in_use(root)
    assert version_of("/usr/bin/python3") == "absent"


def test_copies_are_told_apart_by_their_manifest(tmp_path: Path) -> None:
    copies = [made.checkpoint(tmp_path / name, seed=seed) for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    assert manifest_of(str(copies[0])) == "absent"
    for copy in copies:
        manifests.save(copy, record(copy, "maker/model", "r1"))
    first, same, other = (manifest_of(str(copy)) for copy in copies)
    assert first == same != other
    assert manifests.load(copies[0]).digest.startswith(first)


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_a_manifest_that_cannot_be_read_is_told_as_that(content: bytes, tmp_path: Path) -> None:
    (tmp_path / ".sparkd").mkdir()
    (tmp_path / ".sparkd/manifest.json").write_bytes(content)
    assert manifest_of(str(tmp_path)) == "unreadable (no manifest)"
    assert manifest_of("maker/model") == "absent"
