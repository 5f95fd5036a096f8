"""Frozen dataclasses to JSON-able values and back: what daemons tell each other, and what the state files hold.

Nothing is guessed: a number in a string, a truth value as a number or 1.5 as an integer is a WireError. (pydantic 1
reads all of these silently and pydantic 2 some of them, so that two hosts would read one message differently.)
A field this version does not know is ignored and one with a default may be missing: neighbouring versions can talk.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_LARGEST = sys.float_info.max


class WireError(ValueError):
    """The data is not a value of the wanted type. The message names the field, e.g. `deaths[0].rank`."""


def encode(value: Any) -> Any:
    """A dataclass, or a sequence or mapping of them, as dicts, lists and plain values."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


def decode(cls: type[T], data: Any) -> T:
    """The value of type `cls` that `encode` made `data` from. Raises WireError."""
    try:
        value: T = _decode(cls, data, "")
    except RecursionError:
        raise WireError("nested too deeply") from None
    return value


def _decode(kind: Any, data: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return data
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, data, where)
    if origin is typing.Literal:
        if data not in typing.get_args(kind) or isinstance(data, bool):
            raise WireError(_wrong(where, "one of " + ", ".join(map(str, typing.get_args(kind))), data))
        return data
    if origin in {typing.Union, types.UnionType}:
        return _decode_optional(kind, data, where)
    if origin is tuple:
        return _decode_tuple(kind, data, where)
    if origin is dict:
        key_kind, item_kind = typing.get_args(kind)
        if not isinstance(data, Mapping):
            raise WireError(_wrong(where, "an object", data))
        return {
            _decode(key_kind, key, where): _decode(item_kind, item, f"{where}.{key}" if where else str(key))
            for key, item in data.items()
        }
    return _decode_plain(kind, data, where)


def _decode_plain(kind: Any, data: Any, where: str) -> Any:
    if kind is float and isinstance(data, (int, float)) and not isinstance(data, bool):
        # A number of 400 digits is an int that no float holds.
        if not -_LARGEST < data < _LARGEST:
            raise WireError(_wrong(where, "a finite number", data))
        return float(data)
    names = {bool: "true or false", int: "an integer", float: "a number", str: "a string", types.NoneType: "null"}
    if kind not in names:
        raise TypeError(f"{where or 'value'}: {kind!r} has no form on the wire")
    if type(data) is not kind:
        raise WireError(_wrong(where, names[kind], data))
    return data


def _decode_optional(kind: Any, data: Any, where: str) -> Any:
    members = [member for member in typing.get_args(kind) if member is not types.NoneType]
    if len(members) != 1:
        raise TypeError(f"{where or 'value'}: only a union with None has one reading on the wire")
    return None if data is None else _decode(members[0], data, where)


def _decode_tuple(kind: Any, data: Any, where: str) -> tuple[Any, ...]:
    item_kind, *rest = typing.get_args(kind)
    if rest != [...]:
        raise TypeError(f"{where or 'value'}: only tuples of one type have a form on the wire")
    if not isinstance(data, (list, tuple)):
        raise WireError(_wrong(where, "a list", data))
    return tuple(_decode(item_kind, item, f"{where}[{index}]") for index, item in enumerate(data))


def _decode_dataclass(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, Mapping):
        raise WireError(_wrong(where, "an object", data))
    values: dict[str, Any] = {}
    for name, (field_kind, required) in _fields(kind).items():
        place = f"{where}.{name}" if where else name
        if name in data:
            values[name] = _decode(field_kind, data[name], place)
        elif required:
            raise WireError(f"{place}: missing")
    return kind(**values)


@functools.cache
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    hints = typing.get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    }


def _wrong(where: str, expected: str, data: Any) -> str:
    shown = repr(data)
    return f"{where or 'value'}: expected {expected}, got {shown if len(shown) <= 60 else shown[:57] + '...'}"
