"""Frozen dataclasses to JSON-able values and back: what daemons tell each other, and what the state files hold.

Nothing is guessed: a number in a string, a truth value as a number or 1.5 as an integer is a WireError. (pydantic 1
reads all of these silently and pydantic 2 some of them, so that two hosts would read one message differently.)
What a type looks like is worked out once: a ring that starts or dies is a dozen messages on each host, in a moment.
A field this version does not know is ignored and one with a default may be missing: neighbouring versions can talk.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")
_LARGEST = sys.float_info.max
_PLAIN = frozenset({str, int, float, bool, types.NoneType})
_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a string", types.NoneType: "null"}
_Decoder = Callable[[Any], Any]


class WireError(ValueError):
    """The data is not a value of the wanted type. The message names the field, e.g. `deaths[0].rank`."""


class _Misfit(Exception):
    """A WireError that is still finding out where it is: each level it passes puts its own name in front."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.where = ""

    @classmethod
    def of(cls, expected: str, data: Any) -> _Misfit:
        shown = repr(data)
        return cls(f"expected {expected}, got {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def below(self, name: str) -> _Misfit:
        self.where = f"{name}{'.' if self.where and not self.where.startswith('[') else ''}{self.where}"
        return self


def encode(value: Any) -> Any:
    """A dataclass, or a sequence or mapping of them, as dicts, lists and plain values."""
    kind: Any = type(value)
    if kind in _PLAIN:
        return value
    if (names := _field_names(kind)) is not None:
        return {name: encode(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [encode(item) for item in value]
    return value


@functools.cache
def _field_names(kind: type) -> tuple[str, ...] | None:
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def decode(cls: type[T], data: Any) -> T:
    """The value of type `cls` that `encode` made `data` from. Raises WireError."""
    kind: Any = cls
    try:
        value: T = _decoder(kind)(data)
    except _Misfit as misfit:
        raise WireError(f"{misfit.where or 'value'}: {misfit.problem}") from None
    except RecursionError:
        raise WireError("nested too deeply") from None
    return value


@functools.cache
def _decoder(kind: Any) -> _Decoder:
    """Raises TypeError for a type that has no form on the wire."""
    origin = typing.get_origin(kind)
    if kind is Any or kind is object:
        return lambda data: data
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if origin is typing.Literal:
        return _literal(typing.get_args(kind))
    if origin in {typing.Union, types.UnionType}:
        return _optional(kind)
    if origin is tuple:
        return _tuple(kind)
    if origin is dict:
        return _dict(*typing.get_args(kind))
    if kind not in _NAMES:
        raise TypeError(f"{kind!r} has no form on the wire")
    return _float if kind is float else _plain(kind)


def _plain(kind: type) -> _Decoder:
    def decode(data: Any) -> Any:
        if type(data) is not kind:
            raise _Misfit.of(_NAMES[kind], data)
        return data

    return decode


def _float(data: Any) -> Any:
    if not isinstance(data, (int, float)) or isinstance(data, bool):
        raise _Misfit.of(_NAMES[float], data)
    # A number of 400 digits is an int that no float holds.
    if not -_LARGEST < data < _LARGEST:
        raise _Misfit.of("a finite number", data)
    return float(data)


def _literal(values: tuple[Any, ...]) -> _Decoder:
    expected = "one of " + ", ".join(map(str, values))

    def decode(data: Any) -> Any:
        if data not in values or isinstance(data, bool):
            raise _Misfit.of(expected, data)
        return data

    return decode


def _optional(kind: Any) -> _Decoder:
    members = [member for member in typing.get_args(kind) if member is not types.NoneType]
    if len(members) != 1:
        raise TypeError(f"{kind!r}: only a union with None has one reading on the wire")
    member = _decoder(members[0])
    return lambda data: None if data is None else member(data)


def _tuple(kind: Any) -> _Decoder:
    item_kind, *rest = typing.get_args(kind)
    if rest != [...]:
        raise TypeError(f"{kind!r}: only tuples of one type have a form on the wire")
    item = _decoder(item_kind)

    def decode(data: Any) -> Any:
        if not isinstance(data, (list, tuple)):
            raise _Misfit.of("a list", data)
        values: list[Any] = []
        try:
            for one in data:
                values.append(item(one))  # noqa: PERF401 - how many there are says which one does not fit
        except _Misfit as misfit:
            raise misfit.below(f"[{len(values)}]") from None
        return tuple(values)

    return decode


def _dict(key_kind: Any, item_kind: Any) -> _Decoder:
    key_decoder, item_decoder = _decoder(key_kind), _decoder(item_kind)

    def decode(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _Misfit.of("an object", data)
        values: dict[Any, Any] = {}
        for key, item in data.items():
            name = key_decoder(key)
            try:
                values[name] = item_decoder(item)
            except _Misfit as misfit:
                raise misfit.below(str(key)) from None
        return values

    return decode


def _dataclass(kind: Any) -> _Decoder:
    hints = typing.get_type_hints(kind)
    fields = [
        (
            field.name,
            _decoder(hints[field.name]),
            field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING,
        )
        for field in dataclasses.fields(kind)
    ]

    def decode(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _Misfit.of("an object", data)
        values: dict[str, Any] = {}
        for name, decoder, required in fields:
            if name in data:
                try:
                    values[name] = decoder(data[name])
                except _Misfit as misfit:
                    raise misfit.below(name) from None
            elif required:
                raise _Misfit("missing").below(name)
        return kind(**values)

    return decode
