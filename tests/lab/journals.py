"""The journals of the hosts of a test that failed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

import pytest

from tests.lab.install import REPOSITORY


class Hosts(Protocol):
    def dump_logs(self, directory: Path) -> None: ...


def keep_journals(
    report: pytest.TestReport, item: pytest.Item, call: pytest.CallInfo[None], kind: type[Hosts], name: str
) -> pytest.TestReport:
    """Keep them below build/NAME-logs as they were at that moment, and say in the report where. `kind`: of the fixture
    that has the hosts."""
    arguments: dict[str, Any] = getattr(item, "funcargs", {})
    if report.failed and call.when != "teardown":
        for made in arguments.values():
            if isinstance(made, kind):
                where = REPOSITORY / f"build/{name}-logs" / re.sub(r"[^\w.-]+", "_", item.name)
                made.dump_logs(where)
                report.sections.append((name, f"journals of the nodes: {where.relative_to(REPOSITORY)}"))
    return report
