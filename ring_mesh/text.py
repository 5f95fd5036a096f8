"""The plan as text for people, for a terminal of 100 columns."""

from collections.abc import Iterable, Sequence

from ring_mesh.environment import planned_environment
from ring_mesh.plan import Plan, unreachable

WIDTH = 100


def render(plan: Plan) -> str:
    """The whole plan: cables, links, ends, routes, and the environment of the ranks. Ends with a line break."""
    sections = (_cables(plan), _links(plan), _ends(plan), _routes(plan), _environment(plan))
    head = f"Cluster {plan.cluster.name}: {plan.cluster.world_size} nodes, fabric in {plan.cluster.base_range}"
    return "\n\n".join([head, *("\n".join(section) for section in sections)]) + "\n"


def _cables(plan: Plan) -> list[str]:
    name = max(len(node.name) for node in plan.cluster.nodes)
    number = len(str(len(plan.cables) - 1))
    lines = ["Cables: port 0 of each node to port 1 of the next" if plan.cluster.world_size > 2 else "Cables"]
    for cable in plan.cables:
        a, b = cable.sockets
        middle = f"======== cable {cable.index:>{number}} ========"
        lines.append(f"  {a.node:>{name}} [port {a.cage}]{middle}[port {b.cage}] {b.node}")
    return lines


def _links(plan: Plan) -> list[str]:
    rows = [
        (
            str(link.index),
            str(cable.index),
            link.ends[0].port.domain,
            str(link.subnet),
            *(f"{end.node} {end.device}" for end in link.ends),
        )
        for cable in plan.cables
        for link in cable.links
    ]
    return ["Links: two per cable, one per PCI domain", *_table(("link", "cable", "domain", "subnet", "a", "b"), rows)]


def _ends(plan: Plan) -> list[str]:
    rows = [
        (
            end.node if position == 0 else "",
            str(end.port.cage),
            end.device,
            end.hca,
            str(end.address),
            str(end.mtu),
            plan.far_end(end).node,
        )
        for node in plan.cluster.nodes
        for position, end in enumerate(plan.ends_of(node.name))
    ]
    return ["Ends", *_table(("node", "port", "device", "RDMA device", "address", "MTU", "faces"), rows)]


def _routes(plan: Plan) -> list[str]:
    rows = [
        (
            route.node if position == 0 else "",
            f"{route.destination}/32",
            f"via {route.gateway}",
            f"dev {route.device}",
            f"src {route.source}",
        )
        for node in plan.cluster.nodes
        for position, route in enumerate(plan.routes_of(node.name))
    ]
    if not rows:
        return ["Routes: none; each node has a cable to every fabric address"]
    return [
        "Routes: to the addresses of each neighbour that are not on the direct cable",
        *_table((), rows),
        *_without_path(plan),
    ]


def _without_path(plan: Plan) -> list[str]:
    far = {node.name: unreachable(plan, node.name) for node in plan.cluster.nodes}
    # From five nodes on the list would be longer than the plan: all nodes but two.
    return [
        f"  no path from {node} to {names[0] if len(names) == 1 else f'{len(names)} nodes'}, which it has no cable to"
        for node, names in far.items()
        if names
    ]


def _environment(plan: Plan) -> list[str]:
    environments = {node.name: planned_environment(plan, node.name) for node in plan.cluster.nodes}
    first = environments[plan.cluster.conductor.name]
    common = {
        key: value
        for key, value in first.items()
        if all(environment.get(key) == value for environment in environments.values())
    }
    lines = ["Environment of every rank (RDMA variables only where the devices exist)", *_variables(common)]
    for node in plan.cluster.nodes:
        own = {key: value for key, value in environments[node.name].items() if key not in common}
        lines += ["", f"Environment of rank {node.rank} on {node.name}", *_variables(own)]
    return lines


def _variables(environment: dict[str, str]) -> Iterable[str]:
    """One line per variable; a value that does not fit goes on after a comma, indented under its start."""
    for key, value in environment.items():
        line, indent = f"  {key}=", " " * (len(key) + 3)
        parts = value.split(",")
        for index, part in enumerate(parts):
            piece = part if index == len(parts) - 1 else f"{part},"
            if len(line) + len(piece) > WIDTH and line.strip():
                yield line
                line = indent
            line += piece
        yield line


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, *rows] if head else list(rows)
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return [
        ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]
