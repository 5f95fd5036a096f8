"""Labs for tests: one with the package installed for the whole session, and bare ones."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Generator, Iterator
from types import FrameType

import pytest

from tests.lab.control import Lab
from tests.lab.engines import KINDS, EngineKind, EngineRing, made_patient
from tests.lab.journals import keep_journals
from tests.lab.layout import places
from tests.lab.ring import Ring
from tests.lab.shell import locked

TIMES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """Three nodes with the newest package of build/deb installed and sparkd running; mended after each test.

    Without a package, or without root, the tests that want it fail and say so.
    """
    with _lab("test") as made:
        made.up()
        yield made


@pytest.fixture(scope="module")
def sized_lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """The same with as many nodes as the test's parameter says."""
    with _lab(f"of-{request.param}", request.param) as made:
        made.up()
        yield made


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.name)
def engine_ring(request: pytest.FixtureRequest) -> Iterator[EngineRing]:
    """The ring of a lab of each engine in turn, which comes back after any number of deaths; down at first."""
    kind: EngineKind = request.param
    with _lab(f"engine-{kind.name}") as made:
        made.up(engine=kind.name)
        made_patient(made)
        ring = EngineRing(made, kind)
        ring.settled()
        yield ring


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests with `engine_ring` into the order of their file, one engine after the other.

    pytest would group them by the position of the engine in each test's own list of them, and start engines twice.
    """
    slots = [place for place, item in enumerate(items) if "engine_ring" in getattr(item, "fixturenames", ())]
    for place, item in zip(slots, sorted((items[place] for place in slots), key=_turn), strict=True):
        items[place] = item


def _turn(item: pytest.Item) -> tuple[int, int]:
    assert isinstance(item, pytest.Function)
    return KINDS.index(item.callspec.params["engine_ring"]), item.function.__code__.co_firstlineno


@pytest.fixture
def clock(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Notes for the end of the run how long it took from the test's start, or from the last note, to something."""
    last = time.monotonic()

    def note(what: str) -> None:
        nonlocal last
        now = time.monotonic()
        request.config.stash.setdefault(TIMES, []).append(f"{now - last:6.1f} s  {request.node.name}: {what}")
        last = now

    return note


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if times := config.stash.get(TIMES, []):
        terminalreporter.section("times in the lab")
        for line in times:
            terminalreporter.line(line)


@pytest.fixture(scope="module")
def bare_lab() -> Iterator[Lab]:
    """Three booted nodes with nothing installed; mended after each test."""
    with _lab("bare") as made:
        made.up(bare=True)
        yield made


@pytest.fixture
def no_lab() -> Iterator[Lab]:
    """A lab that is not up, for tests that bring it up themselves; removed afterwards in any case."""
    with _lab("own") as made:
        yield made


@contextlib.contextmanager
def _lab(purpose: str, nodes: int = 3) -> Iterator[Lab]:
    """A lab in a directory of its own, removed in the end, also when the test run is interrupted or terminated."""
    usual = places().directory
    directory = usual.with_name(f"{usual.name}-{purpose}")
    made = Lab(directory, nodes)
    busy = f"lab: another test run is using {directory}; wait for it, or set SPARKD_LAB_DIR"
    with locked(directory.with_name(directory.name + ".tests"), wait=False, busy=busy, remove=True):
        before = signal.signal(signal.SIGTERM, _interrupt)
        try:
            # What a test run that was killed has left.
            made.down()
            yield made
        finally:
            signal.signal(signal.SIGTERM, before)
            made.down()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def _mended(request: pytest.FixtureRequest) -> Iterator[None]:
    """After a test, plug in and switch on what it has left unplugged or off, for the next one."""
    shared = [
        request.getfixturevalue(name) for name in ("lab", "sized_lab", "bare_lab") if name in request.fixturenames
    ]
    yield
    for made in shared:
        made.mend()


@pytest.fixture
def ring(lab: Lab) -> Ring:
    return Ring(lab)


@pytest.fixture
def down(ring: Ring) -> Ring:
    """A ring that is down and could start."""
    ring.rest()
    ring.settled()
    return ring


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return keep_journals((yield), item, call, Lab, "lab")
