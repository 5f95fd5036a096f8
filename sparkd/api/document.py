"""The OpenAPI document: paths and parameters as FastAPI knows them, everything else from the types of sparkd.wire.

It is the same with every version of FastAPI and pydantic that the daemon runs on, and clients rely on it:
tests/api/openapi.json has it, and a test fails on a change that breaks one.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.responses import HTMLResponse, PlainTextResponse

from sparkd.api.problems import ANYWHERE, MEDIA_TYPE, STATUS, TYPE, codes, described
from sparkd.api.schema import REFERENCE, Schemas
from sparkd.core import hardware
from sparkd.core.model import Finding

_PARAMETER = ("type", "enum", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "maxLength", "minLength")
_MEDIA: dict[type, str] = {HTMLResponse: "text/html", PlainTextResponse: "text/plain"}
_PEERS = {
    "description": "Of each peer how many seconds ago it last answered this node; without age: not since its start",
    "schema": {"type": "string", "examples": ["spark2;age=0.4, spark3"]},
}
_RESPONSE = "#/components/responses/Problem"
_TEXT = """Status and control of a ring of DGX Sparks, answered by every node.

On the Unix socket root and members of the group sparkd change things, and everybody looks. On 127.0.0.1 looking is open
and a change takes a token; on an address of `[api] listen` everything does. Fields and codes may be added to; none is
taken away, nor changes its type. Whoever does not know a code goes by the HTTP status."""


def document(app: FastAPI) -> dict[str, Any]:
    schemas = Schemas(names={hardware.RailFact: "HardwareRail"})
    known = get_openapi(title=app.title, version=app.version, routes=app.routes)["paths"]
    paths: dict[str, Any] = {}
    for route in routes(app):
        for method in sorted(route.methods or ()):
            told = known[route.path_format][method.lower()]
            operation = {
                "operationId": route.name,
                "summary": told["summary"],
                "description": route.description,
                "parameters": [_parameter(each) for each in told.get("parameters", ())],
                "responses": _responses(route, schemas),
                "security": [{"token": []}] if method == "POST" else [{}, {"token": []}],
            }
            paths.setdefault(route.path_format, {})[method.lower()] = {k: v for k, v in operation.items() if v}
    return {
        "openapi": "3.1.0",
        "info": {"title": app.title, "version": app.version, "description": _TEXT},
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": dict(sorted((schemas.found | _problems(schemas)).items())),
            "responses": {
                f"Problem{status}": {
                    "description": described(status),
                    "headers": {"Sparkd-Peers": _PEERS},
                    "content": {MEDIA_TYPE: _problem(status)},
                }
                for status in sorted(set(STATUS.values()))
            },
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def routes(app: FastAPI) -> list[APIRoute]:
    """Those that are for clients, whatever the versions have put them into."""

    def within(each: Any) -> list[APIRoute]:
        if isinstance(each, APIRoute):
            return [each] if each.include_in_schema else []
        inner = getattr(getattr(each, "original_router", None), "routes", ())
        return [route for one in inner for route in within(one)]

    return [route for each in app.routes for route in within(each)]


def _parameter(told: dict[str, Any]) -> dict[str, Any]:
    schema = dict(told["schema"])
    # Only pydantic 2 says that what may be left out may be null; a query has no null.
    for option in schema.pop("anyOf", ()):
        if option.get("type") != "null":
            schema |= option
    limits = {key: _whole(schema[key]) for key in _PARAMETER if key in schema}
    if schema.get("default") is not None:
        limits["default"] = _whole(schema["default"])
    text = told.get("description")
    return {
        "name": told["name"],
        "in": told["in"],
        "required": told.get("required", False),
        **({"description": text} if text else {}),
        "schema": limits,
    }


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _responses(route: APIRoute, schemas: Schemas) -> dict[str, Any]:
    kind = getattr(route.response_class, "value", route.response_class)
    media = _MEDIA.get(kind, "application/json") if isinstance(kind, type) else "application/json"
    types: dict[int | None, Any] = getattr(route.endpoint, "answers", {})
    schema = schemas.of(types[None]) if types else {}
    good = {"description": "As asked", "content": {media: {"schema": schema if media != "text/plain" else _string()}}}
    found: dict[int, dict[str, Any]] = {route.status_code or 200: good}
    for status in sorted({*map(int, route.responses), *ANYWHERE}):
        told = route.responses.get(status, route.responses.get(str(status), {}))
        content = {name: {"schema": _string()} for name in told.get("content", ()) if name != MEDIA_TYPE}
        if status in types:
            content["application/json"] = {"schema": schemas.of(types[status])}
        if status >= 400 and not content:
            found[status] = {"$ref": f"{_RESPONSE}{status}"}
            continue
        if status >= 400:
            content[MEDIA_TYPE] = _problem(status)
        before = found.setdefault(status, {"description": told.get("description") or described(status)})
        if content:
            before["content"] = before.get("content", {}) | content
    if route.path_format.startswith("/v1/"):
        for response in found.values():
            if "$ref" not in response:
                response["headers"] = {"Sparkd-Peers": _PEERS}
    return {str(status): found[status] for status in sorted(found)}


def _string() -> dict[str, Any]:
    return {"type": "string"}


def _problem(status: int) -> dict[str, Any]:
    return {"schema": {"$ref": f"{REFERENCE}Problem{status}"}}


def _problems(schemas: Schemas) -> dict[str, Any]:
    """One for each status, with the codes that it can have."""
    finding = schemas.of(Finding)
    found: dict[str, Any] = {"Finding": schemas.found["Finding"]}
    for status in sorted(set(STATUS.values())):
        found[f"Problem{status}"] = {
            "type": "object",
            "description": described(status),
            "required": ["type", "title", "status", "code", "detail"],
            "properties": {
                "type": {"type": "string", "enum": [TYPE + code for code in codes(status)]},
                "title": {"type": "string"},
                "status": {"type": "integer", "enum": [status]},
                "code": {"type": "string", "enum": codes(status), "description": "A stable word"},
                "detail": {"type": "string", "description": "One sentence"},
                "hint": {"type": "string", "description": "What to do about it"},
                "epoch": {"type": "integer", "description": "Of epoch-changed: the one in force"},
                "findings": {"type": "array", "items": finding},
            },
        }
    return found
