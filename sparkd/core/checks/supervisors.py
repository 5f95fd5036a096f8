"""Somebody else who runs an engine on this host or holds one of the ring's ports."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, unknown
from sparkd.core.hardware import Engine, Listener
from sparkd.core.model import Finding

EXPECTED = "only ranks of sparkd-rank@.service"


def port_taken(node: str, listener: Listener) -> Finding:
    user = listener.user or f"uid {listener.uid}"
    if listener.pid:
        who = f"{listener.command} (pid {listener.pid}, {listener.unit or 'no unit'}, user {user})"
        fix = _stop(listener.pid, listener.unit)
    else:
        who = f"a process of user {user}; which one only root may see"
        fix = f"sudo ss -ltnp 'sport = :{listener.port}' names the process: stop it and whatever starts it again"
    return Finding(
        "second-supervisor",
        node,
        "refuse",
        f"port {listener.port}",
        f"{who} listens on {listener.address}:{listener.port}",
        EXPECTED,
        fix,
    )


def engine_elsewhere(node: str, engine: Engine) -> Finding:
    return Finding(
        "second-supervisor",
        node,
        "refuse",
        f"pid {engine.pid}",
        f"{engine.command} runs in {engine.unit or 'no unit'} as {engine.user}",
        EXPECTED,
        _stop(engine.pid, engine.unit),
    )


def _stop(pid: int, unit: str) -> str:
    if unit.startswith("container "):
        return f"docker update --restart=no {unit.split()[1]} && docker stop {unit.split()[1]}"
    if unit.endswith(".service"):
        return f"systemctl disable --now {unit}"
    return f"end pid {pid} and whatever starts it again"


def check(seen: Seen) -> Outcome:
    facts = seen.hardware.supervisors
    if facts is None:
        return unknown(seen.hardware.why("supervisors"))
    findings = [port_taken(seen.node, listener) for listener in facts.listeners if not listener.ours]
    holders = {listener.pid for listener in facts.listeners if listener.pid}
    findings += [engine_elsewhere(seen.node, engine) for engine in facts.engines if engine.pid not in holders]
    doubts = ["/proc hides the processes of other users (hidepid)"] if facts.hidden else []
    return judged(findings, "the ring's ports and the engine are nobody else's", doubts)
