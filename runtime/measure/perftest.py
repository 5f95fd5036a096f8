"""RDMA rates with ``ib_write_bw`` of perftest: how it is called, and how its output is read."""

import asyncio
import contextlib
import math
import re
import shutil
from collections.abc import Sequence
from pathlib import Path

PROGRAM = "ib_write_bw"
# Registering memory and connecting takes well below a second; a device that is stuck must not hold the others up.
GRACE_SECONDS = 8.0
LISTEN_SECONDS = 5.0
LISTEN_POLL = 0.02
_LISTEN_STATE = "0A"
_HEAD = re.compile(r"#bytes\s+#iterations\s+BW peak\[(?P<peak>\S+)\]\s+BW average\[(?P<unit>\S+)\]\s+MsgRate\[Mpps\].*")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class PerftestError(Exception):
    """There is no rate; the message says why."""


def find() -> str:
    """The path of ib_write_bw; empty where perftest is not installed."""
    return shutil.which(PROGRAM) or ""


def arguments(hca: str, gid: int, seconds: float, port: int, server: str = "") -> list[str]:
    """perftest counts whole seconds, at least one. ``server``: address of the other side, empty to be it."""
    duration = max(1, math.ceil(seconds))
    wanted = ["-d", hca, "-x", str(gid), "-D", str(duration), "-p", str(port), "--report_gbits", "-F"]
    return [*wanted, server] if server else wanted


def parse(output: str) -> float:
    """Average rate in Gb/s of the one measurement in the output of a client.

    :raises PerftestError: unless there is exactly one table in Gb/s with exactly one line that reads as one.
    """
    lines = [line.strip() for line in output.splitlines()]
    heads = [(number, match) for number, line in enumerate(lines) if (match := _HEAD.fullmatch(line))]
    if len(heads) != 1:
        raise PerftestError(f"{PROGRAM} printed {len(heads)} tables, expected one{_last(lines)}")
    number, head = heads[0]
    if head["unit"] != "Gb/sec":
        raise PerftestError(f"{PROGRAM} printed rates in {head['unit']}, expected Gb/sec")
    rows = [line.split() for line in lines[number + 1 :] if line and not set(line) <= {"-"}]
    rows = [row for row in rows if len(row) >= 5 and all(_NUMBER.fullmatch(word) for word in row[:5])]
    if len(rows) != 1:
        raise PerftestError(f"{PROGRAM} printed {len(rows)} results, expected one{_last(lines)}")
    rate = float(rows[0][3])
    # It prints 0.00 when nothing has been completed, which is no rate of the rail.
    if rate <= 0:
        raise PerftestError(f"{PROGRAM} printed a rate of {rows[0][3]} Gb/s, expected more than 0")
    return rate


def _last(lines: Sequence[str]) -> str:
    said = [line for line in lines if line and not set(line) <= {"-", "*"}]
    return f"; its last words: {said[-1]}" if said else ""


class Server:
    """The passive side; leaves by itself when the client has finished."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, program: str, wanted: Sequence[str], port: int) -> "Server":
        """Start it, and return once it listens.

        :raises PerftestError: it left or did not listen in time.
        """
        server = cls(await _spawn(program, wanted))
        try:
            async with asyncio.timeout(LISTEN_SECONDS):
                while not _listens(port):
                    if server._process.returncode is not None:
                        raise PerftestError(await _why(server._process))
                    await asyncio.sleep(LISTEN_POLL)
        except TimeoutError:
            await server.close()
            raise PerftestError(f"{PROGRAM} did not listen on port {port} within {LISTEN_SECONDS:g} s") from None
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """End it if it still runs."""
        await _end(self._process)


async def run_client(program: str, wanted: Sequence[str], seconds: float) -> float:
    """Rate in Gb/s from here to the server.

    :raises PerftestError: it failed, was late, or said what cannot be read.
    """
    process = await _spawn(program, wanted)
    limit = max(1, math.ceil(seconds)) + GRACE_SECONDS
    try:
        async with asyncio.timeout(limit):
            output, errors = await process.communicate()
    except TimeoutError:
        raise PerftestError(f"{PROGRAM} did not end within {limit:g} s") from None
    finally:
        await _end(process)
    text = output.decode(errors="replace")
    if process.returncode:
        said = _last([line.strip() for line in f"{text}\n{errors.decode(errors='replace')}".splitlines()])
        raise PerftestError(f"{PROGRAM} ended with status {process.returncode}{said}")
    return parse(text)


async def _spawn(program: str, wanted: Sequence[str]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(program, *wanted, stdin=None, stdout=pipe, stderr=pipe)
    except OSError as error:
        raise PerftestError(f"{program} cannot be run: {error.strerror}") from error


async def _why(process: asyncio.subprocess.Process) -> str:
    output, errors = await process.communicate()
    lines = [line.strip() for line in (output + b"\n" + errors).decode(errors="replace").splitlines()]
    return f"{PROGRAM} ended with status {process.returncode}{_last(lines)}"


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    # Reads what is left in the pipes too, without which they stay open.
    await process.communicate()


def _listens(port: int, proc: Path = Path("/proc/net")) -> bool:
    """Whether anybody listens on that TCP port; to connect in order to find out would be taken for the client."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / table).read_text("ascii").splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN_STATE and int(fields[1].rpartition(":")[2], 16) == port:
                    return True
    return False
