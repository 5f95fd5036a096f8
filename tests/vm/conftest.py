"""A fleet for the tests: made once, with the package installed, and mended after each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator, Iterator
from types import FrameType

import pytest

from tests.lab.journals import keep_journals
from tests.lab.ring import RingOn
from tests.lab.shell import locked
from tests.vm.bringup import REQUEST_SECONDS
from tests.vm.control import Fleet
from tests.vm.layout import places
from tests.vm.rdma import Rdma


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """Three machines with the newest package of build/deb installed and sparkd running; removed in any case.

    With SPARKD_VM_USE=1 it is the fleet of `fleet up`, which is left as it is: making one takes longer than most tests.
    """
    usual = places().directory
    if os.environ.get("SPARKD_VM_USE") == "1":
        yield Fleet(usual)
        return
    directory = usual.with_name(f"{usual.name}-test")
    made = Fleet(directory)
    busy = f"fleet: another test run is using {directory}; wait for it, or set SPARKD_VM_DIR"
    with locked(directory.with_name(directory.name + ".tests"), wait=False, busy=busy, remove=True):
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            # What a test run that was killed has left.
            made.down()
            made.up()
            yield made
        finally:
            signal.signal(signal.SIGTERM, before)
            made.down()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def ring(fleet: Fleet) -> RingOn:
    return RingOn(fleet, REQUEST_SECONDS)


@pytest.fixture
def rdma(fleet: Fleet) -> Rdma:
    return Rdma(fleet)


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "fleet" in request.fixturenames:
        made: Fleet = request.getfixturevalue("fleet")
        made.mend()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return keep_journals((yield), item, call, Fleet, "vm")
