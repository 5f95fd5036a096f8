"""Random faults on a ring of three virtual Sparks, and whether what must hold does: `make soak MINUTES=n`.

A lab of its own, with the short times of tests.lab.quick. A round is one fault or two at a random moment, an end of all
faults, and a wait until the ring serves. What must hold is looked at from outside (tests.lab.watch): in the journals
that systemd writes, and in what the three APIs say:

* Ranks of two epochs never run at once.
* No rank runs on a host that has been told for long that the ring is down.
* A held ring stays held until it is cleared.
* When all faults are over, the ring serves again within a bound.

The seed is printed: the same one makes the same faults, though not at the same moments of the daemons. A violation ends
the soak with status 1, and leaves the journals in build/soak-logs.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from tests.lab.control import Lab
from tests.lab.install import REPOSITORY
from tests.lab.layout import NODES, places
from tests.lab.quick import quicken
from tests.lab.ring import Ring
from tests.lab.shell import LabError
from tests.lab.watch import Violation, Watch

LOGS = REPOSITORY / "build/soak-logs"
BOUND = 120.0
"""Seconds from the end of all faults until the ring serves; a boot and a back-off of half a minute have room in it."""
_BLOCK = "table inet soak { chain input { type filter hook input priority 0; tcp dport 20000 drop; }; }"


@dataclass(frozen=True)
class Fault:
    """`begin` does it; `end`, if there is one, undoes it after a while."""

    what: str
    begin: Callable[[], object]
    end: Callable[[], object] | None = None


class Faults:
    """All that a lab can do to a ring."""

    def __init__(self, ring: Ring, watch: Watch, chance: random.Random) -> None:
        self._ring = ring
        self._lab = ring.lab
        self._watch = watch
        self._chance = chance
        self._kinds: dict[Callable[[str], Fault], int] = {
            self._kill_rank: 4,
            self._hang_rank: 2,
            self._stop_unit: 1,
            self._kill_daemon: 2,
            self._restart_daemon: 1,
            self._freeze_daemon: 1,
            self._no_daemon: 2,
            self._power: 3,
            self._reboot: 1,
            self._cable: 2,
            self._flap: 2,
            self._management: 2,
            self._isolate: 2,
            self._drift: 2,
            self._rendezvous: 1,
            self._lose_disk: 1,
            self._ask: 3,
        }

    def next(self) -> Fault:
        kind = self._chance.choices(list(self._kinds), list(self._kinds.values()))[0]
        return kind(self._chance.choice(NODES))

    def _do(self, node: str, *argv: str) -> Callable[[], object]:
        # What is done to a host that has no power, or whose rank is not there, does nothing.
        return lambda: self._lab.exec(node, *argv, check=False, timeout=60)

    def _signal(self, node: str, name: str, unit: str, what: str) -> Fault:
        return Fault(f"SIG{name} to {what} of {node}", self._do(node, "systemctl", "kill", "-s", name, unit))

    def _kill_rank(self, node: str) -> Fault:
        return self._signal(node, self._chance.choice(["KILL", "TERM", "SEGV"]), "sparkd-rank@*", "the rank")

    def _hang_rank(self, node: str) -> Fault:
        return self._signal(node, "STOP", "sparkd-rank@*", "the rank")

    def _stop_unit(self, node: str) -> Fault:
        return Fault(f"systemctl stop of the rank of {node}", self._do(node, "systemctl", "stop", "sparkd-rank@*"))

    def _kill_daemon(self, node: str) -> Fault:
        return self._signal(node, "KILL", "sparkd.service", "sparkd")

    def _freeze_daemon(self, node: str) -> Fault:
        fault = self._signal(node, "STOP", "sparkd.service", "sparkd")
        return Fault(fault.what, fault.begin, self._do(node, "systemctl", "kill", "-s", "CONT", "sparkd.service"))

    def _restart_daemon(self, node: str) -> Fault:
        return Fault(f"restart of sparkd on {node}", self._do(node, "systemctl", "restart", "sparkd"))

    def _no_daemon(self, node: str) -> Fault:
        stop, start = (self._do(node, "systemctl", verb, "sparkd") for verb in ("stop", "start"))
        return Fault(f"no sparkd on {node}", stop, start)

    def _power(self, node: str) -> Fault:
        def cut() -> None:
            self._lab.power_cut(node)
            self._watch.gone(node)

        return Fault(f"power cut of {node}", cut, lambda: self._lab.power_on(node))

    def _reboot(self, node: str) -> Fault:
        def reboot() -> None:
            self._lab.reboot(node)
            self._watch.gone(node)

        return Fault(f"reboot of {node}", reboot)

    def _cable(self, node: str) -> Fault:
        port = self._chance.choice([0, 1])
        return Fault(
            f"no cable in {node} port {port}",
            lambda: self._lab.unplug(node, port),
            lambda: self._lab.cable(node, port),
        )

    def _flap(self, node: str) -> Fault:
        port, ms = self._chance.choice([0, 1]), self._chance.choice([50, 100, 1000])
        return Fault(f"flap of {ms} ms at {node} port {port}", lambda: self._lab.flap(node, port, ms))

    def _management(self, node: str) -> Fault:
        return Fault(
            f"no management network at {node}",
            lambda: self._lab.mgmt_cut(node),
            lambda: self._lab.mgmt_restore(node),
        )

    def _isolate(self, node: str) -> Fault:
        def cut() -> None:
            self._lab.mgmt_cut(node)
            self._lab.unplug(node, 0)
            self._lab.unplug(node, 1)

        def restore() -> None:
            self._lab.cable(node, 0)
            self._lab.cable(node, 1)
            self._lab.mgmt_restore(node)

        return Fault(f"{node} is isolated", cut, restore)

    def _drift(self, node: str) -> Fault:
        port = self._chance.choice(["enp1s0f0np0", "enP2p1s0f1np1"])
        how = self._chance.choice(
            ["route flush proto 173", f"link set {port} mtu 1500", f"-4 address flush dev {port}"]
        )
        return Fault(f"ip {how} on {node}", self._do(node, "ip", *how.split()))

    def _rendezvous(self, _node: str) -> Fault:
        block = self._do("spark1", "nft", _BLOCK)
        return Fault("no way to the rendezvous", block, self._do("spark1", "nft", "delete", "table", "inet", "soak"))

    def _lose_disk(self, node: str) -> Fault:
        script = "systemctl stop sparkd; rm -rf /var/lib/sparkd/*; systemctl start sparkd"

        def lose() -> None:
            self._watch.lost(node)
            self._lab.exec(node, "sh", "-c", script, check=False)

        return Fault(f"{node} loses /var/lib/sparkd", lose)

    def _ask(self, node: str) -> Fault:
        what = self._chance.choice(["start", "stop", "clear"])

        def ask() -> None:
            if what == "clear":
                self._watch.cleared()
            self._do(node, "curl", "-s", "-m", "5", "--unix-socket", "/run/sparkd/api.sock", "-X", "POST",
                     f"http://sparkd/v1/ring/{what}")()  # fmt: skip

        return Fault(f"{what} asked of {node}", ask)


class Soak:
    def __init__(self, lab: Lab, seed: int) -> None:
        self.ring = Ring(lab)
        self.watch = Watch(lab)
        self.chance = random.Random(seed)
        self.faults = Faults(self.ring, self.watch, self.chance)
        self.began = time.monotonic()
        self.done: list[str] = []
        self.recovered: list[float] = []

    def run(self, minutes: float) -> None:
        """Raises Violation."""
        self.settle()
        number = 0
        while time.monotonic() - self.began < minutes * 60:
            number += 1
            self.round(number)

    def round(self, number: int) -> None:
        chosen = [self.faults.next() for _ in range(self.chance.choice([1, 1, 2]))]
        ends = []
        for fault in chosen:
            time.sleep(self.chance.uniform(0, 4))
            self.say(f"round {number}: {fault.what}")
            self.attempt(fault.begin)
            ends.append(fault.end)
            self.done.append(fault.what.split(" of ")[0].split(" at ")[0].split(" on ")[0])
        time.sleep(self.chance.choice([0.2, 2, 5, 12]))
        for end in ends:
            if end is not None:
                self.attempt(end)
        took = self.settle()
        self.recovered.append(took)
        self.say(f"round {number}: {self.ring.get('spark1')['summary']}, {took:.1f} s after the last fault")
        self.watch.check()

    @staticmethod
    def attempt(step: Callable[[], object]) -> None:
        try:
            step()
        except LabError as error:
            # Of two faults one may leave nothing to do for the other; what matters is seen afterwards.
            print(f"           ({str(error).splitlines()[0]})", flush=True)

    def settle(self) -> float:
        """End all faults, wait until the ring serves; returns the seconds that took. Raises Violation."""
        self.mend()
        self.ring.lab.exec("spark1", "nft", "delete", "table", "inet", "soak", check=False)
        for node in NODES:
            self.ring.lab.exec(node, "systemctl", "kill", "-s", "CONT", "sparkd.service", check=False)
            self.ring.lab.exec(node, "systemctl", "start", "sparkd")
        began = time.monotonic()
        seen: dict[str, Any] = {}
        while time.monotonic() - began < BOUND:
            self.watch.check_samples()
            seen = self._rings()
            if len(seen) == len(NODES) and all(ring["phase"] == "ready" for ring in seen.values()):
                return time.monotonic() - began
            self._operate(seen.get("spark1"))
            time.sleep(0.5)
        told = {node: ring["summary"] for node, ring in seen.items()}
        raise Violation(f"the ring does not serve {BOUND:g} s after the end of all faults: {told}")

    def mend(self) -> None:
        """All plugged, all booted. A host of a busy machine may take more than a minute for its last breath."""
        for left in (2, 1, 0):
            try:
                return self.ring.lab.mend()
            except LabError as error:
                if not left:
                    raise
                self.say(f"(still booting: {str(error).splitlines()[0]})")
        return None

    def _rings(self) -> dict[str, Any]:
        found = {}
        for node in NODES:
            try:
                found[node] = self.ring.get(node)
            except (AssertionError, LabError, ValueError, IndexError):  # its daemon is about to come
                continue
        return found

    def _operate(self, seen: dict[str, Any] | None) -> None:
        """What an operator does about a ring that is down: clear it if it is held, and start it."""
        if seen is not None and seen["want"] == "down":
            if seen["phase"] == "held":
                self.watch.cleared()
            verb = "clear" if seen["phase"] == "held" else "start"
            self.ring.ask("spark1", "POST", f"/v1/ring/{verb}")

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.1f} s] {text}", flush=True)

    def summary(self) -> None:
        kinds = {kind: self.done.count(kind) for kind in sorted(set(self.done))}
        print(", ".join(f"{count} x {kind}" for kind, count in kinds.items()))
        longest = max(self.recovered, default=0.0)
        print(f"{len(self.recovered)} rounds, {len(self.done)} faults, the longest recovery {longest:.1f} s")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000))
    options = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, _interrupt)
    usual = places().directory
    lab = Lab(usual.with_name(f"{usual.name}-soak"))
    lab.down()
    print(f"seed {options.seed}, {options.minutes:g} minutes", flush=True)
    try:
        lab.up()
        quicken(lab)
        soak = Soak(lab, options.seed)
        try:
            with soak.watch:
                soak.run(options.minutes)
        except (Violation, AssertionError, LabError) as wrong:
            lab.dump_logs(LOGS)
            soak.say(f"VIOLATION (seed {options.seed}): {wrong}")
            print(f"journals of the nodes: {LOGS.relative_to(REPOSITORY)}")
            return 1
        finally:
            soak.summary()
        print("no violation; the ring is ready")
        return 0
    finally:
        lab.down()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
