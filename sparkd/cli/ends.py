"""The findings of both ends of one cable as one: each node tells what its own port sees. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable

from sparkd.cli.answer import Json
from sparkd.cli.text import clean

_END = re.compile(r"\S+ port [01]\b")


def groups(found: Iterable[Json]) -> list[list[Json]]:
    """The findings in order, each once, and the two of one cable together at the place of the first."""
    kept: dict[object, list[Json]] = {}
    for finding in found:
        key = _cable(finding) or repr(sorted(finding.items()))
        group = kept.setdefault(key, [])
        if finding not in group:
            group.append(finding)
    return list(kept.values())


def place(finding: Json) -> str:
    """The port that a finding about a cable is of, e.g. `spark1 port 0`."""
    return f"{clean(finding.get('node'))} {clean(finding.get('subject'))}"


def _cable(finding: Json) -> tuple[str, ...] | None:
    """What the findings of both its ends have in common, if the finding names its cable and asks the same at both."""
    id_ = clean(finding.get("id"))
    both = (id_, clean(finding.get("severity")))
    match id_:
        case "cable-missing":
            ends = sorted(set(_END.findall(clean(finding.get("expected")))))
            return (*both, *ends) if len(ends) == 2 and place(finding) in ends else None
        case "cable-same-port":
            return (*both, clean(finding.get("observed")), clean(finding.get("fix")))
        case "cable-loop":  # a node has two ports, so that it has one such cable at most
            return (*both, clean(finding.get("node")))
    return None
