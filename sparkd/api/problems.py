"""Refusals as application/problem+json (RFC 9457): a stable code, one sentence, at most one hint, the findings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sparkd import wire
from sparkd.core.model import Finding
from sparkd.reconcile.loop import Refusal

MEDIA_TYPE = "application/problem+json"

_STATUS = {
    "start-refused": 409,
    "held": 409,
    "maintenance": 409,
    "not-conductor": 409,
    "fabric-in-use": 409,
    "conductor-unreachable": 503,
    "not-saved": 507,
    "starting": 503,
    "token-missing": 401,
    "token-wrong": 401,
    "token-not-set": 403,
    "not-yours": 403,
    "body-too-large": 413,
    "bad-request": 422,
    "no-such-operation": 404,
    "no-such-incident": 404,
}
_HINT = {
    "start-refused": "put right what the findings name, then start again",
    "held": "sparkctl clear",
    "maintenance": "sparkctl resume",
    "fabric-in-use": "sparkctl down --wait",
    "conductor-unreachable": "look at sparkd on the conductor: systemctl status sparkd",
    "token-missing": "send Authorization: Bearer with the token of /etc/sparkd/token",
    "token-wrong": "the token is in /etc/sparkd/token",
    "token-not-set": "put a token into /etc/sparkd/token and restart sparkd, or use the Unix socket",
}

_DESCRIPTION = {
    401: "No token, or a wrong one (TCP only)",
    403: "No token is set on this machine (TCP only)",
    404: "There is no such thing",
    409: "Refused, with the findings that say why",
    413: "The body is too large",
    422: "A parameter is not what it should be",
    503: "The conductor cannot be asked, or sparkd has only just started",
    507: "The request could not be saved, so nothing has changed",
}
_SCHEMA = {
    "title": "Problem",
    "type": "object",
    "required": ["type", "title", "status", "code", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "code": {"type": "string", "description": "A stable word"},
        "detail": {"type": "string", "description": "One sentence"},
        "hint": {"type": "string"},
        "findings": {"type": "array", "items": {"type": "object"}},
    },
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """A route's problems, for OpenAPI. One that takes parameters needs 422, or gets FastAPI's own, of another shape."""
    content = {MEDIA_TYPE: {"schema": _SCHEMA}}
    return {status: {"description": _DESCRIPTION[status], "content": content} for status in statuses}


def problem(code: str, sentence: str, findings: Sequence[Finding] = (), status: int | None = None) -> Response:
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": code.replace("-", " ").capitalize(),
        "status": status or _STATUS.get(code, 500),
        "code": code,
        "detail": sentence,
    }
    if code in _HINT:
        body["hint"] = _HINT[code]
    if findings:
        body["findings"] = [wire.encode(finding) for finding in findings]
    return JSONResponse(body, body["status"], media_type=MEDIA_TYPE)


async def on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problem(error.code, error.sentence, error.findings)


async def on_http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not-found", 405: "method-not-allowed"}.get(error.status_code, "bad-request")
    response = problem(code, str(error.detail), status=error.status_code)
    response.headers.update(error.headers or {})
    return response


async def on_invalid(_: Request, error: Exception) -> Response:
    """FastAPI's own shape of a validation error differs between pydantic 1 and 2; this one does not."""
    errors: Sequence[dict[str, Any]] = getattr(error, "errors", tuple)()
    first = errors[0] if errors else {"loc": ("request",), "msg": str(error)}
    return problem("bad-request", f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")
