"""schemathesis against the three listeners of a daemon: `make fuzz MINUTES=10`.

Three hosts with real loops and real listeners on fake machines; the documents are those of the code. Nothing may be
answered with a fault of the daemon's own, nor with what its document does not tell of.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparkd.api import limits
from sparkd.api.guard import Body, Limits
from sparkd.api.peer import peer_app
from tests.api.contract import current
from tests.api.serving import BEARER, api, connect
from tests.api.test_logs import with_journal
from tests.architecture.repository import ROOT
from tests.fuzz.peers import document
from tests.peers.tls import Certificates
from tests.reconcile.cluster import cluster

PROGRAM = ROOT / "build/fuzz-venv/bin/st"
# What a healthy daemon may answer to a good request, since much depends on what the ring is doing.
_STATUSES = "2xx", "304", "403", "404", "406", "409", "422"
_CONFIG = f"""
[checks]
positive_data_acceptance.expected-statuses = {json.dumps(_STATUSES)}
# FastAPI reads 1, yes and on as true, and takes what it does not know for nothing.
negative_data_rejection.enabled = false

[[operations]]
include-path = "/readyz"
checks.not_a_server_error.enabled = false
checks.positive_data_acceptance.enabled = false
"""


@dataclass(frozen=True)
class Target:
    """`more`: of the command's options."""

    name: str
    url: str
    document: Path
    more: tuple[str, ...] = ()


@contextlib.asynccontextmanager
async def targets(folder: Path) -> AsyncIterator[list[Target]]:
    """The listeners of a node of a ring, which serve meanwhile. Raises nothing of its own."""
    limits.CHANGES = 10**9  # or all but the first of the changes would be refused for their number
    certificates = Certificates.make(folder)
    operators, peers = folder / "operators.json", folder / "peers.json"
    operators.write_text(json.dumps(await asyncio.to_thread(current)))
    peers.write_text(json.dumps(document()))
    bearer = ("--header", f"Authorization: {BEARER['Authorization']}")
    no_token = ("--exclude-checks", "ignored_auth,missing_required_header")
    own = folder / "spark2"
    shown = ("--request-cert", str(own / "node.crt"), "--request-cert-key", str(own / "node.key"))
    async with cluster() as ring:
        await ring.up()
        with_journal(ring)
        loop = ring.conductor.loop
        guarded = Limits(Body(peer_app(loop), wanted=True))
        async with (
            api(loop, folder) as served,
            certificates.serving(guarded, "spark1") as port,
            _relayed(served.unix) as relayed,
        ):
            yield [
                Target("TCP", f"http://127.0.0.1:{served.tcp}", operators, bearer),
                Target("Unix socket", f"http://127.0.0.1:{relayed}", operators, no_token),
                Target(
                    "peers",
                    f"https://127.0.0.1:{port}",
                    peers,
                    (*shown, "--tls-verify", str(own / "ca.crt"), *no_token),
                ),
            ]


@contextlib.asynccontextmanager
async def _relayed(path: Path) -> AsyncIterator[int]:
    """A port that leads to the Unix socket, which schemathesis cannot use."""

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, here = await connect(path)
        await asyncio.gather(pump(reader, here), pump(there, writer))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


async def attack(target: Target, folder: Path, options: Sequence[str]) -> tuple[int, str]:
    """The exit status and what was said."""
    config = folder / "schemathesis.toml"
    config.write_text(_CONFIG)
    words = ["--config-file", str(config), "--no-color", "run", str(target.document), "--url", target.url, *options]
    words += ["--request-timeout", "20", "--generation-database", "none", "--warnings", "off", "--no-shrink"]
    words += ["--continue-on-failure", *target.more]
    environment = {**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"), "NO_COLOR": "1"}
    child = await asyncio.create_subprocess_exec(
        str(PROGRAM),
        *words,
        cwd=folder,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        said, _ = await child.communicate()
    except asyncio.CancelledError:
        child.kill()
        await child.wait()
        raise
    return child.returncode or 0, said.decode(errors="replace")


async def fuzz(seconds: float, examples: int, seed: int, phases: str = "coverage,fuzzing,stateful") -> int:
    """All three, each for its part of the time; the number of those in which something was found."""
    found = 0
    with tempfile.TemporaryDirectory(prefix="sparkd-fuzz-") as name:
        folder = Path(name)
        async with targets(folder) as all_of_them:
            for target in all_of_them:
                options = ["--seed", str(seed), "--max-examples", str(examples), "--phases", phases]
                if seconds:
                    options += ["--max-time", str(max(1, round(seconds / len(all_of_them))))]
                began = time.monotonic()
                status, said = await attack(target, folder, options)
                print(f"== {target.name}, seed {seed}: status {status} after {time.monotonic() - began:.0f} s")
                print("\n".join(said.splitlines()[-400:] if status else said.splitlines()[-12:]), flush=True)
                found += status != 0
    return found


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=0, help="for all three (default: until each has been tried)")
    parser.add_argument("--examples", type=int, default=100, help="of each operation and phase (default: 100)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="to repeat a run")
    options = parser.parse_args(argv)
    return 1 if asyncio.run(fuzz(options.minutes * 60, options.examples, options.seed)) else 0


if __name__ == "__main__":
    sys.exit(main())
