"""Processes of others that are in a rank's place: on its ports, or an engine outside of a rank unit."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from sparkd.core.hardware import Engine, Listener, SupervisorFacts, is_rank_unit
from sparkd.host import tree
from sparkd.host.worker import Worker

_LISTEN = "0A"
_MODULES = frozenset({"sglang.launch_server", "vllm.entrypoints.openai.api_server", "runtime.launch"})
_COMMAND_CHARACTERS = 80


class Supervisors:
    """The port, the address and the user of a listener are for all to see. Its process is told only to root, and to
    its own user; command lines and units of all processes are visible unless /proc is mounted with hidepid.

    `free`: whether nobody listens on a port, which for a `root` other than / is not to be asked of this machine.
    """

    def __init__(
        self,
        ports: Sequence[int],
        root: Path = Path("/"),
        deadline: float = 2.0,
        free: Callable[[int], bool] | None = None,
    ) -> None:
        self._ports = frozenset(ports)
        self._free = free or is_free
        self._root = root
        self._proc = root / "proc"
        self._worker = Worker("/proc", deadline)

    async def observe(self) -> SupervisorFacts:
        return await self._worker.call(self._read)

    async def glance(self, known: SupervisorFacts | None) -> SupervisorFacts:
        """The same for a thousandth of the time: as `known`, if the ports are free. Every start waits for it, and to
        read what hundreds of processes are takes longer than all the rest of a start. So does /proc/net/tcp, for which
        the kernel walks through a hash table made for a million connections."""
        return await self._worker.call(lambda: self._glance(known))

    def close(self) -> None:
        self._worker.close()

    def _glance(self, known: SupervisorFacts | None) -> SupervisorFacts:
        if known is None or not all(self._free(port) for port in self._ports):
            return self._read()
        return replace(known, listeners=())

    def _read(self) -> SupervisorFacts:
        users = self._users()
        pids = [int(name) for name in tree.names(self._proc) if name.isdecimal()]
        sockets = [*self._listening("tcp", socket.AF_INET), *self._listening("tcp6", socket.AF_INET6)]
        holders = self._holders({inode for *_, inode in sockets}, pids) if sockets else {}
        listeners = []
        for port, address, uid, inode in sockets:
            pid = holders.get(inode, 0)
            command = _command(self._arguments(pid)) if pid else ""
            unit = self._unit(pid) if pid else ""
            listeners.append(Listener(port, address, uid, users.get(uid, ""), pid, command, unit))
        # Everyone may see process 1, where everyone may see anything.
        hidden = bool(pids) and not (self._proc / "1/cmdline").exists()
        return SupervisorFacts(tuple(listeners), tuple(self._engines(pids, users)), hidden)

    def _listening(self, table: str, family: int) -> Iterator[tuple[int, str, int, str]]:
        """(port, address, uid, inode) of the listeners on our ports."""
        for line in (tree.text(self._proc / "net" / table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) < 10 or fields[3] != _LISTEN:
                continue
            address, _, port = fields[1].partition(":")
            if int(port, 16) in self._ports:
                yield int(port, 16), _address(address, family), int(fields[7]), fields[9]

    def _holders(self, inodes: set[str], pids: Sequence[int]) -> dict[str, int]:
        """Process by socket, as far as this user may look."""
        wanted = {f"socket:[{inode}]": inode for inode in inodes}
        found: dict[str, int] = {}
        for pid in pids:
            try:
                targets = [tree.target(self._proc / f"{pid}/fd/{fd}") for fd in tree.names(self._proc / f"{pid}/fd")]
            except (PermissionError, ProcessLookupError):
                continue
            for target in targets:
                if target in wanted:
                    found.setdefault(wanted[target], pid)
        return found

    def _engines(self, pids: Sequence[int], users: dict[int, str]) -> Iterator[Engine]:
        for pid in pids:
            arguments = self._arguments(pid)
            if not _is_engine(arguments):
                continue
            unit = self._unit(pid)
            if is_rank_unit(unit):
                continue
            found = re.search(r"^Uid:\s+(\d+)", self._file(pid, "status"), re.MULTILINE)
            uid = int(found[1]) if found else -1
            yield Engine(pid, users.get(uid, f"uid {uid}"), _command(arguments), unit)

    def _arguments(self, pid: int) -> list[str]:
        return [argument for argument in self._file(pid, "cmdline").split("\0") if argument]

    def _unit(self, pid: int) -> str:
        return unit_of(self._file(pid, "cgroup"))

    def _file(self, pid: int, name: str) -> str:
        """ "" for a process that has just ended."""
        try:
            return tree.text(self._proc / f"{pid}/{name}") or ""
        except (PermissionError, ProcessLookupError):
            return ""

    def _users(self) -> dict[int, str]:
        rows = (line.split(":") for line in (tree.text(self._root / "etc/passwd") or "").splitlines())
        return {int(row[2]): row[0] for row in rows if len(row) == 7 and row[2].isdecimal()}


def is_free(port: int) -> bool:
    """Whether nobody listens on this TCP port, on any address of either family. A listener keeps a socket from being
    bound, also one with SO_REUSEADDR; it is closed again at once. False also when that says nothing, as for a minute
    after connections of a listener that had no SO_REUSEADDR."""
    try:
        with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if sock.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            sock.bind(("", port))
    except OSError:
        return False
    return True


def _is_engine(arguments: Sequence[str]) -> bool:
    """By whole arguments: a file that is only called like an engine, in somebody's editor, is none."""
    if not arguments:
        return False
    # Engines give their workers a title in place of the command line.
    if arguments[0].startswith(("sglang::", "VLLM::")) or _MODULES & set(arguments):
        return True
    first = [argument.rpartition("/")[2] for argument in arguments[:3]]
    return "vllm" in first[:2] and "serve" in first


def _command(arguments: Sequence[str]) -> str:
    line = " ".join(arguments)
    return line if len(line) <= _COMMAND_CHARACTERS else line[: _COMMAND_CHARACTERS - 3] + "..."


def unit_of(cgroup: str) -> str:
    """The unit, or "container ID", of a process from its /proc/PID/cgroup; the innermost unit wins."""
    container = re.search(r"(?:docker|libpod|cri-containerd|nerdctl)[-/]([0-9a-f]{12})[0-9a-f]{52}", cgroup)
    if container:
        return f"container {container[1]}"
    units = [part for part in re.split(r"[/\n]", cgroup) if part.endswith((".service", ".scope"))]
    return units[-1] if units else ""


def _address(text: str, family: int) -> str:
    """The kernel prints an address as 32-bit words in the machine's own byte order."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    shown = socket.inet_ntop(family, struct.pack(f"={len(words)}I", *words))
    return f"[{shown}]" if family == socket.AF_INET6 else shown
