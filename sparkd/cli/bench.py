"""bench: runtime.bench against the engine of the ring, on rank 0's host, where its API is."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import sparkd
from sparkd.cli import render
from sparkd.cli.answer import Json
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from sparkd.cli.text import clean

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[argparse.ArgumentParser]

# Handed on as they are given; what they mean, and what they are by default, is runtime.bench's to say.
_HANDED_ON = {
    "model": ("NAME", "the model's name; the one that is served, if left out"),
    "streams": ("N,N", "numbers of streams to decode at once"),
    "prefill": ("N,N", "tokens of the prompts to prefill"),
    "tokens": ("N", "tokens of each decoded stream"),
    "rounds": ("N", "rounds after the warm-up"),
    "timeout": ("S", "seconds for each round"),
    "plot": ("FILE.svg", "draw the result there"),
    "against": ("OLD.json", "compare with an older report"),
}
_SERVES = ("ready", "degraded")


def add_commands(
    commands: Commands, daemon: argparse.ArgumentParser, client: Callable[[argparse.Namespace], Client]
) -> None:
    """`bench`. daemon: the options that say where sparkd listens, which `client` reads."""
    text = "measure decode and prefill of the engine that serves, on the host of rank 0"
    more = "Nobody else should use it meanwhile. How it measures: python3 -m runtime.bench --help, see README."
    parser = commands.add_parser("bench", help=text, description=f"{text.capitalize()}. {more}", parents=[daemon])
    for name, (metavar, about) in _HANDED_ON.items():
        parser.add_argument(f"--{name}", metavar=metavar, help=about)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--json", action="store_true", help="print the report for programs; the table goes to stderr")
    where.add_argument("--out", metavar="FILE", help="write the report there, for --against")
    parser.set_defaults(run=lambda options: bench(client(options), options))


def bench(client: Client, options: argparse.Namespace) -> Exit:
    """Run the benchmark as a process of its own; ends as that does."""
    url = address(client.get("/v1/ring"))
    command = [sys.executable, "-m", "runtime.bench", url, *_arguments(options)]
    # It shares the package's directory with this command and nothing else.
    environment = {**os.environ, "PYTHONPATH": str(Path(sparkd.__file__).parents[1])}
    return Exit.OK if subprocess.run(command, check=False, env=environment).returncode == 0 else Exit.ERROR


def address(ring: Json) -> str:
    """The URL of the engine's API. Raises Failure where it has none, does not serve or is on another host."""
    engine = ring.get("engine")
    engine = engine if isinstance(engine, dict) else {}
    node, conductor = clean(ring.get("node")), clean(ring.get("conductor"))
    if engine.get("name") == "probe":
        raise Failure(Exit.ERROR, "the probe has no OpenAI API to measure", "sparkctl status shows the rates it found")
    if node != conductor:
        text = f"the engine's API is on {conductor} alone, and this is {node}"
        raise Failure(Exit.ERROR, text, f"on {conductor}: sparkctl bench")
    if ring.get("phase") not in _SERVES:
        raise Failure(Exit.REFUSED, f"the ring does not serve: {render.sentence(ring)}", "sparkctl up --wait")
    return f"http://{clean(engine.get('api'))}"


def _arguments(options: argparse.Namespace) -> Iterator[str]:
    for name in _HANDED_ON:
        value = getattr(options, name)
        if value is not None:
            yield f"--{name}={value}"
    if options.json or options.out:
        yield f"--json={'-' if options.json else options.out}"
