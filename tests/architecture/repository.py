"""The repository as files."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("sparkd", "ring_mesh", "runtime", "adapter")


def files() -> list[Path]:
    """All files that are or may become part of the repository, relative to ROOT."""
    # git refuses to list a checkout that belongs to another user, as on machines that build what they did not clone.
    command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout
    return [Path(name) for name in sorted(set(listed.split("\0"))) if name and (ROOT / name).is_file()]


def text_files() -> Iterable[tuple[Path, str]]:
    """The files that are text, with their text."""
    for file in files():
        try:
            yield file, (ROOT / file).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue


def python_files() -> Iterable[tuple[Path, str]]:
    """The files that are Python, by suffix or by their first line."""
    for file, text in text_files():
        first = text.partition("\n")[0]
        if file.suffix == ".py" or (first.startswith("#!") and "python" in first):
            yield file, text


def tool(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a tool of this interpreter's environment, with output that does not depend on the terminal."""
    environment = os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"}
    scripts = Path(sys.executable).parent
    return subprocess.run(
        [str(scripts / arguments[0]), *arguments[1:]],
        cwd=cwd,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=600,
    )
