"""What the fabric of a ring of Sparks should be: cabling, addresses, routes and the environment of the ranks.

Everything here is a pure function of a cluster's description. Nothing is read from or written to the machine;
`python -m ring_mesh plan FILE` prints the plan for a description on disk.
"""

from ring_mesh.adopt import AddressProblem, AdoptError, adopt
from ring_mesh.asdict import plan_as_json, plan_from_json
from ring_mesh.cabling import CableProblem, Cabling, CablingError, Socket, by_order, ring_order
from ring_mesh.cluster import Cluster, ClusterError, Node, PlanError, Problem, parse_cluster
from ring_mesh.environment import engine_environment, planned_environment, rank_environment
from ring_mesh.measuring import measure_environment
from ring_mesh.overlap import Collision, collisions, free_range, overlaps
from ring_mesh.plan import Cable, End, Link, Plan, Route, plan, planned_subnets, unreachable
from ring_mesh.ports import FABRIC_DEVICES, PORTS, Port
from ring_mesh.text import render

__all__ = [
    "FABRIC_DEVICES",
    "PORTS",
    "AddressProblem",
    "AdoptError",
    "Cable",
    "CableProblem",
    "Cabling",
    "CablingError",
    "Cluster",
    "ClusterError",
    "Collision",
    "End",
    "Link",
    "Node",
    "Plan",
    "PlanError",
    "Port",
    "Problem",
    "Route",
    "Socket",
    "adopt",
    "by_order",
    "collisions",
    "engine_environment",
    "free_range",
    "measure_environment",
    "overlaps",
    "parse_cluster",
    "plan",
    "plan_as_json",
    "plan_from_json",
    "planned_environment",
    "planned_subnets",
    "rank_environment",
    "render",
    "ring_order",
    "unreachable",
]
