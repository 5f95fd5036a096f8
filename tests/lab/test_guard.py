"""What keeps a start from going wrong, and what is noticed under a group, in a lab with an installed sparkd."""

from __future__ import annotations

import pytest

from tests.lab.control import Lab
from tests.lab.ring import Ring, sentence

pytestmark = pytest.mark.lab


@pytest.fixture
def ring(lab: Lab) -> Ring:
    return Ring(lab)


@pytest.fixture
def down(ring: Ring) -> Ring:
    """A ring that is down and could start."""
    ring.rest()
    ring.settled()
    return ring


def test_firewall_blocks_is_refused_with_both_nodes_and_over_when_the_firewall_is(down: Ring) -> None:
    """Field report firewall-blocks."""
    down.lab.exec("spark2", "systemctl", "restart", "sparkd")  # or the ports would be tried only after a minute
    down.lab.firewall("spark2", on=True)
    for node in ("spark1", "spark3"):
        down.until(node, lambda seen: _blocked(seen) == {"spark1", "spark3"}, 25)
    found = [finding for finding in down.refusal("spark3") if finding["id"] == "firewall-blocks"]
    assert [(f["node"], f["severity"], f["subject"]) for f in found] == [
        ("spark1", "refuse", "TCP to spark2"),
        ("spark3", "refuse", "TCP to spark2"),
    ]
    said = sentence(found[1])
    assert said.startswith(
        "firewall-blocks: spark3: TCP to spark2: spark2 answers sparkd, but its TCP port 192.168.77.2:"
    )
    assert "cannot be reached from spark3 (192.168.77.3): no answer within 3 s" in said
    assert "on spark2: ufw allow from 192.168.77.3" in found[1]["fix"]
    down.lab.firewall("spark2", on=False)
    down.settled()
    down.start()


def _blocked(seen: dict[str, object]) -> set[str]:
    """The nodes that say so."""
    findings = seen["findings"]
    assert isinstance(findings, list)
    return {finding["node"] for finding in findings if finding["id"] == "firewall-blocks"}
