"""A daemon as sparkctl sees one: HTTP on a real socket, a ring that starts and stops, refusals like the real one's."""

from __future__ import annotations

import json
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import ring_mesh
from ring_mesh import PORTS, Cabling, Socket, by_order
from sparkd.core.cabling import names
from sparkd.core.model import Intent
from sparkd.wire import encode
from tests.core.builders import hears, report

Json = dict[str, Any]
TOKEN = "t0ken-of-the-lab-cluster"
NODES = ("spark1", "spark2", "spark3")
FINDING = {
    "id": "cable-missing",
    "node": "spark2",
    "severity": "refuse",
    "subject": "enp1s0f0np0 (port 0)",
    "observed": "no carrier",
    "expected": "a cable to port 1 of spark3",
    "fix": "plug the cable in",
}
RELEASED = {
    "id": "fabric-released",
    "node": "spark1",
    "severity": "refuse",
    "subject": "the fabric ports",
    "observed": "an operator has taken them from sparkd (sparkctl fabric down)",
    "expected": "ports that sparkd may configure",
    "fix": "on spark1: sparkctl fabric up",
}


def wired(*cables: str) -> Cabling:
    """Cables as "10-21": node 1 port 0 to node 2 port 1."""
    return Cabling(tuple((Socket(f"spark{c[0]}", int(c[1])), Socket(f"spark{c[3]}", int(c[4]))) for c in cables))


def rail(a: str, b: str, gbps: float | None = 98.0, method: str = "rdma", passed: bool | None = True) -> Json:
    """A measured rail; its ends as "spark1.enp1s0f0np0"."""
    ends = [dict(zip(("node", "device"), end.split("."), strict=True)) for end in (a, b)]
    return {"a": ends[0], "b": ends[1], "gbps": gbps, "method": method, "mtu_passed": passed}


