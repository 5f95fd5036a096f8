"""What the fake daemon and the hand-written screens say is what the contract has: no more, no less."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sparkd import wire
from tests.cli.fakes import FINDING, FakeRing
from tests.cli.test_doctor import DOCTOR
from tests.cli.test_render import STARTING


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (wire.RingStatus, FakeRing(findings=[FINDING]).look()),
        (wire.RingStatus, FakeRing(released=True, ring_heard=False).look()),
        (wire.RingStatus, STARTING),
        (wire.HostStatus, FakeRing().host()),
        (wire.HostStatus, FakeRing(links_known=False).host()),
        (wire.FabricStatus, FakeRing().answer("POST", "/v1/host/fabric/down")[1]),
        (wire.DoctorStatus, DOCTOR),
        (wire.Operation, FakeRing().change("start")[1]),
        (
            wire.Events,
            FakeRing(
                events=[
                    {"id": 1, "at": 0.5, "node": "a", "kind": "error", "epoch": 1, "phase": "down", "text": "x"},
                ]
            ).answer("GET", "/v1/events?after=0&limit=9")[1],
        ),
    ],
)
def test_answers_are_of_the_contract(kind: type[Any], answer: dict[str, Any]) -> None:
    assert wire.encode(wire.loads(kind, json.dumps(answer).encode())) == answer
