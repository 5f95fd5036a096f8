"""Stands in for sgl_kernel, SGLang's compiled kernels, of which there is no build for CPUs.

The engine imports names from it that it then does not use on a CPU. One that it does use says so when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__version__ = "0.4.10"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    # What Python itself asks a module for, __path__ first: having it would make this a package.
    if name.startswith("__"):
        raise AttributeError(name)

    def kernel(*_arguments: object, **_options: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: this engine has no compiled kernels; see tests/lab/sglang/shims")

    return kernel
