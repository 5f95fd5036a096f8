"""What both applications answer with."""

from __future__ import annotations

import json as text
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from sparkd import wire
from sparkd.reconcile.refusal import Refusal

F = TypeVar("F", bound=Callable[..., Any])
EPOCHS = 10**15
"""Above every epoch; JavaScript and jq count exactly up to here."""


def answers(kind: Any, trial: Any = None) -> Callable[[F], F]:
    """Notes the types of sparkd.wire that an endpoint answers with, for the OpenAPI document; `trial` in place of a
    change.

    Not as FastAPI's response_model: it makes models of pydantic's of each type, and keeps 5 MiB of them in memory that
    is the GPU's as well, for a check of what sparkd.wire has made itself.
    """

    def noted(endpoint: F) -> F:
        endpoint.answers = {None: kind} | ({200: trial} if trial else {})  # type: ignore[attr-defined]
        return endpoint

    return noted


def only_known(request: Request) -> None:
    """Refuses a change with a parameter that it does not have: whoever writes `dryrun=true` does not want the change.

    Raises Refusal.
    """
    names = sorted(each.alias for each in request.scope["route"].dependant.query_params)
    for name in request.query_params:
        if name not in names:
            there = f"; there are {', '.join(names)}" if names else ""
            shown = name[:40].encode("unicode_escape").decode()
            raise Refusal("bad-request", f"query.{shown}: this change has no such parameter{there}")


def json(value: Any, status: int = 200) -> Response:
    """A dataclass of sparkd.wire as compact JSON."""
    return Response(wire.dumps(value), status, media_type="application/json")


class Encoded:
    """JSON with an entity tag: the same as long as nothing of it has changed but ages, which always do."""

    def __init__(self, value: Any) -> None:
        data = wire.encode(value)
        self.body = _dumps(data)
        self.tag = f'W/"{sha256(_dumps(_ageless(data))).hexdigest()[:24]}"'

    def answer(self, request: Request) -> Response:
        """304 without a body if the caller has it already (RFC 9110, weak comparison)."""
        headers = {"ETag": self.tag, "Cache-Control": "no-cache"}
        known = [tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")]
        if self.tag.removeprefix("W/") in known or "*" in known:
            return Response(status_code=304, headers=headers)
        return Response(self.body, headers=headers, media_type="application/json")


class Kept:
    """The last value that was encoded."""

    def __init__(self) -> None:
        self._last: tuple[Any, Encoded] | None = None

    def encoded(self, value: Any) -> Encoded:
        if self._last is None or self._last[0] is not value:
            self._last = value, Encoded(value)
        return self._last[1]


def _dumps(data: Any) -> bytes:
    return text.dumps(data, separators=(",", ":"), ensure_ascii=False).encode()


def _ageless(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _ageless(value) for key, value in data.items() if key != "age"}
    return [_ageless(value) for value in data] if isinstance(data, list) else data
