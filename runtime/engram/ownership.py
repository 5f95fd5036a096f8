"""Which rows of an Engram table a rank holds: by the rule of SGLang 0.5.23, whose lookup adds up what the ranks have.

A table is made of one subtable per order of n-gram and head, with a prime number of rows each: the next prime that is
not taken, from `engram_vocab_size` on, in the order of layers, orders and heads. Where the subtables can be divided by
the number of ranks, a rank holds whole ones; where not, the rows are divided.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.trouble import Trouble

WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Bases of the Miller-Rabin test that decide for every number below 3.3e24 (Sorenson and Webster, 2015)."""


@dataclass(frozen=True)
class Tables:
    """The Engram tables of a checkpoint, one per layer in `layers`."""

    layers: tuple[int, ...]
    rows: tuple[int, ...]
    bounds: tuple[tuple[int, ...], ...]
    """For each table the first row of each subtable, and the end of the last."""
    dim: int

    def owned(self, layer: int, rank: int, world: int) -> range:
        """The rows that a rank holds."""
        return shard_range(self.bounds[self.layers.index(layer)], rank, world)


def tables_of(checkpoint: Path) -> Tables:
    """What config.json says of the tables. Raises Trouble if there are none, or the numbers contradict each other."""
    path = checkpoint / "config.json"
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise Trouble(f"{path}: cannot be read: {error}") from error
    text = found.get("text_config", found) if isinstance(found, dict) else {}
    layers, rows = _numbers(text, "engram_layer_ids", path), _numbers(text, "engram_num_embeddings", path)
    if not layers:
        raise Trouble(f"{path}: engram_layer_ids is empty, so that there is nothing to pack")
    vocabulary, heads, orders, dim = (
        _number(text, f"engram_{name}", path) for name in ("vocab_size", "n_heads", "max_ngram_size", "head_dim")
    )
    bounds = column_bounds(vocabulary, orders - 1, heads, len(layers))
    expected = tuple(each[-1] for each in bounds)
    if rows != expected:
        raise Trouble(
            f"{path}: engram_num_embeddings is {list(rows)}, and vocabulary, heads and orders mean {expected}"
        )
    return Tables(layers, rows, tuple(bounds), dim)


def column_bounds(vocabulary: int, orders: int, heads: int, tables: int) -> list[tuple[int, ...]]:
    """For each table where its subtables begin, and the end of the last, in rows."""
    taken: set[int] = set()
    result = []
    for _ in range(tables):
        bounds = [0]
        for _ in range(orders):
            # Each order begins anew, and skips what an earlier one has.
            candidate = vocabulary - 1
            for _ in range(heads):
                candidate += 1
                while candidate in taken or not is_prime(candidate):
                    candidate += 1
                taken.add(candidate)
                bounds.append(bounds[-1] + candidate)
        result.append(tuple(bounds))
    return result


def shard_range(bounds: tuple[int, ...], rank: int, world: int) -> range:
    """The rows of a table that one of `world` ranks holds."""
    if not 0 <= rank < world:
        raise ValueError(f"rank {rank} of {world}")
    columns, rest = divmod(len(bounds) - 1, world)
    if rest == 0:
        return range(bounds[rank * columns], bounds[(rank + 1) * columns])
    rows = bounds[-1]
    return range(rows * rank // world, rows * (rank + 1) // world)


def is_prime(number: int) -> bool:
    """Miller and Rabin's test, certain for the numbers that occur."""
    if number < 2:
        return False
    for prime in WITNESSES:
        if number % prime == 0:
            return number == prime
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for witness in WITNESSES:
        power = pow(witness, odd, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


def _number(found: Mapping[str, Any], key: str, path: Path) -> int:
    value = found.get(key)
    if type(value) is not int or value < 1:
        raise Trouble(f"{path}: {key} is {value!r}, expected a number above 0")
    return value


def _numbers(found: Mapping[str, Any], key: str, path: Path) -> tuple[int, ...]:
    value = found.get(key, [])
    if not isinstance(value, list) or any(type(each) is not int or each < 0 for each in value):
        raise Trouble(f"{path}: {key} is {value!r}, expected a list of numbers")
    return tuple(value)
