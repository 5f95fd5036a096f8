"""`[adapters]`: what sparkd adds to SGLang in a rank, off unless it is named here.

An entry is true or false, or a table of the adapter's options, each a value or `{value, why, source}`. A table turns
its adapter on unless it has `value = false`; `why` and `source` in it are of the gate.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ring_mesh.cluster import shown, unknown_keys
from sparkd.config.resolved import Resolved, finite

VARIABLE = "SPARKD_ADAPTERS"
# Names and options of adapter/, which runs in the engine's own world and is not imported here; a test compares them.
# What an option may be is said by the adapter itself, in the rank.
ADAPTERS: Mapping[str, tuple[str, ...]] = {
    "tp3_pad": ("padding",),
    "engram_rows": ("directory", "source", "reader", "depth", "timeout_seconds"),
    "engram_prefetch": ("mode",),
    "mxfp8_b12x": (),
    "prefill_empty_cache": ("tokens",),
    "serving_guards": ("abort_loops", "enable_thinking", "effort_tiers"),
    "draft_head_fp8": ("rows",),
    "wo_a_w8": ("mode",),
    "verify_cap": ("live",),
    "draft_tau": ("tau",),
    "folded_result_fence": (),
    "autotune_keep": (),
}
_GATE = ("value", "why", "source")


def unknown(name: str) -> str:
    """What is expected instead of an adapter of that name; "" if there is one."""
    return next((problem.expected for problem in unknown_keys("", {name: 0}, tuple(ADAPTERS))), "")


def unfolded(name: str, entry: object) -> Iterator[tuple[str, object]]:
    """The settings that an entry stands for: the gate NAME, and NAME.OPTION for each option."""
    if not isinstance(entry, dict):
        yield name, entry
        return
    yield name, {"value": True} | {key: value for key, value in entry.items() if key in _GATE}
    for key, value in entry.items():
        if key not in _GATE:
            yield f"{name}.{key}", value


def unknown_setting(setting: str) -> str:
    """As unknown, for NAME or NAME.OPTION."""
    name, dot, option = setting.partition(".")
    complaint = unknown(name)
    if complaint or not dot:
        return complaint
    return next((p.expected for p in unknown_keys("", {option: 0}, (*ADAPTERS[name], *_GATE))), "")


def fault(setting: str, value: object) -> tuple[str, str] | None:
    """(found, expected) of a value that cannot be; None for one that can."""
    if "." not in setting:
        return None if isinstance(value, bool) else (shown(value), "true, false, or a table of options")
    if isinstance(value, bool) or finite(value) or (isinstance(value, str) and value and value.isprintable()):
        return None
    return shown(value), "true, false, a number or text of one line"


def environment(resolved: Resolved) -> dict[str, str]:
    """SPARKD_ADAPTERS, JSON in printable ASCII without single quotes; nothing if every adapter is off."""
    found = resolved.adapters
    if not found:
        return {}
    return {VARIABLE: json.dumps(found, sort_keys=True, separators=(",", ":")).replace("'", "\\u0027")}
