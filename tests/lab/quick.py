"""Shorter times than usual for a lab: a rank that says nothing is lost after 3 s, the first pause is half a second."""

from __future__ import annotations

from tests.lab.control import Lab

UNIT_D = "/etc/systemd/system/sparkd-rank@.service.d"
SPARKD_D = "/etc/sparkd/sparkd.toml.d"
_RANK = "[Service]\nEnvironment=SPARKD_CANARY_TIMEOUT=3 SPARKD_RENDEZVOUS_TIMEOUT=5\n"
_RECOVERY = "[recovery]\nbackoff_seconds = 0.5\n"


def quicken(lab: Lab) -> None:
    """On all nodes; their daemons are restarted."""

    def write(node: str) -> None:
        lab.exec(node, "mkdir", "-p", UNIT_D, SPARKD_D)
        lab.exec(node, "tee", f"{UNIT_D}/quick.conf", input=_RANK)
        lab.exec(node, "tee", f"{SPARKD_D}/quick.toml", input=_RECOVERY)
        _again(lab, node)

    lab.each(write)


def relax(lab: Lab) -> None:
    """As it was."""

    def remove(node: str) -> None:
        lab.exec(node, "rm", "-f", f"{UNIT_D}/quick.conf", f"{SPARKD_D}/quick.toml")
        _again(lab, node)

    lab.each(remove)


def _again(lab: Lab, node: str) -> None:
    lab.exec(node, "systemctl", "daemon-reload")
    lab.exec(node, "systemctl", "restart", "sparkd")
