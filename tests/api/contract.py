"""The API's OpenAPI document as clients rely on it, and what of a change would break them.

python -m tests.api.contract            compare the recorded document with that of the code
python -m tests.api.contract --record   record what is new; refused if it would break a client (--breaking: not)
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sparkd.api.app import operator_app
from tests.reconcile.cluster import cluster

RECORDED = Path(__file__).with_name("openapi.json")
_NARROWS_FROM_BELOW = ("minimum", "exclusiveMinimum", "minLength")
_NARROWS_FROM_ABOVE = ("maximum", "exclusiveMaximum", "maxLength")


def current() -> dict[str, Any]:
    """Without the daemon's own version, which says nothing of the contract."""

    async def made() -> dict[str, Any]:
        async with cluster(boot=False) as ring:
            return operator_app(ring.conductor.build()).openapi()

    document: dict[str, Any] = json.loads(json.dumps(asyncio.run(made())))
    document["info"]["version"] = "1"
    return document


def recorded() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return document


def text(document: dict[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


class Comparison:
    """What of `new` breaks a client that was written for `old`."""

    def __init__(self, old: dict[str, Any], new: dict[str, Any]) -> None:
        self._old = old
        self._new = new
        self._seen: set[tuple[str, str]] = set()

    def breaks(self) -> list[str]:
        return sorted({f"{where}: {what}" for where, what in self._paths()})

    def _paths(self) -> Iterator[tuple[str, str]]:
        for path, methods in self._old["paths"].items():
            for method, old in methods.items():
                where = f"{method.upper()} {path}"
                new = self._new["paths"].get(path, {}).get(method)
                if new is None:
                    yield where, "is gone"
                    continue
                if {} in old["security"] and {} not in new["security"]:
                    yield where, "needs a token now"
                if old["operationId"] != new["operationId"]:
                    yield where, f"is called {new['operationId']} now, and generated clients go by that"
                yield from self._parameters(where, old.get("parameters", []), new.get("parameters", []))
                yield from self._responses(where, old["responses"], new["responses"])

    def _parameters(self, where: str, old: list[Any], new: list[Any]) -> Iterator[tuple[str, str]]:
        now = {(each["in"], each["name"]): each for each in new}
        before = {(each["in"], each["name"]): each for each in old}
        for key, each in before.items():
            place = f"{where}?{each['name']}"
            if key not in now:
                yield place, "is not taken any more"
                continue
            if now[key]["required"] and not each["required"]:
                yield place, "has to be given now"
            yield from self._taken(place, each["schema"], now[key]["schema"])
        for key, each in now.items():
            if key not in before and each["required"]:
                yield f"{where}?{each['name']}", "is new and has to be given"

    @staticmethod
    def _taken(place: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str]]:
        """A parameter may come to take more, and never less."""
        if old.get("type") != new.get("type") and (old.get("type"), new.get("type")) != ("integer", "number"):
            yield place, f"is of type {new.get('type')}, was {old.get('type')}"
        if old.get("default") != new.get("default"):
            yield place, f"has the default {new.get('default')}, had {old.get('default')}"
        if "enum" in new and not set(old.get("enum", [None])) <= set(new["enum"]):
            yield place, "takes fewer words"
        for key in _NARROWS_FROM_BELOW:
            if key in new and new[key] > old.get(key, float("-inf")):
                yield place, f"takes less: {key} {new[key]}"
        for key in _NARROWS_FROM_ABOVE:
            if key in new and new[key] < old.get(key, float("inf")):
                yield place, f"takes less: {key} {new[key]}"

    def _responses(self, where: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[tuple[str, str]]:
        for status, told in old.items():
            place = f"{where} {status}"
            if status not in new:
                yield place, "is not answered any more"
                continue
            before = self._resolved(self._old, told)
            now = self._resolved(self._new, new[status])
            for header in before.get("headers", {}):
                if header not in now.get("headers", {}):
                    yield place, f"has no header {header} any more"
            for media, content in before.get("content", {}).items():
                after = now.get("content", {}).get(media)
                if after is None:
                    yield place, f"has no {media} any more"
                else:
                    yield from self._given(f"{place}", content["schema"], after["schema"])
        first = min(status for status in old if status.startswith("2"))
        if first in new and min(status for status in new if status.startswith("2")) != first:
            yield where, "answers a success with another status"

    def _given(self, place: str, old: Any, new: Any) -> Iterator[tuple[str, str]]:
        """What is answered may get more fields, and codes that a client knows nothing of; nothing may go."""
        if "$ref" in old and "$ref" in new:
            names = old["$ref"].rpartition("/")[2], new["$ref"].rpartition("/")[2]
            if names in self._seen:
                return
            self._seen.add(names)
            place = names[0]
        old, new = self._resolved(self._old, old), self._resolved(self._new, new)
        if _kinds(old) and not _kinds(new) <= _kinds(old):
            yield place, f"may be {', '.join(sorted(_kinds(new)))}, was {', '.join(sorted(_kinds(old)))}"
            return
        for name, field in old.get("properties", {}).items():
            if name not in new.get("properties", {}):
                yield f"{place}.{name}", "is gone"
                continue
            if name in old.get("required", ()) and name not in new.get("required", ()):
                yield f"{place}.{name}", "may be missing now"
            yield from self._given(f"{place}.{name}", field, new["properties"][name])
        for lost in [word for word in old.get("enum", ()) if word not in new.get("enum", ())]:
            if "enum" in new:
                yield place, f"is never {lost} any more"
        for key in ("items", "additionalProperties"):
            if isinstance(old.get(key), dict):
                yield from self._given(f"{place}[]", old[key], new.get(key, {}))
        for one, other in zip(old.get("anyOf", ()), new.get("anyOf", ()), strict=False):
            yield from self._given(place, one, other)

    @staticmethod
    def _resolved(document: dict[str, Any], schema: Any) -> dict[str, Any]:
        if "$ref" in schema:
            _, _, kind, name = schema["$ref"].split("/")
            found: dict[str, Any] = document["components"][kind].get(name, {})
            return found
        result: dict[str, Any] = schema
        return result


def _kinds(schema: dict[str, Any]) -> set[str]:
    if "anyOf" in schema:
        return {kind for option in schema["anyOf"] for kind in _kinds(option) or {"object"}}
    kinds = schema.get("type", [])
    return {kinds} if isinstance(kinds, str) else set(kinds)


def breaks(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return Comparison(old, new).breaks()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="contract", description=__doc__)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--breaking", action="store_true")
    options = parser.parse_args(argv)
    new = current()
    found = breaks(recorded(), new) if RECORDED.exists() else []
    print("\n".join(found) or "nothing breaks a client")
    if not options.record:
        return 1 if found or text(new) != text(recorded()) else 0
    if found and not options.breaking:
        print(f"{RECORDED.name} stays as it is", file=sys.stderr)
        return 1
    RECORDED.write_text(text(new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
