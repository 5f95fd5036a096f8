"""The plan as data for other programs."""

from collections.abc import Mapping
from ipaddress import IPv4Interface
from typing import Any

from ring_mesh.adopt import adopt
from ring_mesh.cabling import Cabling, Socket
from ring_mesh.cluster import PlanError, Problem, parse_cluster
from ring_mesh.environment import planned_environment
from ring_mesh.plan import Cable, End, Link, Plan, Route, unreachable

_NODE = ("name", "rank", "address", "management_interface")


def plan_as_json(plan: Plan) -> dict[str, object]:
    """The plan as a dictionary that `json.dumps` takes. Keys are added over time, never renamed or removed.

    cluster: name, base_range, nodes (name, rank, address, management_interface), by rank.
    order: names of the nodes along the ring, from rank 0 on out of each one's port 0; of two nodes, by rank.
    cables: index, from {node, cage}, to {node, cage}, links (indices); in a ring in its order, from port 0 to port 1.
    links: index, cable, domain, subnet, ends (two {node, device}).
    ends: node, rank, cage, domain, device, hca, address (with prefix length), mtu (bytes), link, peer {node, device}.
    routes: node, destination (with /32), gateway, device, source.
    unreachable: node -> names of the nodes whose fabric addresses it has no path to.
    environment: node -> variable -> value, as far as it is known before a start.
    """
    cluster = plan.cluster
    return {
        "cluster": {
            "name": cluster.name,
            "base_range": str(cluster.base_range),
            "nodes": [
                {
                    "name": node.name,
                    "rank": node.rank,
                    "address": str(node.address),
                    "management_interface": node.management_interface,
                }
                for node in cluster.nodes
            ],
        },
        "order": list(plan.order),
        "cables": [_cable(cable) for cable in plan.cables],
        "links": [_link(cable, link) for cable in plan.cables for link in cable.links],
        "ends": [_end(plan, end) for node in cluster.nodes for end in plan.ends_of(node.name)],
        "routes": [_route(route) for route in plan.routes],
        "unreachable": {node.name: list(unreachable(plan, node.name)) for node in cluster.nodes},
        "environment": {node.name: planned_environment(plan, node.name) for node in cluster.nodes},
    }


def plan_from_json(data: Mapping[str, Any]) -> Plan:
    """The plan that `plan_as_json` made the data from. Raises PlanError, with its reasons, if it is no such data."""
    try:
        cluster, cables = data["cluster"], data["cables"]
        # What a later version adds to the description of a node says nothing about this plan.
        nodes = [{key: node[key] for key in _NODE} for node in cluster["nodes"]]
        table = {"name": cluster["name"], "base_range": cluster["base_range"], "node": nodes}
        cabling = Cabling(tuple((_socket(cable["from"]), _socket(cable["to"])) for cable in cables))
        found: dict[tuple[str, str], list[IPv4Interface]] = {}
        for end in data["ends"]:
            found.setdefault((end["node"], end["device"]), []).append(IPv4Interface(end["address"]))
        return adopt(parse_cluster(table), cabling, found)
    except PlanError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise PlanError([Problem("plan", f"{type(error).__name__}: {error}", "the data of a plan")]) from error


def _socket(data: Mapping[str, Any]) -> Socket:
    if not isinstance(data["cage"], int):
        raise TypeError(f"cage {data['cage']!r} is not a number")
    return Socket(data["node"], data["cage"])


def _cable(cable: Cable) -> dict[str, object]:
    first, second = cable.sockets
    return {
        "index": cable.index,
        "from": {"node": first.node, "cage": first.cage},
        "to": {"node": second.node, "cage": second.cage},
        "links": [link.index for link in cable.links],
    }


def _link(cable: Cable, link: Link) -> dict[str, object]:
    return {
        "index": link.index,
        "cable": cable.index,
        "domain": link.ends[0].port.domain,
        "subnet": str(link.subnet),
        "ends": [{"node": end.node, "device": end.device} for end in link.ends],
    }


def _end(plan: Plan, end: End) -> dict[str, object]:
    far = plan.far_end(end)
    return {
        "node": end.node,
        "rank": end.rank,
        "cage": end.port.cage,
        "domain": end.port.domain,
        "device": end.device,
        "hca": end.hca,
        "address": str(end.address),
        "mtu": end.mtu,
        "link": next(link.index for link in plan.links if end in link.ends),
        "peer": {"node": far.node, "device": far.device},
    }


def _route(route: Route) -> dict[str, object]:
    return {
        "node": route.node,
        "destination": f"{route.destination}/32",
        "gateway": str(route.gateway),
        "device": route.device,
        "source": str(route.source),
    }
