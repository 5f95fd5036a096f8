"""What has to be equal on all hosts before a rank starts, and is not."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sparkd.core.model import Finding, Report

MISSING = "missing"
# What comes with the package, not from a file that an operator writes.
_PACKAGED = ("rank.", "adapter.", "environment.", "wire")
PROFILE = "engine.profile"
# What is looked at anew for each start, by key of the profile.
_RESOLVED = ("engine.arguments.", "engine.environment.", "engine.launch.")


def config_skew(node: str, key: str, here: str, other: str, there: str) -> Finding:
    mend = f"make {key} equal on {node} and {other}, then systemctl restart sparkd"
    if key.startswith(_PACKAGED):
        mend = f"install the same version of the package sparkd on {node} and {other}"
    elif key == "engine.version":
        mend = f"install the same version of SGLang on {node} and {other}"
    elif key == "engine.installed":
        mend = f"sparkd-engine use the same version on {node} and {other}; the next start takes it"
    elif key == "engine.checkpoint":
        mend = f"sparkd-engine model verify on {node} and {other}, and fetch on the one that is wrong"
    elif key.startswith((*_RESOLVED, "engine.sglang")):
        mend = f"make the profile, and /etc/sparkd/engine.toml, equal on {node} and {other}; the next start takes them"
    return Finding("config-skew", node, "refuse", key, here, f"{there}, as on {other}", mend)


def skews(node: str, own: Mapping[str, str], reports: Iterable[Report]) -> list[Finding]:
    """One finding for each key and each other host whose value differs from this one's, or that only one of them has:
    `own` and the reports' digests are by key of sparkd.toml, or as in sparkd.host.sources.
    """
    return [
        config_skew(report.node, key, report.digests.get(key, MISSING), node, own.get(key, MISSING))
        for report in reports
        if report.digests != own
        for key in sorted(own.keys() | report.digests.keys())
        if report.digests.get(key) != own.get(key) and _comparable(key, own, report.digests)
    ]


def _comparable(key: str, own: Mapping[str, str], theirs: Mapping[str, str]) -> bool:
    """Of two profiles, or of one that cannot be used, it is enough to say so: each key of theirs differs."""
    return not key.startswith(_RESOLVED) or own.get(PROFILE) == theirs.get(PROFILE)
