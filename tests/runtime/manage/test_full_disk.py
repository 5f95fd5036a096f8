"""A disk that is full while something is written: a tmpfs of a few hundred KB, in a mount namespace of its own."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.checkpoint import made
from tests.runtime.checkpoint.hub import COMMIT, REPOSITORY, running
from tests.runtime.engine_install.made import lock, wheel

ROOT = Path(__file__).parents[3]
# As if nobody looked at the room first: others may fill the disk between the look and the writing.
CODE = """
import sys
import runtime.durable
runtime.durable.require_room.__defaults__ = (-(1 << 60),)
from runtime.manage.main import main
sys.exit(main(sys.argv[1:]))
"""


def on_a_small_disk(place: Path, size: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A command of sparkd-engine with a tmpfs at `place`, of which an old installation's files are not part."""
    mount = f'mount -t tmpfs -o size={size} tmpfs "$0" && exec "$@"'
    command = ["unshare", "--mount", "sh", "-c", mount, place, sys.executable, "-c", CODE, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        list(map(str, command)), cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.lab
def test_a_disk_that_is_full_while_fetching_is_named(tmp_path: Path) -> None:
    origin = made.checkpoint(tmp_path / "origin", filler=400_000)
    (tmp_path / "copy").mkdir()
    with running(origin) as hub:
        where = ("--from", hub.url, "--repository", REPOSITORY, "--revision", COMMIT)
        done = on_a_small_disk(tmp_path / "copy", "300k", "model", "fetch", tmp_path / "copy", *where, "--quiet")

    assert done.returncode == 1
    assert "No space left on device" in done.stderr
    assert f"{tmp_path / 'copy'}" in done.stderr
    assert "make room" in done.stderr


@pytest.mark.lab
def test_a_disk_that_is_full_while_installing_is_named(tmp_path: Path) -> None:
    large = {"large.bin": random.Random(1).randbytes(400_000)}
    path = lock(tmp_path / "l.toml", wheel(tmp_path, "tiny", files=large))
    python = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"
    (tmp_path / "engine").mkdir()
    arguments = ("install", "--root", tmp_path / "engine", "--lock", path, "--wheels", tmp_path, "--python", python)
    copying = on_a_small_disk(tmp_path / "engine", "200k", *arguments, "--quiet")
    unpacking = on_a_small_disk(tmp_path / "engine", "600k", *arguments, "--quiet")

    assert (copying.returncode, unpacking.returncode) == (1, 1)
    assert "No space left on device" in copying.stderr
    assert "the disk is full: " in unpacking.stderr
