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

_NOT_RUN = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--hardware", action="store_true", help="also run the tests that need real Sparks")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs real Sparks, and let what needs the lab come last: it is slow."""
    not_run = [item for item in items if item.get_closest_marker("hardware") and not config.getoption("--hardware")]
    if not_run:
        items[:] = [item for item in items if item not in not_run]
        config.hook.pytest_deselected(items=not_run)
    config.stash[_NOT_RUN] = [item.nodeid for item in not_run]
    items.sort(key=lambda item: item.get_closest_marker("lab") is not None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was not run: a check that was left out has not passed."""
    not_run = config.stash.get(_NOT_RUN, [])
    skipped = [report.nodeid for report in terminalreporter.stats.get("skipped", [])]
    if not_run or skipped:
        terminalreporter.section("not run")
        for nodeid in not_run:
            terminalreporter.line(f"needs real Sparks (--hardware): {nodeid}")
        for nodeid in skipped:
            terminalreporter.line(f"skipped: {nodeid}")
