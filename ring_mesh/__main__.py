"""`python -m ring_mesh plan FILE [--order A,B,C] [--json]`: print the plan of the cluster described in a TOML file.

`python -m ring_mesh bench`: print how long a plan takes.
"""

import argparse
import json
import sys
import tomllib
from collections.abc import Mapping, Sequence

from ring_mesh.asdict import plan_as_json
from ring_mesh.bench import report
from ring_mesh.cabling import Cabling, by_order
from ring_mesh.cluster import Cluster, ClusterError, PlanError, Problem, parse_cluster, shown, unknown_keys
from ring_mesh.plan import plan
from ring_mesh.text import render

_TABLES = ("cluster", "node", "engine", "recovery")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status: 0, or 2 if the file cannot be used, with the reasons on stderr."""
    options = _parser().parse_args(arguments)
    if options.command == "bench":
        print(report())
        return 0
    try:
        cluster = read_cluster(options.file)
        planned = plan(cluster, None if options.order is None else cabled_in(options.order, cluster))
    except PlanError as error:
        for problem in error.problems:
            print(f"{options.file}: {problem}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(plan_as_json(planned), indent=2))
    else:
        print(render(planned))
        print("With --json the same plan is printed for programs.")
    return 0


def read_cluster(path: str) -> Cluster:
    """The cluster described in the TOML file, whose other tables are passed over. Raises ClusterError."""
    try:
        with open(path, "rb") as file:
            document = tomllib.load(file)
    except OSError as error:
        raise ClusterError([Problem("file", error.strerror or str(error), "a readable file")]) from error
    except (ValueError, RecursionError) as error:
        # ValueError: tomllib's own error, text that is not UTF-8, or an integer with too many digits.
        raise ClusterError([Problem("toml", str(error), "a TOML document")]) from error
    table = document.get("cluster")
    if isinstance(table, Mapping):
        return parse_cluster(table)
    if table is not None:
        raise ClusterError([Problem("cluster", shown(table), "one [cluster] table")])
    missing = Problem("cluster", "nothing", "a [cluster] table")
    raise ClusterError([missing, *unknown_keys("", document, _TABLES)])


def cabled_in(order: str, cluster: Cluster) -> Cabling:
    """The cabling from port 0 of each node to port 1 of the next in that comma-separated order. Raises ClusterError."""
    names = order.split(",")
    known = [node.name for node in cluster.nodes]
    if sorted(names) != sorted(known):
        raise ClusterError([Problem("--order", shown(order), f"each of {', '.join(known)} once, with commas")])
    return by_order(names)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m ring_mesh", description="What the fabric of a ring should be.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    command = commands.add_parser("plan", help="print cables, links, addresses, routes and environment")
    command.add_argument("file", metavar="FILE", help="TOML with a [cluster] table; sparkd.toml will do")
    command.add_argument("--order", metavar="A,B,C", help="cabled from each port 0 to the next node's port 1; by rank")
    command.add_argument("--json", action="store_true", help="print JSON instead of text")
    commands.add_parser("bench", help="print how long a plan takes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
