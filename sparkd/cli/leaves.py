"""A command line as argparse knows it, taken apart: which commands there are, and what each of them takes. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

Path = tuple[str, ...]


def leaves(parser: argparse.ArgumentParser, path: Path = ()) -> Iterator[tuple[Path, argparse.ArgumentParser]]:
    """Every command that can be given, with its words."""
    below = commands(parser)
    if not below:
        yield path, parser
    for name, each in below.items():
        yield from leaves(each, (*path, name))


def commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Those of one level; none for a command that takes no other."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def options(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.option_strings]


def operands(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    found = [action for action in parser._actions if not action.option_strings]
    return [action for action in found if not isinstance(action, argparse._SubParsersAction)]
