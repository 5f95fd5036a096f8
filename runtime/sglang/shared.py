"""What the launcher shares with the engine's processes besides the log: pages of memory that no full disk can refuse.

They are files without a name, which go with the launcher; the engine's processes, of the same user, reach them through
``/proc/LAUNCHER/fd``.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from runtime.sglang.plugin import sparkd_drain

PLUGIN = Path(sparkd_drain.__file__).parent


class MemoryFile:
    """``path`` is for other processes of this user, as long as this one lives."""

    def __init__(self, name: str, size: int = 0) -> None:
        self.descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, size)
        self.path = f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def read(self) -> bytes:
        return os.pread(self.descriptor, os.fstat(self.descriptor).st_size, 0)

    def close(self) -> None:
        os.close(self.descriptor)


class Shared:
    """``proof``: where plug-ins say that they are installed. ``board``: rank 0's word with its server."""

    def __init__(self, rank: int) -> None:
        self.proof = MemoryFile("sparkd-plugin-proof")
        self._page = MemoryFile("sparkd-drain", sparkd_drain.SIZE) if rank == 0 else None
        self.board = None if self._page is None else sparkd_drain.Board(self._page.descriptor)

    def environment(self, wanted: Mapping[str, str]) -> dict[str, str]:
        """``wanted``, with what the engine's processes need to find it."""
        told = {**wanted, sparkd_drain.PROOF: self.proof.path}
        if self._page is None:
            return told
        listed = [name for name in wanted.get("SGLANG_PLUGINS", "").split(",") if name not in ("", "-")]
        path = [str(PLUGIN), *filter(None, [wanted.get("PYTHONPATH")])]
        return told | {
            sparkd_drain.VARIABLE: self._page.path,
            "SGLANG_PLUGINS": ",".join([*listed, sparkd_drain.NAME]),
            "PYTHONPATH": os.pathsep.join(path),
        }

    def close(self) -> None:
        if self.board is not None:
            self.board.close()
        if self._page is not None:
            self._page.close()
        self.proof.close()
