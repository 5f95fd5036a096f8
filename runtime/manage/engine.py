"""`sparkd-engine install ...`: the engine's Python environment."""

from __future__ import annotations

from typing import Any


def add(commands: Any) -> None:
    """The subcommands that work on installations."""