@dataclass
class FakeRing:
    """The ring's state. story: what the following looks find, each on top of the one before."""

    phase: str = "down"
    want: str = "down"
    epoch: int = 7
    summary: str = "down: nobody has asked for a start"
    reason: str = "never started"
    by: str = "nobody"
    findings: list[Json] = field(default_factory=list)
    held: bool = False
    maintenance: bool = False
    drain: Json | None = None
    conductor_silent: bool = False
    wires: Cabling = field(default_factory=lambda: by_order(NODES))
    """The cables that are there. The ring of them is heard, unless they are none."""
    ring_heard: bool = True
    nodes: tuple[str, ...] = NODES
    released: bool = False
    """Whether the fabric ports of the node that answers are the operator's."""
    links_known: bool = True
    rails: list[Json] = field(default_factory=list)
    """Those that have been measured: see `rail`."""
    doctor: Json = field(default_factory=dict)
    incidents: Json = field(default_factory=dict)
    smoke: Json = field(default_factory=dict)
    details: dict[int, Json] = field(default_factory=dict)
    logs: list[Json] = field(default_factory=list)
    """Answers of GET /v1/logs, the last one again and again."""
    deaths: list[Json] = field(default_factory=list)
    engine: Json = field(
        default_factory=lambda: {"name": "probe", "api": "127.0.0.1:8888", "profile": "", "openai": "", "adapters": []}
    )
    accepted: str = "accepted"
    """What is said of a change."""
    starting: int = 0
    """So many requests find a daemon that has only just started."""
    drop: int = 0
    """So many requests find a daemon that dies before it answers."""
    story: list[Json] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def look(self) -> Json:
        if self.story:
            for key, value in self.story.pop(0).items():
                setattr(self, key, value)
        state = "ready" if self.phase == "ready" else "starting" if self.phase == "starting" else "down"
        return {
            "phase": self.phase,
            "want": self.want,
            "epoch": self.epoch,
            "summary": self.summary,
            "waits": [],
            "reason": self.reason,
            "by": self.by,
            "node": "spark1",
            "conductor": "spark1",
            "cluster": "lab",
            "version": "0.1.0",
            "engine": self.engine,
            "ranks": [
                {
                    "rank": rank,
                    "node": node,
                    "unit": f"sparkd-rank@{self.epoch}.service",
                    "state": state,
                    "stage": None,
                    "progress": None,
                    "text": "",
                    "pid": 0,
                }
                for rank, node in enumerate(self.nodes)
            ],
            "findings": [*self.findings, *([RELEASED] if self.released else [])],
            "peers": [
                {"node": "spark2", "age": len(self.asked) / 10, "error": "", "epoch": self.epoch, "version": "0.1.0"}
            ],
            "fabric": [self.fabric(node) for node in self.nodes],
            "cables": list(names(self.wires)) if self.ring_heard else [],
            "rails": self.rails,
            "deaths": self.deaths,
            "budget": {"used": 0, "restarts": 3, "window": 3600.0},
            "memory": [],
            "work": None,
            "drain": self.drain,
            "serving": self.phase in ("ready", "degraded"),
            "maintenance": {"by": "x", "reason": "", "at": 0.0, "on": True, "blind": False}
            if self.maintenance
            else None,
        }

    def fabric(self, node: str) -> Json:
        neighbours = [asdict(neighbour) for neighbour in hears(node, self.wires).neighbours]
        lit = {neighbour["device"] for neighbour in neighbours}
        ends = [{"device": p.device, "carrier": p.device in lit, "verified": self.phase == "ready"} for p in PORTS]
        return {"node": node, "ends": ends, "neighbours": neighbours}

    def host(self) -> Json:
        lit = {end["device"] for end in self.fabric("spark1")["ends"] if end["carrier"]}
        links = [("enP7s7", True, 1500), *((p.device, p.device in lit, 1500 if self.released else 9000) for p in PORTS)]
        return {
            "node": "spark1",
            "rank": 0,
            "version": "0.1.0",
            "host": None,
            "links": [
                {
                    "device": device,
                    "up": not (self.released and device != "enP7s7"),
                    "carrier": carrier,
                    "mtu": mtu,
                    "mac": "",
                    "carrier_changes": 2,
                    "settings": {},
                    "link_local": True,
                }
                for device, carrier, mtu in links
            ]
            if self.links_known
            else None,
            "roce": None,
            "report": encode(report("spark1", Intent(self.epoch))),
            "unknown": [],
        }

    def change(self, asked: str) -> tuple[int, Json]:
        what, _, query = asked.partition("?")
        if self.maintenance and what in ("start", "stop") and query != "force=true":
            return problem(409, "maintenance", "nothing is started or stopped", hint="sparkctl resume")
        if self.conductor_silent:
            return problem(503, "conductor-unreachable", "spark1 does not answer", hint="look at sparkd on spark1")
        if what == "start":
            if self.held:
                return problem(409, "held", "the ring is held", hint="sparkctl clear")
            if self.findings or self.released:
                return problem(409, "start-refused", "1 check does not pass", findings=self.look()["findings"])
            self.want, self.by, self.reason = "up", "operator", "asked"
        elif what == "stop":
            self.want, self.by, self.reason, self.maintenance = "down", "operator", "asked", False
        elif what == "clear":
            self.held = False
        elif what == "hold":
            self.maintenance = True
        elif what == "resume":
            self.maintenance = False
        else:
            return problem(404, "not-found", "Not Found")
        self.epoch += 1
        return 202, {
            "operation": f"/v1/operations/{self.epoch}",
            "epoch": self.epoch,
            "want": self.want,
            "summary": self.accepted,
        }

    def incident(self, path: str) -> tuple[int, Json]:
        epoch = path.removeprefix("/v1/incidents").removeprefix("/")
        if not epoch:
            return 200, self.incidents
        if int(epoch) not in self.details:
            return problem(404, "no-such-incident", f"no node has kept anything of epoch {epoch}")
        return 200, self.details[int(epoch)]

    def log(self) -> Json:
        return self.logs.pop(0) if len(self.logs) > 1 else self.logs[0]

    def measure(self) -> tuple[int, Json]:
        if self.phase in ("starting", "ready"):
            sentence = "a rank runs here, and rails are measured only while none does"
            return problem(409, "fabric-in-use", sentence, hint="sparkctl down --wait")
        self.rails = [each for each in self.rails if "spark1" not in (each["a"]["node"], each["b"]["node"])]
        return 202, self.fabric("spark1")

    def answer(self, method: str, url: str) -> tuple[int, Json]:
        self.asked.append(f"{method} {url}")
        path = urlsplit(url).path
        if self.starting:
            self.starting -= 1
            return problem(503, "starting", "sparkd has only just started")
        match method, path:
            case "GET", "/v1/ring":
                return 200, self.look()
            case "GET", "/v1/plan":
                return 200, plan(self.wires, self.nodes)
            case "GET", "/v1/host" | "/v1/smoke":
                return 200, self.host() if path == "/v1/host" else self.smoke
            case "GET", _ if path.startswith("/v1/incidents"):
                return self.incident(path)
            case "GET", "/v1/doctor" | "/v1/logs":
                return 200, self.doctor if path == "/v1/doctor" else self.log()
            case "POST", "/v1/host/fabric/down" if self.want == "up":
                hint = "sparkctl down --wait"
                return problem(409, "fabric-in-use", "the ring is wanted up, and its ranks need the fabric", hint=hint)
            case "POST", "/v1/host/fabric/measure":
                return self.measure()
            case "POST", "/v1/host/fabric/down" | "/v1/host/fabric/up":
                self.released = path.endswith("down")
                return 202, self.fabric("spark1")
            case "GET", "/v1/events":
                query = parse_qs(urlsplit(url).query)
                after, limit = int(query["after"][0]), int(query["limit"][0])
                if not 1 <= limit <= 500:
                    return problem(422, "bad-request", "query.limit: out of range")
                chosen = [event for event in self.events if event["id"] > after]
                return 200, {
                    "events": chosen[-limit:],
                    "last": self.events[-1]["id"] if self.events else 0,
                    "lost": False,
                    "daemon": "1",
                }
            case "POST", _ if path.startswith("/v1/ring/"):
                return self.change(path.removeprefix("/v1/ring/"))
        return problem(404, "not-found", "Not Found")


