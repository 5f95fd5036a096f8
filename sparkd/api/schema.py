"""JSON Schema (2020-12, as OpenAPI 3.1 has it) of the types of sparkd.wire.

pydantic could write it, but its two versions write it differently, and the first forgets what can be null.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
REFERENCE = "#/components/schemas/"


class Schemas:
    """Collects the schema of each dataclass that is asked for, and of those within, in `found`, by name.

    required: whether every field is always there, as in what is sent; in what is taken, one with a default may be
    missing. names: of types that are not called as they are in the code, where two have one name.
    """

    def __init__(self, *, required: bool = True, names: Mapping[type, str] = MappingProxyType({})) -> None:
        self.found: dict[str, Any] = {}
        self._required = required
        self._names = names
        self._types: dict[str, type] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Raises TypeError for a type that has no form on the wire, and for two of one name."""
        origin, inner = typing.get_origin(kind), typing.get_args(kind)
        if kind is Any or kind is object:
            return {}
        if dataclasses.is_dataclass(kind):
            return self._reference(typing.cast(type, kind))
        if origin is Literal:
            return {"type": _PLAIN[type(inner[0])], "enum": list(inner)}
        if origin in (typing.Union, types.UnionType):
            return self._union(inner)
        if origin is tuple:
            return {"type": "array", "items": self.of(inner[0])}
        if origin in (dict, Mapping):
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if kind not in _PLAIN:
            raise TypeError(f"{kind!r} has no form on the wire")
        return {"type": _PLAIN[kind]}

    def _union(self, members: tuple[Any, ...]) -> dict[str, Any]:
        options = [self.of(member) for member in members]
        if all(set(option) == {"type"} for option in options):
            return {"type": [option["type"] for option in options]}
        return {"anyOf": options}

    def _reference(self, kind: type) -> dict[str, Any]:
        name = self._names.get(kind, kind.__name__)
        if self._types.setdefault(name, kind) is not kind:
            raise TypeError(f"two types are called {name}: {kind} and {self._types[name]}")
        if name not in self.found:
            self.found[name] = {}  # or a type that contains itself would never end
            self.found[name] = self._schema(kind)
        return {"$ref": f"{REFERENCE}{name}"}

    def _schema(self, kind: Any) -> dict[str, Any]:
        hints = typing.get_type_hints(kind)
        fields = dataclasses.fields(kind)
        needed = [
            field.name
            for field in fields
            if self._required or (field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING)
        ]
        text = inspect.cleandoc(kind.__doc__ or "")
        return {
            "type": "object",
            # A dataclass without one has its signature there.
            **({} if text.startswith(f"{kind.__name__}(") else {"description": " ".join(text.split())}),
            "properties": {field.name: self.of(hints[field.name]) for field in fields},
            "required": needed,
        }
