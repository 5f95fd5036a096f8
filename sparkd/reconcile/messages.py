"""What the journal is told beside a line's words: fields to select by, and an id of the kind of message.

`journalctl -x` looks the id up in the catalogue, units/catalog/sparkd.catalog. A test compares the two.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping

from sparkd.core.model import Finding, Phase

KINDS = ("intent", "action", "error", "audit", "finding-gone")
"""Those of which there is one message each; the others are one for each phase and one for each finding."""


def message_id(kind: str) -> str:
    """MESSAGE_ID of a kind: "intent", "summary-ready", "finding-cable-missing".

    Made from the word, so that there is no table that could say otherwise: two of them never meet by chance.
    """
    return hashlib.sha256(f"message of sparkd: {kind}".encode()).hexdigest()[:32]


def fields(kind: str, epoch: int, phase: Phase, node: str, ranks: Mapping[str, int]) -> dict[str, str]:
    """`node`: whom the line is about; `ranks`: of each node."""
    told = {
        "MESSAGE_ID": message_id(f"summary-{phase}" if kind == "summary" else kind),
        "SPARKD_EVENT": kind,
        "SPARKD_EPOCH": str(epoch),
        "SPARKD_PHASE": phase,
        "SPARKD_NODE": node,
    }
    if node in ranks:
        told["SPARKD_RANK"] = str(ranks[node])
    return told


def as_audit(record: logging.LogRecord) -> bool:
    """A filter for the logger of who asked for which change: its lines are a kind of their own."""
    if not hasattr(record, "journal"):
        record.journal = {"MESSAGE_ID": message_id("audit"), "SPARKD_EVENT": "audit"}
    return True


def of_finding(finding: Finding, *, gone: bool) -> dict[str, str]:
    return {
        "MESSAGE_ID": message_id("finding-gone" if gone else f"finding-{finding.id}"),
        "SPARKD_FINDING": finding.id,
        "SPARKD_SUBJECT": finding.subject,
        "SPARKD_OBSERVED": finding.observed,
        "SPARKD_EXPECTED": finding.expected,
        "SPARKD_FIX": finding.fix,
    }
