"""What peers ask of each other, as an OpenAPI document: for trying it, since nobody else is meant to use it."""

from __future__ import annotations

from typing import Any, get_args

from sparkd import wire
from sparkd.api.problems import ANYWHERE, MEDIA_TYPE, STATUS, codes
from sparkd.api.schema import Schemas
from sparkd.core import hardware
from sparkd.core.intent import Request
from sparkd.core.model import Report

_JSON = "application/json"


def document() -> dict[str, Any]:
    # A field with a default may be missing: it comes from a neighbouring version.
    schemas = Schemas(required=False, names={hardware.RailFact: "HardwareRail"})

    def operation(name: str, answers: dict[int, Any], body: type | None = None, **more: Any) -> dict[str, Any]:
        told = {
            str(status): {"description": "as asked", "content": {_JSON: {"schema": schemas.of(kind)}}}
            for status, kind in answers.items()
        }
        for status in (*ANYWHERE, 409, 422, 507):
            told[str(status)] = {"description": "refused", "content": {MEDIA_TYPE: {"schema": _problem(status)}}}
        asked = {"requestBody": {"required": True, "content": {_JSON: {"schema": schemas.of(body)}}}} if body else {}
        return {"operationId": name, "responses": told, **asked, **more}

    epoch = {
        "name": "epoch",
        "in": "query",
        "required": True,
        "schema": {"type": "integer", "minimum": 0, "maximum": 9},
    }
    paths = {
        "/peer/v1/report": {
            "get": operation("report", {200: Report}),
            "post": operation("exchange", {200: Report}, Report),
        },
        # An examination is answered with a report, a trial with what would come of it.
        "/peer/v1/intent": {"post": operation("intent", {202: wire.Operation, 200: Any}, wire.PeerRequest)},
        "/peer/v1/incidents": {"get": operation("incidents", {200: wire.NodeIncidents})},
        "/peer/v1/incident": {"get": operation("incident", {200: wire.NodeIncident}, parameters=[epoch])},
    }
    schemas.found["PeerRequest"]["properties"]["request"]["enum"] = [*get_args(Request), "examine"]
    return {
        "openapi": "3.1.0",
        "info": {"title": "peers", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas.found},
    }


def _problem(status: int) -> dict[str, Any]:
    known = codes(status) if status in STATUS.values() else []
    return {
        "type": "object",
        "required": ["type", "title", "status", "code", "detail"],
        "properties": {"status": {"enum": [status]}, "code": {"enum": known}},
    }
