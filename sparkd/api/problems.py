"""Refusals as application/problem+json (RFC 9457): a stable code, one sentence, at most one hint, the findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from sparkd import wire
from sparkd.core.model import Finding
from sparkd.reconcile.refusal import Refusal

MEDIA_TYPE = "application/problem+json"
TYPE = "urn:sparkd:problem:"
"""What a problem's `type` begins with; the code follows."""

STATUS = {
    "bad-http": 400,
    "body-not-allowed": 400,
    "token-missing": 401,
    "token-wrong": 401,
    "token-expired": 401,
    "read-only": 403,
    "host-not-allowed": 403,
    "origin-not-allowed": 403,
    "not-yours": 403,
    "not-found": 404,
    "no-such-operation": 404,
    "no-such-incident": 404,
    "method-not-allowed": 405,
    "not-acceptable": 406,
    "too-slow": 408,
    "start-refused": 409,
    "held": 409,
    "maintenance": 409,
    "not-conductor": 409,
    "fabric-in-use": 409,
    "epoch-changed": 409,
    "overtaken": 409,
    "body-too-large": 413,
    "target-too-long": 414,
    "bad-request": 422,
    "too-many-changes": 429,
    "too-many-failures": 429,
    "too-many-followers": 429,
    "headers-too-large": 431,
    "internal-error": 500,
    "conductor-unreachable": 503,
    "starting": 503,
    "tokens-unreadable": 503,
    "not-saved": 507,
}
"""Every code that there is. Clients rely on them: a test keeps them from being taken away."""
_HINT = {
    "start-refused": "put right what the findings name, then start again",
    "held": "sparkctl clear",
    "maintenance": "sparkctl resume",
    "fabric-in-use": "sparkctl down --wait",
    "epoch-changed": "look at what has happened, and ask again with the epoch that is in force",
    "overtaken": "sparkctl up, if it is to start all the same",
    "conductor-unreachable": "look at sparkd on the conductor: systemctl status sparkd",
    "token-missing": "send Authorization: Bearer with a token of `sparkctl token create NAME --role operate`",
    "token-wrong": "sparkctl token list shows the tokens of this machine, sparkctl token create makes one",
    "token-expired": "sparkctl token create makes a new one",
    "host-not-allowed": "address the listener by its own name, such as 127.0.0.1 or localhost",
    "origin-not-allowed": "pages of other sites cannot use this API; open the one that sparkd itself serves",
    "body-not-allowed": "options belong in the query, such as ?reason=new+fan",
    "tokens-unreadable": "sparkd --check-config says what is wrong with the file",
    "internal-error": "journalctl -u sparkd has the details; please report it",
}

_DESCRIPTION = {
    304: "Nothing has changed since the ETag in If-None-Match",
    400: "The request is not HTTP as it should be, or has a body",
    401: "No token, or one that does not count (TCP only)",
    403: "The caller may not do this, or is a page of another site",
    404: "There is no such thing",
    405: "This resource has no such method",
    406: "The resource has no form that the caller accepts",
    408: "The request did not arrive in time",
    409: "Refused, with the findings that say why",
    413: "The body is too large",
    414: "Path and query are too long",
    422: "A parameter is not what it should be",
    429: "Too many changes, failed tokens or followers; Retry-After says when it can work",
    431: "The headers are too large",
    500: "A fault of sparkd's own",
    503: "The conductor cannot be asked, sparkd has only just started, or cannot read its tokens",
    507: "The request could not be saved, so nothing has changed",
}
ANYWHERE = (400, 401, 403, 404, 405, 406, 408, 413, 414, 429, 431, 500, 503)
"""What every resource may answer, whichever it is."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """A route's problems, for OpenAPI. One that takes parameters needs 422, or gets FastAPI's own, of another shape.

    What any resource may answer (ANYWHERE) is added by sparkd.api.document.
    """
    content: dict[str, Any] = {"content": {MEDIA_TYPE: {}}}
    return {s: {"description": _DESCRIPTION[s], **(content if s >= 400 else {})} for s in statuses}


def described(status: int) -> str:
    """What a status means, of any resource."""
    return _DESCRIPTION.get(status, "As asked")


def codes(status: int) -> list[str]:
    return sorted(code for code, its in STATUS.items() if its == status)


def problem(
    code: str,
    sentence: str,
    findings: Iterable[Finding] = (),
    status: int | None = None,
    *,
    epoch: int | None = None,
    retry_after: float | None = None,
) -> Response:
    """`epoch`: the one in force. `retry_after`: seconds."""
    body: dict[str, Any] = {
        "type": TYPE + code,
        "title": code.replace("-", " ").capitalize(),
        "status": status or STATUS.get(code, 500),
        "code": code,
        "detail": sentence,
    }
    if code in _HINT:
        body["hint"] = _HINT[code]
    if epoch is not None:
        body["epoch"] = epoch
    told = [wire.encode(finding) for finding in findings]
    if told:
        body["findings"] = told
    response = JSONResponse(body, body["status"], media_type=MEDIA_TYPE)
    if retry_after is not None:
        response.headers["Retry-After"] = str(max(1, round(retry_after + 0.5)))
    if body["status"] == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="sparkd"'
    return response


async def on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return problem(error.code, error.sentence, error.findings, epoch=error.epoch, retry_after=error.retry_after)


async def on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        methods = {method.strip() for method in (error.headers or {}).get("Allow", "").split(",")} - {""}
        methods |= {"HEAD"} if "GET" in methods else set()
        allow = {"Allow": ", ".join(sorted(methods | {"OPTIONS"}))}
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=allow)
        sentence = f"{request.scope['path']!r} has no {request.method[:20]}, only {allow['Allow']}"
        response = problem("method-not-allowed", sentence)
        response.headers.update(allow)
        return response
    if error.status_code == 404:
        return problem("not-found", f"there is nothing at {request.scope['path'][:200]!r}; /openapi.json lists all")
    response = problem("bad-request", str(error.detail), status=error.status_code)
    response.headers.update(error.headers or {})
    return response


async def on_invalid(_: Request, error: Exception) -> Response:
    """FastAPI's own shape of a validation error differs between pydantic 1 and 2; this one does not."""
    errors: Sequence[dict[str, Any]] = getattr(error, "errors", tuple)()
    first = errors[0] if errors else {"loc": ("request",), "msg": str(error)}
    return problem("bad-request", f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}")


async def on_fault(_: Request, error: Exception) -> Response:
    """An exception that nobody expected. It goes on to sparkd.api.guard, which tells the journal."""
    return problem("internal-error", f"sparkd failed at this: {type(error).__name__}")
