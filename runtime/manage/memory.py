"""`sparkd-engine plan`: whether a profile fits, with the numbers."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from runtime.budget.inputs import as_published, of_checkpoint, settings_of
from runtime.budget.plan import Budget, Settings, plan
from runtime.budget.published import GIB
from runtime.engram_format import BLOCK
from runtime.trouble import Trouble

PROFILE = "deepseek-v4.1-flash-tp3"
NODES = (2, 3, 4)
WRONG = 3


def add(commands: Any) -> None:
    text = "what each rank takes of a Spark's memory, and whether it fits"
    made = commands.add_parser("plan", help=text, description=text[0].upper() + text[1:] + ".")
    made.add_argument("--profile", default=PROFILE, metavar="NAME", help="or a file (%(default)s)")
    made.add_argument("--nodes", type=int, action="append", metavar="N", help="may be repeated (2, 3 and 4)")
    made.add_argument("--checkpoint", type=Path, metavar="DIR", help="instead of DeepSeek-V4.1-Flash as published")
    made.add_argument("--json", action="store_true", help="as JSON, in bytes")
    made.set_defaults(run=_plan)


def _plan(options: argparse.Namespace) -> int:
    settings = settings_of(options.profile)
    tensors, config = of_checkpoint(options.checkpoint) if options.checkpoint else as_published()
    if options.nodes and not all(1 <= each <= 64 for each in options.nodes):
        raise Trouble(f"--nodes {options.nodes}: expected 1 to 64")
    budgets = [plan(tensors, config, settings, world) for world in options.nodes or NODES]
    if options.json:
        print(json.dumps([_as_json(each) for each in budgets], indent=1))
    else:
        print(table(budgets, settings))
    # Of the numbers that nobody asked for by name, none has to fit.
    return WRONG if options.nodes and not all(each.fits for each in budgets) else 0


def table(budgets: list[Budget], settings: Settings) -> str:
    """For people, in GiB."""
    rows: list[tuple[str, list[float | None]]] = []
    kinds = sorted({kind for each in budgets for kind in each.weights})
    rows += [(f"weights: {kind}", [each.weights.get(kind, 0) for each in budgets]) for kind in kinds]
    rows += [
        (f"KV cache, {settings.tokens} tokens", [each.kv for each in budgets]),
        ("NCCL's buffers", [each.nccl for each in budgets]),
        ("rank 0: API and tokenizer", [each.head for each in budgets]),
        ("together", [each.total for each in budgets]),
        ("left of the memory", [each.left for each in budgets]),
        ("needed beside it", [each.uncounted for each in budgets]),
        ("packed Engram rows, on NVMe", [each.table_rows * _padding(each) for each in budgets]),
    ]
    lines = [
        f"{settings.profile}, GiB per rank".ljust(38) + "".join(f"{each.world} nodes".rjust(10) for each in budgets)
    ]
    for name, values in rows:
        lines.append(name.ljust(38) + "".join(f"{(value or 0) / GIB:10.1f}" for value in values))
    lines.append("fits".ljust(38) + "".join(("yes" if each.fits else "no").rjust(10) for each in budgets))
    lines += [f"{each.world} nodes: {fault}" for each in budgets for fault in each.faults]
    if not settings.rows_on_disk and any(each.table_rows for each in budgets):
        lines.append(
            "The rows count as packed and on NVMe. But adapters.engram_rows is off: until /etc/sparkd/engine.toml\n"
            "turns it on, each rank has them in memory besides."
        )
    return "\n".join(lines)


def _padding(budget: Budget) -> float:
    return BLOCK / (BLOCK // 264 * 264)


def _as_json(budget: Budget) -> dict[str, Any]:
    return {
        **vars(budget), "weights": dict(budget.weights), "resident": budget.resident, "total": budget.total,
        "left": budget.left, "fits": budget.fits,
    }  # fmt: skip
