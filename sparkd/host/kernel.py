"""Kernel and NVIDIA driver: what runs, and what is installed next to it."""

from __future__ import annotations

import re
from pathlib import Path

from sparkd.core.hardware import KernelFacts
from sparkd.host import tree
from sparkd.host.worker import Worker
from sparkd.ports import DoorError

_LIBRARIES = ("usr/lib/aarch64-linux-gnu", "usr/lib/x86_64-linux-gnu", "usr/lib64")


class KernelFiles:
    def __init__(self, root: Path = Path("/"), deadline: float = 2.0) -> None:
        self._root = root
        self._worker = Worker("kernel files", deadline)

    async def observe(self) -> KernelFacts:
        return await self._worker.call(self._read)

    def close(self) -> None:
        self._worker.close()

    def _read(self) -> KernelFacts:
        root = self._root
        release = (root / "proc/sys/kernel/osrelease").read_text("utf-8").strip()
        if not release:
            raise DoorError("/proc/sys/kernel/osrelease is empty")
        required = (root / "run/reboot-required").exists()
        packages = (tree.text(root / "run/reboot-required.pkgs") or "").split() if required else []
        return KernelFacts(
            release=release,
            kho=_kho((root / "proc/cmdline").read_text("utf-8", errors="replace")),
            kho_default=_kho_default(root / f"boot/config-{release}"),
            module=self._module(),
            library=self._library(),
            product=_world_readable(root / "sys/class/dmi/id/product_name"),
            reboot_required=required,
            reboot_packages=tuple(dict.fromkeys(packages)),
        )

    def _module(self) -> str:
        """The open module shows itself in both places; /proc also while its sysfs directory is on its way out."""
        loaded = tree.attribute(self._root / "sys/module/nvidia/version")
        if loaded:
            return loaded
        for line in (tree.text(self._root / "proc/driver/nvidia/version") or "").splitlines():
            found = re.search(r"NVRM version:.*?\s(\d+\.\d+(?:\.\d+)*)\s", line + " ")
            if found:
                return found[1]
        return ""

    def _library(self) -> str:
        """The loader follows libnvidia-ml.so.1; files of other versions may lie next to it."""
        for directory in _LIBRARIES:
            name = tree.target(self._root / directory / "libnvidia-ml.so.1")
            found = re.fullmatch(r"libnvidia-ml\.so\.(\d+\.\d+(?:\.\d+)*)", name)
            if found:
                return found[1]
        return ""


def _kho(cmdline: str) -> str | None:
    """The kernel takes the last one. What follows -- is for init."""
    words = cmdline.split()
    own = words[: words.index("--")] if "--" in words else words
    return next((word.partition("=")[2] for word in reversed(own) if word.startswith("kho=")), None)


def _kho_default(config: Path) -> bool | None:
    """Whether this kernel starts kexec handover unless told otherwise; None when its configuration is not readable."""
    try:
        built = tree.text(config)
    except OSError:
        return None
    if built is None:
        return None
    lines = set(built.splitlines())
    if "CONFIG_KEXEC_HANDOVER=y" not in lines:
        return False
    return "CONFIG_KEXEC_HANDOVER_ENABLE_DEFAULT=y" in lines


def _world_readable(path: Path) -> str:
    """A name that only helps to recognise the machine: not worth failing for."""
    try:
        return tree.attribute(path)
    except OSError:
        return ""
