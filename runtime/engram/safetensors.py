"""Where a tensor lies in a checkpoint: the index names the file, the file's header the bytes."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.trouble import Trouble

INDEX = "model.safetensors.index.json"
HEADER_LIMIT = 100 << 20
WIDTH = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
    "U16": 2, "I16": 2, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of an element, by its type."""


@dataclass(frozen=True)
class Tensor:
    """A tensor in a file of the checkpoint."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int
    """Of its first byte in the file."""
    size: int
    """In bytes."""


def index_of(checkpoint: Path) -> dict[str, str]:
    """The file that each tensor is in, by the tensor's name. Raises Trouble."""
    path = checkpoint / INDEX
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    where = found.get("weight_map") if isinstance(found, dict) else None
    if not isinstance(where, dict) or not all(isinstance(each, str) and "/" not in each for each in where.values()):
        raise Trouble(f"{path}: weight_map is no table of names of files")
    return where


def tensors_of(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, by name. Raises Trouble, naming what is wrong with the header."""
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_LIMIT:
                raise Trouble(f"{path}: is no safetensors file, its header would have {length} bytes")
            text = file.read(length)
            size = file.seek(0, 2)
        found = json.loads(text)
    except (OSError, ValueError) as error:
        raise Trouble(f"{path}: the header cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise Trouble(f"{path}: the header is no JSON object")
    start = 8 + length
    return {name: _tensor(name, path, each, start, size) for name, each in found.items() if name != "__metadata__"}


def find(checkpoint: Path, name: str, where: Mapping[str, str] | None = None) -> Tensor:
    """Raises Trouble if index and file do not have it."""
    where = index_of(checkpoint) if where is None else where
    if name not in where:
        raise Trouble(f"{checkpoint / INDEX}: has no tensor {name}")
    tensors = tensors_of(checkpoint / where[name])
    if name not in tensors:
        raise Trouble(f"{checkpoint / where[name]}: does not hold {name}, though {INDEX} says so")
    return tensors[name]


def _tensor(name: str, path: Path, found: Any, start: int, size: int) -> Tensor:
    try:
        dtype, shape = str(found["dtype"]), tuple(int(each) for each in found["shape"])
        begin, end = (int(each) for each in found["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise Trouble(f"{path}: {name}: type, shape and place cannot be read from {found!r}") from error
    if not 0 <= begin <= end <= size - start:
        raise Trouble(f"{path}: {name}: bytes {begin} to {end} of {size - start}; the file was cut, verify it")
    width = WIDTH.get(dtype)
    if width is not None and math.prod(shape) * width != end - begin:
        raise Trouble(f"{path}: {name}: {dtype} of shape {list(shape)} in {end - begin} bytes")
    return Tensor(name, path, dtype, shape, start + begin, end - begin)
