"""The command line, and how it ends."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence

from runtime.manage import engine, memory, model, serving
from runtime.trouble import Trouble

OK, FAILED, USAGE, WRONG, INTERRUPTED = 0, 1, 2, 3, 130
"""WRONG: something was looked at, and is not as it has to be."""


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="sparkd-engine",
        description="Install the engine, fetch, verify and pack its checkpoint, and see whether a profile fits.",
        epilog="See sparkd-engine(8).",
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    engine.add(commands)
    nested = commands.add_parser("model", help="the checkpoint on this host").add_subparsers(
        dest="subcommand", required=True, metavar="COMMAND"
    )
    model.add(nested)
    serving.add(nested)
    memory.add(commands)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    parsed = parser().parse_args(arguments)
    # Ends it as Ctrl-C does: what has been done is noted.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # What is installed and fetched is for the ranks to read, whatever the shell's mask is.
    os.umask(0o022)
    try:
        return int(parsed.run(parsed))
    except Trouble as trouble:
        for line in trouble.text.splitlines():
            print(f"sparkd-engine: {line}", file=sys.stderr)
        if trouble.hint:
            print(f"  {trouble.hint}", file=sys.stderr)
        return FAILED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        print(f"sparkd-engine: {where}{error.strerror or error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("sparkd-engine: interrupted; run the same command again to go on", file=sys.stderr)
        return INTERRUPTED
