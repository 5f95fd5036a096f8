"""Whether the kernels run here, said in words, and which path an adapter has taken, said once."""

from __future__ import annotations

import sys

_CAPABILITY = (9, 0)
"""Of the first GPU that multiplies two bf16 at a time outside its tensor cores."""
_said: set[str] = set()


def obstacle() -> str:
    """Why kernels cannot run in this process; "" if they can."""
    try:
        import torch
    except ImportError:
        return "there is no torch"
    if not torch.cuda.is_available():
        return "there is no CUDA device"
    found = torch.cuda.get_device_capability()
    if found < _CAPABILITY:
        return f"the GPU has compute capability {found[0]}.{found[1]}, expected 9.0 or later"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "there is no Triton"
    return ""


def path(otherwise: str) -> str:
    """For `python -m adapter check`: what runs here, and why."""
    why = obstacle()
    return f"{otherwise}: {why}" if why else "Triton kernel"


def say(adapter: str, sentence: str) -> None:
    """Once per process and sentence."""
    line = f"adapter {adapter}: {sentence}"
    if line not in _said:
        _said.add(line)
        print(line, file=sys.stderr, flush=True)