def problem(status: int, code: str, detail: str, **more: Any) -> tuple[int, Json]:
    return status, {"type": "about:blank", "title": code, "status": status, "code": code, "detail": detail, **more}


def plan(wires: Cabling | None = None, members: tuple[str, ...] = NODES) -> Json:
    nodes = [{"name": name, "rank": rank, "address": f"192.168.77.{rank + 1}"} for rank, name in enumerate(members)]
    cluster = ring_mesh.parse_cluster({"name": "lab", "base_range": "10.77.0.0/21", "node": nodes})
    return ring_mesh.plan_as_json(ring_mesh.plan(cluster, wires))


class _UnixServer(socketserver.UnixStreamServer):
    request_queue_size = 16


@contextmanager
def serve(ring: FakeRing, unix: Path | None = None) -> Iterator[int]:
    """Serve the ring on the Unix socket, or on loopback TCP with the token; yields the port (0 on the socket)."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(lambda: ring.answer("GET", self.path))

        def do_POST(self) -> None:
            given = self.headers.get("Authorization")
            if unix is not None or given == f"Bearer {TOKEN}":
                self._reply(lambda: ring.answer("POST", self.path))
            elif given is None:
                self._reply(lambda: problem(401, "token-missing", "a change needs a token", hint="send Bearer"))
            else:
                self._reply(lambda: problem(401, "token-wrong", "the token is not the one of this machine"))

        def _reply(self, answer: Callable[[], tuple[int, Json]]) -> None:
            if ring.drop:
                ring.drop -= 1
                self.close_connection = True
                return
            status, body = answer()
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json" if status < 400 else "application/problem+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's stderr to sparkctl."""

    server = _UnixServer(str(unix), Handler) if unix is not None else HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_port if isinstance(server, HTTPServer) else 0
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
