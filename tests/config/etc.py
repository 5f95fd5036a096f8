"""A node's directory as `/etc/sparkd` has it, complete and valid, for tests to spoil."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkd.config import ConfigError, Problem, Settings, load

CLUSTER = """
[cluster]
name = "lab"
base_range = "10.77.0.0/21"
[[cluster.node]]
name = "spark1"
rank = 0
address = "192.168.77.1"
[[cluster.node]]
name = "spark2"
rank = 1
address = "192.168.77.2"
[[cluster.node]]
name = "spark3"
rank = 2
address = "192.168.77.3"
"""
NODE = '[node]\nname = "spark1"\n'


@dataclass(frozen=True)
class Etc:
    """The directory of spark1."""

    folder: Path

    @property
    def main(self) -> Path:
        return self.folder / "sparkd.toml"

    def write(self, name: str, text: str | bytes, mode: int = 0o640) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(mode)
        return path

    def load(self, environment: dict[str, str] | None = None) -> Settings:
        return load(self.main, environment or {})

    def problems(self) -> tuple[Problem, ...]:
        with pytest.raises(ConfigError) as caught:
            self.load()
        assert str(caught.value) == "\n".join(str(problem) for problem in caught.value.problems)
        return caught.value.problems

    def places(self) -> list[tuple[str, str]]:
        """(file's name, key) of each problem."""
        return [(Path(problem.file).name, problem.key) for problem in self.problems()]


@contextmanager
def unprivileged() -> Iterator[None]:
    """Not root inside, for whom modes mean nothing."""
    user, group = os.geteuid(), os.getegid()
    if user == 0:
        os.setegid(65534)
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        os.setegid(group)
