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
    "not-conductor": 409,
    "fabric-in-use": 409,
    "conductor-unreachable": 503,
    "not-saved": 507,
    "starting": 503,
    "token-missing": 401,
    "token-wrong": 401,
    "token-not-set": 403,
    "body-too-large": 413,
    "bad-request": 422,
    "no-such-operation": 404,
}
_HINT = {
    "start-refused": "put right what the findings name, then start again",
    "held": "sparkctl clear",
    "fabric-in-use": "sparkctl down --wait",
    "conductor-unreachable": "look at sparkd on the conductor: systemctl status sparkd",
    "token-missing": "send Authorization: Bearer with the token of /etc/sparkd/token",
    "token-wrong": "the token is in /etc/sparkd/token",
    "token-not-set": "put a token into /etc/sparkd/token and restart sparkd, or use the Unix socket",
}


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
