"""Which part of a report is news, for which every host is asked and decides again at once."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core.facts import RankUnit
from sparkd.core.model import Report

_SERVES = "ready"


def of(report: Report) -> Report:
    """The report without what changes all the time and moves nobody: free memory, and what a rank that serves tells of
    how it does. The peers get that with their next pull."""
    units = None if report.units is None else tuple(_moving(unit) for unit in report.units)
    return replace(report, sequence=0, memory_available_kib=0, units=units)


def words(text: str) -> str:
    """What of a unit's status text is news."""
    return _SERVES if text.split(" ", 1)[0] == _SERVES else text


def _moving(unit: RankUnit) -> RankUnit:
    return replace(unit, text=words(unit.text))
