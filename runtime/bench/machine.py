"""What the measurement was made on: without it a figure cannot be compared with another."""

import os
import platform
from pathlib import Path

from runtime.openai.client import Client
from runtime.openai.facts import Facts

ROOT = Path("/")


def this_machine(root: Path = ROOT) -> dict[str, str]:
    """The host that the client runs on, which is the engine's where the address is a loopback one."""
    found = {
        "host": platform.node(),
        "product": _line(root / "sys/class/dmi/id/product_name"),
        "processor": f"{os.cpu_count()} x {platform.machine()}",
        "memory": _memory(root / "proc/meminfo"),
        "gpu": ", ".join(_gpus(root / "proc/driver/nvidia/gpus")),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }
    return {key: value for key, value in found.items() if value}


def this_engine(client: Client, facts: Facts) -> dict[str, str]:
    """Model, version and arguments, as the engine tells them."""
    found = {
        "address": str(client.server),
        "model": client.model,
        "path": facts.model_path,
        "version": facts.version,
        "running requests": str(facts.running_requests or ""),
        "chunked prefill": str(facts.chunked_prefill or ""),
        "speculative": facts.speculative,
        "arguments": facts.arguments,
    }
    return {key: value for key, value in found.items() if value}


def _line(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _memory(path: Path) -> str:
    for line in _line(path).splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal" and value.split()[:1] and value.split()[0].isdigit():
            return f"{int(value.split()[0]) / 2**20:.1f} GiB"
    return ""


def _gpus(directory: Path) -> list[str]:
    found = []
    for path in sorted(directory.glob("*/information")):
        for line in _line(path).splitlines():
            name, _, value = line.partition(":")
            if name == "Model":
                found.append(value.strip())
    return found
