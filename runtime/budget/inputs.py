"""What a plan is made from: a profile, and a checkpoint on disk or as published."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runtime.budget import published
from runtime.budget.division import WIDTH
from runtime.budget.plan import Settings
from runtime.budget.shapes import Shape, tensors
from runtime.engram.safetensors import index_of, tensors_of
from runtime.trouble import Trouble

PLACES = (Path("/etc/sparkd/profiles"), Path("/usr/share/sparkd/profiles"), Path(__file__).parents[2] / "profiles")
SITE = Path("/etc/sparkd/engine.toml")
DEFAULTS = {"max-total-tokens": 750000, "mem-fraction-static": 0.9, "ep-size": 1}


def settings_of(profile: str, site: Path | None = SITE) -> Settings:
    """Of a profile by name or file, with what the site overrides. Raises Trouble."""
    path = Path(profile)
    if "/" not in profile and path.suffix != ".toml":
        found = [place / f"{profile}.toml" for place in PLACES if (place / f"{profile}.toml").is_file()]
        if not found:
            raise Trouble(f"{profile}: no such profile in {' or '.join(map(str, PLACES))}", "`sparkctl profile list`")
        path = found[0]
    values = {**DEFAULTS, **_table(path, "arguments")}
    adapters = _table(path, "adapters")
    if site is not None and site.is_file():
        values |= _table(site, "arguments")
        adapters |= _table(site, "adapters")
    numbers: dict[str, float] = {}
    for key in DEFAULTS:
        value = values[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise Trouble(f"{path}: arguments.{key} is {value!r}, expected a number above 0")
        numbers[key] = value
    return Settings(
        path.stem, int(numbers["max-total-tokens"]), numbers["mem-fraction-static"], int(numbers["ep-size"]),
        rows_on_disk=adapters.get("engram_rows") is True,
    )  # fmt: skip


def as_published() -> tuple[list[Shape], Mapping[str, Any]]:
    return list(tensors(published.CONFIG, published.VISION)), published.CONFIG


def of_checkpoint(checkpoint: Path) -> tuple[list[Shape], Mapping[str, Any]]:
    """The tensors that index and shards have, and the numbers of config.json. Raises Trouble."""
    path = checkpoint / "config.json"
    try:
        found = json.loads(path.read_bytes())
        config: dict[str, Any] = found.get("text_config", found)
    except (OSError, ValueError, AttributeError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    needed = ("num_attention_heads", "o_groups", "vocab_size", "moe_intermediate_size")
    if lacking := [key for key in needed if type(config.get(key)) is not int]:
        raise Trouble(f"{path}: has no {', '.join(lacking)}", "only models of the DeepSeek-V4 kind can be planned")
    where = index_of(checkpoint)
    shapes: list[Shape] = []
    for shard in sorted(set(where.values())):
        for tensor in tensors_of(checkpoint / shard).values():
            if tensor.dtype not in WIDTH:
                raise Trouble(f"{tensor.path}: {tensor.name} is of type {tensor.dtype}, expected one of {list(WIDTH)}")
            shapes.append(Shape(tensor.name, tensor.dtype, tensor.shape))
    if missing := where.keys() - {shape.name for shape in shapes}:
        raise Trouble(f"{checkpoint}: the index has {len(missing)} tensors that are in no shard, as {min(missing)}")
    return shapes, config


def _table(path: Path, name: str) -> dict[str, Any]:
    """Values of a table, which are bare or tables with `value`; one without it turns on the adapter of its name."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    table = found.get(name, {})
    if not isinstance(table, dict):
        raise Trouble(f"{path}: {name} is no table")
    other = True if name == "adapters" else None
    return {key: value.get("value", other) if isinstance(value, dict) else value for key, value in table.items()}
