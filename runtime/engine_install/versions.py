"""The versions that are installed, the one in use, and who runs which."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from runtime.durable import sync_directory
from runtime.engine_install.tree import RECORD, facts_of
from runtime.trouble import Trouble

ROOT = Path("/opt/sparkd/engine")
OWN = ".sparkd"
"""The cache of wheels, and the lock against two at once."""
PARTIAL = ".partial-"
CURRENT = "current"
THROUGH = ("bin", "lib", "pyvenv.cfg")
"""What makes ROOT look like an environment: links through `current`."""


@dataclass(frozen=True)
class Version:
    name: str
    profile: str
    sglang: str
    installed: str
    in_use: bool
    users: tuple[str, ...]
    """Processes that run it."""


def installed(root: Path) -> list[Version]:
    """All finished versions, by name. Raises Trouble."""
    current = in_use(root)
    found = []
    for tree in sorted(root.glob("*")):
        if tree.is_symlink() or not (tree / RECORD).is_file():
            continue
        facts = facts_of(tree)
        found.append(
            Version(
                tree.name, str(facts.get("profile")), str(facts.get("sglang")), str(facts.get("installed")),
                tree.name == current, tuple(users_of(tree)),
            )
        )  # fmt: skip
    return found


def in_use(root: Path) -> str:
    """The name of the version that ROOT/bin/python is of, or nothing."""
    try:
        return os.readlink(root / CURRENT)
    except OSError:
        return ""


def use(root: Path, name: str, *, force: bool = False) -> None:
    """Make a version the one in use. Raises Trouble; the one before stays in use then."""
    tree = root / name
    if name != Path(name).name or not (tree / RECORD).is_file():
        raise Trouble(f"{tree}: is not installed", "`sparkd-engine list` shows what is")
    before = in_use(root)
    if before and before != name and not force and (users := users_of(root / before)):
        raise Trouble(
            f"{root / before}: is run by {', '.join(users[:3])}",
            "what a running engine loads later would be of the other version: `sparkctl down --wait` first",
        )
    for each in THROUGH:
        path = root / each
        if path.exists() and not path.is_symlink():
            raise Trouble(
                f"{path}: is there and is no link, so that another installation is in this place",
                f"move {root} away, or give another place with --root",
            )
    # The rest first: as long as `current` does not lead anywhere, nothing is in use.
    for each in THROUGH:
        _link(root / each, f"{CURRENT}/{each}")
    _link(root / CURRENT, name)
    sync_directory(root)


def remove(root: Path, name: str) -> None:
    """Raises Trouble for the one in use, and for one that runs."""
    tree = root / name
    if name != Path(name).name or not (tree / RECORD).is_file():
        raise Trouble(f"{tree}: is not installed", "`sparkd-engine list` shows what is")
    if name == in_use(root):
        raise Trouble(f"{tree}: is in use", "`sparkd-engine use` another one first")
    if users := users_of(tree):
        raise Trouble(f"{tree}: is run by {', '.join(users[:3])}", "`sparkctl down --wait` first")
    # Half of it must not look like a version.
    (tree / RECORD).unlink()
    shutil.rmtree(tree)


def prune(root: Path, keep: int) -> list[str]:
    """Remove the oldest versions but `keep` that are not in use or running, and what was never finished.

    Returns what was removed. Raises Trouble.
    """
    idle = sorted(
        (each for each in installed(root) if not each.in_use and not each.users), key=lambda each: each.installed
    )
    removed = [each.name for each in idle[: max(len(idle) - keep, 0)]]
    for name in removed:
        remove(root, name)
    for left in root.glob(f"{PARTIAL}*"):
        shutil.rmtree(left)
        removed.append(left.name)
    cache = root / OWN / "wheels"
    if cache.exists():
        shutil.rmtree(cache)
        removed.append("downloaded wheels")
    return removed


def users_of(tree: Path) -> list[str]:
    """Processes that have files of a version mapped, as far as this user may see: `python (pid 7)`."""
    found = []
    inside = f"{tree}/"
    for process in Path("/proc").glob("[0-9]*"):
        try:
            maps = (process / "maps").read_text(errors="replace")
            if inside in maps:
                found.append(f"{(process / 'comm').read_text().strip()} (pid {process.name})")
        except OSError:
            continue
    return found


def _link(path: Path, target: str) -> None:
    """Make or change a link at once."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
