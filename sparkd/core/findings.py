"""The catalogue of checks: one constructor per stable id, so that every refusal has its words in one place."""

from __future__ import annotations

from collections.abc import Sequence

from sparkd.core.model import Finding, Intent


def _refuse(id_: str, node: str, subject: str, observed: str, expected: str, fix: str) -> Finding:
    return Finding(id_, node, "refuse", subject, observed, expected, fix)


def functions_missing(node: str, cage: int, devices: Sequence[str]) -> Finding:
    return _refuse(
        "cx7-functions-missing",
        node,
        f"port {cage}",
        f"no network device {', '.join(devices)}",
        "both PCI functions of the port",
        "rescan the PCI bus (echo 1 > /sys/bus/pci/rescan) or reboot with the cable attached; if "
        "/etc/nvidia/cx7-hotplug-enabled exists, a neighbour's reboot may have removed the functions",
    )


def cable_missing(node: str, cage: int, dark: Sequence[str], of: int, far_node: str, far_cage: int) -> Finding:
    half = "" if len(dark) == of else " (the other PCI domain of the port has it)"
    return _refuse(
        "cable-missing",
        node,
        f"port {cage}",
        f"no carrier on {', '.join(dark)}{half}",
        f"a cable from {node} port {cage} to {far_node} port {far_cage}",
        f"seat the cable between {node} port {cage} and {far_node} port {far_cage}, or switch {far_node} on",
    )


def management_address(node: str, interface: str, address: str, holders: Sequence[str]) -> Finding:
    where = f"it is on {', '.join(holders)}" if holders else "no interface has it"
    return _refuse(
        "management-address",
        node,
        interface,
        f"{address} is not on {interface}: {where}",
        f"management address {address} on {interface}",
        f"give {interface} the address, or correct cluster.node address or management_interface in sparkd.toml",
    )


def subnet_overlap(node: str, base_range: str, where: str, free: str | None) -> Finding:
    return _refuse(
        "subnet-overlap",
        node,
        "cluster.base_range",
        f"{base_range} overlaps {where}",
        "a range that no network of any node uses",
        f'set base_range = "{free}" in sparkd.toml on every node' if free else "choose another base_range",
    )


def address_foreign(node: str, device: str, address: str, writer: str, overlapped: str) -> Finding:
    return Finding(
        "address-foreign",
        node,
        "refuse" if overlapped else "warn",
        device,
        f"{address} was put there by {writer or 'something else'}"
        + (f" and overlaps the planned {overlapped}" if overlapped else ""),
        "only the planned address on a fabric port",
        f"remove it from the netplan or NetworkManager profile of {device}",
    )


def address_unfit(node: str, device: str, found: str, expected: str) -> Finding:
    return _refuse(
        "address-unfit",
        node,
        device,
        f"its address cannot be adopted: {found}",
        expected,
        'correct it in the host\'s own network configuration, or set address_plan = "base" on every node',
    )


def source_unknown(node: str, source: str, why: str) -> Finding:
    return _refuse("unknown-is-a-state", node, source, why, "an answer", f"journalctl -u sparkd on {node}")


def peer_unheard(node: str, peer: str, why: str) -> Finding:
    return _refuse(
        "unknown-is-a-state",
        node,
        f"peer {peer}",
        why,
        f"an answer of sparkd on {peer}",
        f"on {peer}: systemctl status sparkd; check the management network between {node} and {peer}",
    )


def held(node: str, intent: Intent) -> Finding:
    return _refuse("held", node, f"epoch {intent.epoch}", intent.reason, "a ring that is not held", "sparkctl clear")


def generation_mixed(node: str, unit: str, epoch: int) -> Finding:
    return _refuse(
        "generation-mixed",
        node,
        unit,
        "a rank of another epoch is alive",
        f"only ranks of epoch {epoch}",
        "wait for sparkd to stop it",
    )


def cable_silent(node: str, cage: int, silent: Sequence[str], others: Sequence[str]) -> Finding:
    half = f", while its twin reaches {others[0]}" if others else ""
    return _refuse(
        "cable-missing",
        node,
        f"port {cage}",
        f"carrier, but nobody is heard on {', '.join(silent)}{half}",
        "a cable to another Spark of this ring on which sparkd runs",
        "start sparkd on the machine at the cable's other end, move the cable to a Spark of this ring, or let UDP port "
        "7476 through a firewall on these ports",
    )


def cable_unheard(node: str, cage: int, silent: Sequence[str]) -> Finding:
    return Finding(
        "cable-unheard",
        node,
        "repair",
        f"port {cage}",
        f"only just come up, not heard yet what it is cabled to: {', '.join(silent)}",
        "a hello from the other end within seconds",
        "none needed: a start waits for it",
    )


def cable_loop(node: str, cage: int, remote: str) -> Finding:
    return _refuse(
        "cable-loop",
        node,
        f"port {cage}",
        f"the cable comes back to {node} itself ({remote})",
        "a cable to another node",
        f"move one end of this cable from {node} to port {1 - cage} of another node",
    )


def cable_foreign(node: str, cage: int, stranger: str, cluster: str) -> Finding:
    return _refuse(
        "cable-foreign",
        node,
        f"port {cage}",
        f"the cable ends in a machine outside this cluster (it says: {stranger or '?'} of {cluster or '?'})",
        "a cable to another node of this cluster",
        "move the cable, or if that machine belongs here, give it this cluster's files: sparkctl cluster install",
    )


def name_clash(node: str, cage: int, remote: str) -> Finding:
    return _refuse(
        "name-clash",
        node,
        f"port {cage}",
        f"another machine also calls itself {node} ({remote})",
        "one machine for each name",
        f"give one of the two its own directory of sparkctl cluster create: both were installed as {node}",
    )


def cable_shared(node: str, cage: int, others: Sequence[str]) -> Finding:
    return _refuse(
        "cable-shared",
        node,
        f"port {cage}",
        f"several ports are heard at once: {', '.join(others)}",
        "one cable to one port, without a switch or a bridge between",
        f"take whatever joins these ports out of the cable at {node} port {cage}",
    )


def twins_split(node: str, cage: int, told: Sequence[str]) -> Finding:
    return _refuse(
        "twins-split",
        node,
        f"port {cage}",
        "; ".join(told),
        "both PCI functions of a port at the two of one far port",
        f"reseat the cable at {node} port {cage} and at its other end; a split cable does not work here",
    )


def cable_same_port(node: str, cage: int, far: str, swap_at: str) -> Finding:
    mend = f"at {swap_at}, exchange the two cables" if swap_at else ""
    later = max(node, far)
    return _refuse(
        "cable-same-port",
        node,
        f"port {cage}",
        f"the cable between {min(node, far)} and {later} joins port {cage} to port {cage}",
        "port 0 of one node to port 1 of the next",
        mend or f"at {later}, move this cable's end from port {cage} to port {1 - cage}",
    )


def cable_ring(node: str, why: str) -> Finding:
    return _refuse(
        "cable-ring",
        node,
        "the cables",
        why,
        "one ring through all nodes",
        "sparkctl plan --discover shows what is cabled to what",
    )


def fabric_released(node: str) -> Finding:
    return _refuse(
        "fabric-released",
        node,
        "the fabric ports",
        "an operator has taken them from sparkd (sparkctl fabric down)",
        "ports that sparkd may configure",
        f"on {node}: sparkctl fabric up",
    )
