"""The adapters that there are. Each is imported only when it is wanted, or listed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import NamedTuple

from adapter.declare import Adapter, AdapterError, Options

NAMES = (
    "tp3_pad",
    "engram_rows",
    "engram_prefetch",
    "mxfp8_b12x",
    "prefill_empty_cache",
    "serving_guards",
    "draft_head_fp8",
    "wo_a_w8",
    "verify_cap",
    "draft_tau",
    "folded_result_fence",
    "autotune_keep",
)
"""In the order in which they are installed."""


class Loaded(NamedTuple):
    adapter: Adapter
    install: Callable[[Options], None]


def load(name: str) -> Loaded:
    """Raises AdapterError for a name that is none."""
    if name not in NAMES:
        raise AdapterError(f"adapters.{name}: there is no such adapter; there are {', '.join(NAMES)}")
    module = importlib.import_module(f"adapter.{name}")
    return Loaded(module.ADAPTER, module.install)


def path_of(name: str) -> str:
    """What of the adapter runs on this machine, where that depends on it; "" where it does not."""
    find = getattr(importlib.import_module(f"adapter.{name}"), "path", None)
    return str(find()) if find is not None else ""
