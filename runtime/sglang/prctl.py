"""Two settings of prctl(2), for which the standard library has no call."""

import ctypes
import os

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}, {value}): {os.strerror(number)}")


def become_subreaper() -> None:
    """Orphans below this process become its children, so that it can wait for them, and none is lost from sight."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(signal_number: int) -> None:
    """Get the signal when the parent's thread that forked this process ends, however it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)
