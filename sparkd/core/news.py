"""Which part of a report is news, for which every host is asked and decides again at once."""

from __future__ import annotations

from dataclasses import replace

from sparkd.core.drain import told
from sparkd.core.facts import RankUnit
from sparkd.core.model import Report
from sparkd.core.progress import SILENT

_SERVES = "ready"


def of(report: Report) -> Report:
    """The report without what changes all the time and moves nobody: free memory, and what a rank that serves tells of
    how it does. The peers get that with their next pull."""
    units = None if report.units is None else tuple(_moving(unit) for unit in report.units)
    return replace(report, sequence=0, memory_available_kib=0, units=units)


def words(text: str) -> str:
    """What of a status text is news: of a rank that serves, that it drains and how many run, or that it is silent."""
    stage, _, said = text.partition(" ")
    if stage != _SERVES:
        return text
    if (drains := told(said)) is not None:
        return f"{_SERVES} {drains}"
    return f"{_SERVES} {SILENT}" if said.startswith(SILENT) else _SERVES


def _moving(unit: RankUnit) -> RankUnit:
    return replace(unit, text=words(unit.text))
