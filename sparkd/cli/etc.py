"""The configuration of this node as files: tried in a copy before any of them is changed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sparkd.cli.failure import Exit, Failure
from sparkd.config import DEFAULT_CONFIG, ConfigError, Problem, Settings, load

REJECTED = ".rejected"
"""Behind the name of a file: what was to take its place and could not. Nothing reads it."""


@dataclass(frozen=True)
class Etc:
    """The directory of `main`, sparkd.toml."""

    main: Path = DEFAULT_CONFIG

    @property
    def drop_ins(self) -> Path:
        return self.main.with_name(f"{self.main.name}.d")

    def file(self, name: str) -> Path:
        """sparkd.toml, or the drop-in of that name. Raises Failure for anything else."""
        if name in ("", self.main.name):
            return self.main
        if "/" in name or name.startswith(".") or not name.endswith(".toml"):
            text = f"{name}: expected {self.main.name}, or the name of a drop-in in {self.drop_ins} that ends in .toml"
            raise Failure(Exit.USAGE, text)
        return self.drop_ins / name

    def load(self, *, secrets: bool = True) -> Settings:
        """Raises Failure, with a line for each problem."""
        try:
            return load(self.main, {}, secrets=secrets)
        except ConfigError as error:
            raise _failure(error.problems) from error

    def tried(self, changed: Mapping[Path, str]) -> Settings:
        """The configuration as it would be with those files. Raises Failure, with a line for each problem.

        Secrets are read if they can be: who cannot read them cannot change the files either.
        """
        with self._copy(changed) as copy:

            def named(path: str) -> str:
                return path.replace(str(copy.parent), str(self.main.parent), 1)

            try:
                made = load(copy, {}, secrets=os.geteuid() == 0)
            except ConfigError as error:
                raise _failure([replace(each, file=named(each.file)) for each in error.problems]) from error
            sources = {key: named(file) for key, file in made.sources.items()}
            return replace(made, sources=sources)

    @contextmanager
    def _copy(self, changed: Mapping[Path, str]) -> Iterator[Path]:
        """Links to all files but the changed ones: no secret is written anywhere."""
        with tempfile.TemporaryDirectory(prefix="sparkctl-") as folder:
            below = Path(folder)
            (below / self.drop_ins.name).mkdir()
            for here in (self.main.parent, self.drop_ins):
                target = below / here.relative_to(self.main.parent)
                for path in _inside(here):
                    if path != self.drop_ins and path not in changed:
                        (target / path.name).symlink_to(path)
            for path, text in changed.items():
                copy = below / path.relative_to(self.main.parent)
                copy.write_text(text, encoding="utf-8", errors="surrogateescape")
            yield below / self.main.name


def write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace the file in one step, with the owner and mode that it had. Raises Failure."""
    try:
        path.parent.mkdir(mode=0o755, exist_ok=True)
        kept = path.stat() if path.exists() else None
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(text)
                file.flush()
                if kept is not None and os.geteuid() == 0:
                    os.fchown(descriptor, kept.st_uid, kept.st_gid)
                os.fchmod(descriptor, mode if kept is None else kept.st_mode & 0o7777)
                os.fsync(descriptor)
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except PermissionError as error:
        raise Failure(Exit.DENIED, f"no permission to write {path}", "as root, or with sudo") from error
    except OSError as error:
        raise Failure(Exit.ERROR, f"cannot write {path}: {error.strerror}") from error


def text_of(path: Path) -> str:
    """Empty for a file that is not there. Raises Failure."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise Failure(Exit.CONFIG, f"cannot read {path}: {why}") from error


def _inside(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError:
        return []


def _failure(problems: tuple[Problem, ...] | list[Problem]) -> Failure:
    return Failure(Exit.CONFIG, "\n".join(str(problem) for problem in problems), "sparkd(8) explains each key")
