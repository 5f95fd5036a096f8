"""What holds for all tests."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Machines that run these tests are small and shared: how long an example takes says nothing about the code. On CI the
# examples are the same in each run, so that a red run means that the change is at fault.
settings.register_profile(
    "sparkd",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
# For `make mutate`, which runs the tests a hundred times: what only a rare example notices has no test of its own yet.
settings.register_profile("mutate", settings.get_profile("sparkd"), max_examples=25, derandomize=True, database=None)
# For a search by hand: pytest tests/sim --hypothesis-profile=deep
settings.register_profile("deep", settings.get_profile("sparkd"), max_examples=3000, derandomize=False)
settings.load_profile("sparkd")

NEEDS = {"hardware": "real Sparks", "vm": "virtual machines, as make vm-test does"}
"""What is left out unless its option is given, by marker and option."""
_NOT_RUN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    for marker, need in NEEDS.items():
        parser.addoption(f"--{marker}", action="store_true", help=f"also run the tests that need {need}")
    parser.addoption("--half", choices=("lab", "rest"), help="only the tests with the probe's lab, or only all others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs real Sparks or virtual machines, and let what needs the lab come last: it is slow."""
    half = config.getoption("--half")
    if half is not None:
        others = [item for item in items if _probes_lab(item) != (half == "lab")]
        items[:] = [item for item in items if item not in others]
        config.hook.pytest_deselected(items=others)
    lacking = [marker for marker in NEEDS if not config.getoption(f"--{marker}")]
    not_run: list[pytest.Item] = []
    config.stash[_NOT_RUN] = []
    for item in items:
        if missing := next((marker for marker in lacking if item.get_closest_marker(marker)), ""):
            not_run.append(item)
            config.stash[_NOT_RUN].append(f"needs {NEEDS[missing]} (--{missing}): {item.nodeid}")
    if not_run:
        items[:] = [item for item in items if item not in not_run]
        config.hook.pytest_deselected(items=not_run)
    items.sort(key=lambda item: item.get_closest_marker("lab") is not None)


def _probes_lab(item: pytest.Item) -> bool:
    return item.get_closest_marker("lab") is not None and "engine_ring" not in getattr(item, "fixturenames", ())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was not run: a check that was left out has not passed."""
    not_run = config.stash.get(_NOT_RUN, [])
    skipped = [report.nodeid for report in terminalreporter.stats.get("skipped", [])]
    if not_run or skipped:
        terminalreporter.section("not run")
        for line in not_run:
            terminalreporter.line(line)
        for nodeid in skipped:
            terminalreporter.line(f"skipped: {nodeid}")
