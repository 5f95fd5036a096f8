"""Takes the place of torchvision/extension.py, which loads compiled operators that do not fit a CPU build of torch.

torchvision then describes two of them to torch, and cannot be imported unless they are declared. Nothing calls them.
"""

from __future__ import annotations

from typing import NoReturn

import torch

_DECLARED = torch.library.Library("torchvision", "DEF")
_DECLARED.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
_DECLARED.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def _has_ops() -> bool:
    return False


def _load_library(_name: str) -> bool:
    return False


def _assert_has_ops() -> NoReturn:
    raise RuntimeError("torchvision: this engine has no compiled operators; see tests/lab/sglang/shims")


def _check_cuda_version() -> int:
    return -1
