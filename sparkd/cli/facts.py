"""What this host can tell of itself without the daemon: commands, and files of the kernel. For a support bundle."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

_SECONDS = 10.0
_LIMIT = 4 * 1024 * 1024
_FILE_LIMIT = 256 * 1024
_PACKAGES = "sparkd systemd python3 python3-fastapi python3-starlette python3-uvicorn python3-pydantic python3-pyroute2"
_JOURNAL = "journalctl --quiet --no-pager --no-hostname --output=short-iso-precise"

COMMANDS = {
    "versions/packages.txt": f"dpkg-query --show {_PACKAGES} python3-pydbus python3-cryptography perftest rdma-core",
    "versions/kernel.txt": "uname --kernel-name --kernel-release --kernel-version --machine",
    "versions/systemd.txt": "systemctl --version",
    "versions/gpu.txt": "nvidia-smi --query-gpu=name,driver_version,vbios_version,memory.total --format=csv",
    "host/sparkd.txt": "systemctl status --no-pager --full --lines=50 sparkd.service",
    "host/ranks.txt": "systemctl status --no-pager --full --lines=50 sparkd-rank@* sparkd-measure@*",
    "host/failed.txt": "systemctl list-units --failed --no-pager",
    "host/check.txt": "/usr/sbin/sparkd --check-config",
    "host/addresses.txt": "ip -details address",
    "host/routes.txt": "ip route show table all",
    "host/rules.txt": "ip rule",
    "host/neighbours.txt": "ip neighbour",
    "host/rdma.txt": "rdma link",
    "host/sockets.txt": "ss --numeric --listening --tcp --processes",
    "host/pci.txt": "lspci -vv -d 15b3:",
    "host/time.txt": "timedatectl show",
    "journal/sparkd.txt": f"{_JOURNAL} --unit=sparkd.service --lines=5000",
    "journal/ranks.txt": f"{_JOURNAL} --unit=sparkd-rank@* --unit=sparkd-measure@* --lines=5000",
    "journal/kernel.txt": f"{_JOURNAL} --dmesg --lines=2000",
}
FILES = {
    "versions/os.txt": "/etc/os-release",
    "versions/driver.txt": "/proc/driver/nvidia/version",
    "versions/bios.txt": "/sys/class/dmi/id/bios_version",
    "versions/machine.txt": "/sys/class/dmi/id/product_name",
    "host/memory.txt": "/proc/meminfo",
    "host/pressure.txt": "/proc/pressure/memory",
    "host/uptime.txt": "/proc/uptime",
    "host/mounts.txt": "/proc/self/mounts",
    "host/cmdline.txt": "/proc/cmdline",
}
_NET = ("address", "carrier", "carrier_changes", "mtu", "operstate", "speed", "phys_port_name")
_RDMA = ("fw_ver", "hca_type", "board_id", "node_guid", "ports/1/state", "ports/1/rate", "ports/1/phys_state")


def gather(root: Path = Path("/")) -> Iterator[tuple[str, str]]:
    """Name and text of each part; what cannot be had is told in its place."""
    for name, command in COMMANDS.items():
        yield name, run(command.split())
    for name, path in FILES.items():
        yield name, read(root / path.lstrip("/"))
    yield "host/sysfs.txt", "".join(f"{line}\n" for line in _sysfs(root / "sys"))
    yield "versions/engine.txt", "".join(f"{line}\n" for line in _engine(root))


def run(command: list[str]) -> str:
    """What it prints, with its status if that is not 0."""
    try:
        done = subprocess.run(
            command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C.UTF-8", "SYSTEMD_COLORS": "0"},
        )  # fmt: skip
    except FileNotFoundError:
        return f"cannot be had: {command[0]} is not installed\n"
    except (OSError, subprocess.TimeoutExpired) as error:
        late = f"it has not ended within {_SECONDS:g} s"
        return f"cannot be had: {late if isinstance(error, subprocess.TimeoutExpired) else error}\n"
    text = (done.stdout[-_LIMIT:] + done.stderr[-_FILE_LIMIT:]).decode(errors="replace")
    return (
        text if done.returncode == 0 else f"{text}\n[{' '.join(command[:2])} has left with status {done.returncode}]\n"
    )


def read(path: Path) -> str:
    """The text of a file, at most 256 KiB of it."""
    try:
        with path.open("rb") as file:
            return file.read(_FILE_LIMIT).decode(errors="replace")
    except OSError as error:
        return f"cannot be had: {path}: {error.strerror}\n"


def _sysfs(sys: Path) -> Iterator[str]:
    for kind, names in (("net", _NET), ("infiniband", _RDMA)):
        for device in _names(sys / "class" / kind):
            for name in names:
                value = _value(sys / "class" / kind / device / name)
                if value:
                    yield f"{kind}/{device}/{name}: {value}"


def _engine(root: Path) -> Iterator[str]:
    """The packages of the engine's Python environment, by the names of their metadata."""
    below = root / "opt/sparkd/engine/lib"
    found = sorted(path.name.removesuffix(".dist-info") for path in below.glob("python3*/site-packages/*.dist-info"))
    yield from found or [f"no Python environment in {below.parent}"]


def _names(folder: Path) -> list[str]:
    try:
        return sorted(path.name for path in folder.iterdir())
    except OSError:
        return []


def _value(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace").strip()[:200]
    except OSError:  # of a port that is down, the kernel refuses some
        return ""
