"""What tests need to know of an engine in the lab, so that one test can be put to all of them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.lab.control import Lab
from tests.lab.layout import NODES
from tests.lab.quick import UNIT_D
from tests.lab.ring import Ring

SPARKD_D = "/etc/sparkd/sparkd.toml.d"
SITE = "/etc/sparkd/engine.toml"
# Tests kill more ranks in an hour than a healthy ring may lose.
PATIENT = "[recovery]\nbackoff_seconds = 0.5\nbackoff_max_seconds = 1\nrestarts = 50\n"


@dataclass(frozen=True)
class EngineKind:
    """`ready`: seconds in which a ring comes up, on a machine that has much else to do."""

    name: str
    ready: float
    processes: dict[str, str]
    """What can be killed, as the pattern of pgrep(1) that finds it on a node."""


_LAUNCHER = {"launcher": "/usr/lib/sparkd/rank$"}
PROBE = EngineKind("probe", 40, _LAUNCHER)
# Of two cores that do nothing else a start takes 45 s: seven processes import SGLang.
SGLANG = EngineKind(
    "sglang", 240, {**_LAUNCHER, "engine": "python -m sglang.launch_server", "scheduler": "^sglang::sched"}
)
KINDS = (PROBE, SGLANG)


class EngineRing(Ring):
    """The ring of a lab with the processes of its engine."""

    def __init__(self, lab: Lab, kind: EngineKind) -> None:
        super().__init__(lab, kind.ready)
        self.kind = kind

    def pid(self, node: str, process: str) -> int:
        """The oldest of that kind of process on the node, once there is one. Raises AssertionError."""
        find = ("pgrep", "-o", "-u", "sparkd-rank", "-f", self.kind.processes[process])
        end = time.monotonic() + self.kind.ready
        while not (found := self.lab.exec(node, *find, check=False).stdout.split()):
            assert time.monotonic() < end, f"{node}: no {process} of {self.kind.name}"
            time.sleep(0.2)
        return int(found[0])

    def signal(self, node: str, process: str, name: str) -> int:
        """Sends it a signal; returns its pid."""
        pid = self.pid(node, process)
        self.lab.exec(node, "kill", f"-{name}", str(pid))
        return pid

    def again(self) -> dict[str, Any]:
        """A ready ring, without a start if it is ready or on its way."""
        if (now := self.get("spark1"))["phase"] == "held":
            assert self.ask("spark1", "POST", "/v1/ring/clear").status == 202
            self.phase("down")
        if now["want"] != "up":
            assert self.ask("spark1", "POST", "/v1/ring/start").status == 202
        return self.phase("ready")

    def free(self) -> None:
        """A ring that is down, and that nothing keeps from a start."""
        if self.get("spark1")["phase"] == "held":
            assert self.ask("spark1", "POST", "/v1/ring/clear").status == 202
        self.stop()
        self.settled()

    def look(self) -> None:
        """Have the daemons look at their hosts now: they do once a minute, and when they start."""
        self.lab.each(lambda node: self.lab.exec(node, "systemctl", "restart", "sparkd"))
        for node in self.hosts.nodes:
            self.until(node, lambda seen: all(peer["age"] is not None for peer in seen["peers"]), 60)

    def until_held(self) -> dict[str, Any]:
        """Starts it, and waits until it is held."""
        assert self.ask("spark1", "POST", "/v1/ring/start").status == 202
        return self.phase("held", seconds=self.kind.ready)

    def complete(self, prompt: str, tokens: int = 16) -> dict[str, Any]:
        """A completion through the OpenAI API of rank 0, at temperature 0."""
        asked = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": tokens, "temperature": 0})
        where = self.get("spark1")["engine"]["api"]
        done = self.lab.exec(
            "spark1", "curl", "-sS", "-f", "-m", "30", "--json", asked, f"http://{where}/v1/completions"
        )
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer

    def stream(self, tokens: int) -> subprocess.Popen[bytes]:
        """A streamed completion that has begun; what it gives is in /tmp/stream of spark1."""
        asked = {"model": "tiny", "prompt": "x", "max_tokens": tokens, "ignore_eos": True, "stream": True}
        where = f"http://{self.get('spark1')['engine']['api']}/v1/completions"
        fetch = ("curl", "-sS", "-f", "-N", "-m", "300", "-o", "/tmp/stream", "--json", json.dumps(asked), where)
        running = subprocess.Popen(self.lab.command("spark1", *fetch))
        end = time.monotonic() + 60
        while "data: " not in self.lab.exec("spark1", "cat", "/tmp/stream", check=False).stdout:
            assert running.poll() is None and time.monotonic() < end, "no stream began"
            time.sleep(0.2)
        return running

    def try_to_complete(self) -> str:
        """Status line, fields and body of what a new request is answered."""
        url = self.get("spark1")["engine"]["openai"]
        asked = json.dumps({"model": "tiny", "prompt": "x", "max_tokens": 1})
        return self.lab.exec("spark1", "curl", "-sS", "-i", "-m", "30", "--json", asked, f"{url}/completions").stdout

    def incident(self, epoch: int, node: str) -> dict[str, Any]:
        """What the node has kept of that epoch, once it is complete."""
        end = time.monotonic() + 30
        while True:
            answer = self.ask("spark1", "GET", f"/v1/incidents/{epoch}")
            nodes: dict[str, dict[str, Any]] = {each["node"]: each for each in answer.body.get("nodes", ())}
            found = nodes.get(node, {})
            if found.get("incident") and found["incident"]["complete"]:
                return found
            assert time.monotonic() < end, answer
            time.sleep(0.2)

    @contextlib.contextmanager
    def site(self, text: str, nodes: tuple[str, ...] = NODES) -> Iterator[None]:
        """With this as the site's overrides of the profile."""
        for node in nodes:
            self.lab.exec(node, "tee", SITE, input=text)
        try:
            yield
        finally:
            for node in nodes:
                self.lab.exec(node, "rm", "-f", SITE)


def made_patient(lab: Lab) -> None:
    """Let the ring of a lab come back after each death, and soon; and systemd wait less for a sign of life."""

    def write(node: str) -> None:
        lab.exec(node, "mkdir", "-p", SPARKD_D, UNIT_D)
        lab.exec(node, "tee", f"{UNIT_D}/watchdog.conf", input="[Service]\nWatchdogSec=20\n")
        lab.exec(node, "systemctl", "daemon-reload")
        lab.exec(node, "tee", f"{SPARKD_D}/patient.toml", input=PATIENT)
        lab.exec(node, "systemctl", "restart", "sparkd")

    lab.each(write)
