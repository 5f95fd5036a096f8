"""Making one version: in a directory of its own, which gets its name when everything is there and verified."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

from runtime.durable import require_room, sync_directory
from runtime.engine_install import pip as pips
from runtime.engine_install.lock import Lock, refuse_other_machine
from runtime.engine_install.pip import Pip, last
from runtime.engine_install.tree import RECORD, differences, record
from runtime.engine_install.versions import OWN, PARTIAL, users_of
from runtime.engine_install.wheels import bring, unpacked_size
from runtime.trouble import Trouble

MANY_FILES = 500
COMPILED = 1.3
"""Bytes on disk for a byte that is unpacked, with the compiled modules."""


def install(
    lock: Lock, root: Path, python: Path, *, offline: Path | None = None, again: bool = False, quiet: bool = True
) -> Path:
    """Make ROOT/VERSION, unless it is there; with `again` also then. Returns it.

    Raises Trouble; whatever was there before is untouched then.
    """
    tree = root / lock.version
    if (tree / RECORD).is_file():
        if not again:
            return tree
        if users := users_of(tree):
            raise Trouble(f"{tree}: is run by {', '.join(users[:3])}", "`sparkctl down --wait` first")
    refuse_other_machine(lock, _version(python))
    cache = root / OWN / "wheels"
    pip = pips.find(python, root / OWN / "pip")
    bring(lock, cache, pip, offline=offline, quiet=quiet)
    require_room(root, round(unpacked_size(lock, cache) * COMPILED), f"unpacking {lock.version}")
    staging = root / f"{PARTIAL}{lock.version}"
    old = root / f"{PARTIAL}{lock.version}.old"
    for left in (staging, old):
        shutil.rmtree(left, ignore_errors=True)
    try:
        _make(lock, cache, staging, tree, Pip(pip.command), python)
        facts = {
            "profile": lock.profile, "sglang": lock.sglang, "lock": lock.digest, "python": _version(python),
            "installed": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }  # fmt: skip
        record(staging, facts, quiet=quiet)
        # Everything is on disk before the name says that it is there.
        _on_disk(staging)
        if tree.exists():
            tree.replace(old)
        staging.replace(tree)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_directory(root)
    shutil.rmtree(old, ignore_errors=True)
    if wrong := differences(tree, quiet=quiet):
        (tree / RECORD).unlink()
        raise Trouble(f"{tree}: {wrong[0]}, right after it was written", "look at the disk and the kernel's log")
    return tree


def _make(lock: Lock, cache: Path, staging: Path, tree: Path, pip: Pip, python: Path) -> None:
    _step([str(python), "-m", "venv", "--without-pip", str(staging)], f"{staging}: cannot be made with {python}")
    inside = staging / "bin/python"
    wanted = staging / "requirements.txt"
    wanted.write_text("".join(f"{wheel.requirement}\n" for wheel in lock.wheels), encoding="ascii")
    pip.run(
        ["--python", str(inside), "install", "--quiet", "--no-deps", "--no-index", "--find-links", str(cache),
         "--only-binary", ":all:", "--require-hashes", "--no-compile", "--no-cache-dir", "--requirement", str(wanted)],
        f"{lock.version}",
    )  # fmt: skip
    _move_scripts(staging, tree)
    # With the paths that it will have, in tracebacks too.
    compiling = ["-m", "compileall", "-q", "-j0", "-s", str(staging), "-p", str(tree), str(_site(staging))]
    # What cannot be compiled is code for other versions of Python, in tests and templates.
    subprocess.run([str(inside), *compiling], capture_output=True, check=False)
    for module in lock.imports:
        _step(
            [str(inside), "-I", "-B", "-W", "ignore", "-c", f"import {module}"],
            f"{lock.version}: cannot import {module}",
        )


def _move_scripts(staging: Path, tree: Path) -> None:
    """Scripts begin with the path of the interpreter as it is now."""
    old = str(staging).encode()
    for script in sorted((staging / "bin").iterdir()):
        if script.is_symlink() or not script.is_file():
            continue
        data = script.read_bytes()
        if script.name.lower().startswith("activate"):
            script.unlink()
        elif data.startswith(b"#!") and old in data.partition(b"\n")[0]:
            first, line, rest = data.partition(b"\n")
            script.write_bytes(first.replace(old, str(tree).encode()) + line + rest)


def _on_disk(tree: Path) -> None:
    """Everything below it. One by one is slow for many files; for few, `sync` would wait for what others write."""
    files = [path for path in tree.rglob("*") if path.is_file() and not path.is_symlink()]
    if len(files) > MANY_FILES:
        os.sync()
        return
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for directory in (tree, *(path for path in tree.rglob("*") if path.is_dir() and not path.is_symlink())):
        sync_directory(directory)


def _site(staging: Path) -> Path:
    return next(staging.glob("lib/python3*/site-packages"))


def _version(python: Path) -> str:
    return _step(
        [str(python), "-I", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], f"{python}: does not run"
    ).strip()  # fmt: skip


def _step(command: list[str], what: str) -> str:
    kept = {name: value for name, value in os.environ.items() if name not in pips.VARIABLES}
    try:
        done = subprocess.run(command, env=kept, capture_output=True, check=False, text=True, errors="replace")
    except OSError as error:
        raise Trouble(f"{what}: {error.strerror}") from error
    if done.returncode != 0:
        raise Trouble(f"{what}: {last(done.stderr or done.stdout)}")
    return done.stdout
