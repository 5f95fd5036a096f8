"""The API's contract: a change that breaks a client fails, one that adds to it has to be recorded."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sparkd.api.problems import STATUS
from tests.api.contract import breaks, current, recorded, text

Document = dict[str, Any]
RING = "/v1/ring"
START = "/v1/ring/start"


@pytest.fixture(scope="module")
def now() -> Document:
    return current()


def test_nothing_breaks_a_client(now: Document) -> None:
    assert breaks(recorded(), now) == []


def test_what_is_new_is_recorded(now: Document) -> None:
    assert text(now) == text(recorded()), "make api records it: python -m tests.api.contract --record"


def test_every_code_is_in_the_document(now: Document) -> None:
    schemas = now["components"]["schemas"]
    told = {
        code for name in schemas if name.startswith("Problem") for code in schemas[name]["properties"]["code"]["enum"]
    }
    assert told == set(STATUS)


def schema(document: Document, name: str) -> Any:
    return document["components"]["schemas"][name]


def _without_path(d: Document) -> None:
    del d["paths"][RING]


def _without_method(d: Document) -> None:
    del d["paths"][START]["post"]


def _without_field(d: Document) -> None:
    del schema(d, "RingStatus")["properties"]["waits"]


def _optional_field(d: Document) -> None:
    schema(d, "RingStatus")["required"].remove("waits")


def _other_type(d: Document) -> None:
    schema(d, "RingStatus")["properties"]["epoch"]["type"] = "string"


def _nullable(d: Document) -> None:
    schema(d, "RingStatus")["properties"]["epoch"]["type"] = ["integer", "null"]


def _deep_down(d: Document) -> None:
    del schema(d, "Progress")["properties"]["total"]


def _without_code(d: Document) -> None:
    schema(d, "Problem409")["properties"]["code"]["enum"].remove("held")


def _without_status(d: Document) -> None:
    del d["paths"][START]["post"]["responses"]["409"]


def _without_form(d: Document) -> None:
    del d["paths"]["/v1/events"]["get"]["responses"]["200"]["content"]["text/event-stream"]


def _without_header(d: Document) -> None:
    del d["paths"][RING]["get"]["responses"]["200"]["headers"]["Sparkd-Peers"]


def _parameter(d: Document, path: str, method: str, name: str) -> Any:
    return next(each for each in d["paths"][path][method]["parameters"] if each["name"] == name)


def _without_parameter(d: Document) -> None:
    d["paths"][START]["post"]["parameters"] = []


def _needed_parameter(d: Document) -> None:
    _parameter(d, START, "post", "expect_epoch")["required"] = True


def _new_needed_parameter(d: Document) -> None:
    new = {"name": "colour", "in": "query", "required": True, "schema": {"type": "string"}}
    d["paths"][START]["post"]["parameters"].append(new)


def _narrower_parameter(d: Document) -> None:
    _parameter(d, "/v1/events", "get", "limit")["schema"]["maximum"] = 100


def _other_default(d: Document) -> None:
    _parameter(d, START, "post", "dry_run")["schema"]["default"] = True


def _behind_a_token(d: Document) -> None:
    d["paths"][RING]["get"]["security"] = [{"token": []}]


def _other_success(d: Document) -> None:
    responses = d["paths"][RING]["get"]["responses"]
    responses["201"] = responses.pop("200")


def _other_id(d: Document) -> None:
    d["paths"][RING]["get"]["operationId"] = "ring"


BREAKING = [value for name, value in sorted(globals().items()) if name.startswith("_") and name[1] not in "_p"]


@pytest.mark.parametrize("change", BREAKING, ids=lambda change: change.__name__)
def test_what_would_break_a_client_is_found(now: Document, change: Callable[[Document], None]) -> None:
    changed = copy.deepcopy(now)
    change(changed)
    assert len(breaks(now, changed)) >= 1


def test_what_is_added_breaks_nobody(now: Document) -> None:
    changed = copy.deepcopy(now)
    changed["paths"]["/v1/new"] = {"get": copy.deepcopy(now["paths"][RING]["get"])}
    schema(changed, "RingStatus")["properties"]["colour"] = {"type": "string"}
    schema(changed, "RingStatus")["required"].append("colour")
    schema(changed, "Problem409")["properties"]["code"]["enum"].append("tired")
    changed["paths"][RING]["get"]["responses"]["418"] = {"description": "teapot"}
    new = {"name": "colour", "in": "query", "required": False, "schema": {"type": "string"}}
    changed["paths"][START]["post"]["parameters"].append(new)
    _parameter(changed, "/v1/events", "get", "limit")["schema"]["maximum"] = 1000
    assert breaks(now, changed) == []
    assert text(changed) != text(now), "and yet it is to be recorded"
