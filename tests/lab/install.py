"""From bare hosts to a cluster: the package, the certificates, the configuration, the daemon."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.lab.layout import MANAGEMENT_DEVICE, NODES, address
from tests.lab.shell import LabError

if TYPE_CHECKING:
    from tests.lab.control import Lab

REPOSITORY = Path(__file__).resolve().parents[2]
ACTIVE_SECONDS = 30.0
HEARD_SECONDS = 30.0
CLUSTER = "/root/cluster"
PROFILE = Path(__file__).with_name("sglang") / "lab-tiny.toml"
"""How SGLang is started in the lab."""
FABRIC = """
[fabric]
measure_seconds = 0.15
# A virtual cable carries some Gb/s, more or less, as the machine below it has time.
rail_min_tcp_gbps = 0.1
node_slow_ratio = 0.02
"""


def newest_deb(directory: Path = REPOSITORY / "build/deb") -> Path | None:
    """The package built last, if there is one."""
    return max(directory.glob("sparkd_*.deb"), key=lambda path: path.stat().st_mtime, default=None)


def check(deb: Path | None) -> Path:
    """The package to install. Raises LabError if it is not there."""
    chosen = deb or newest_deb()
    if chosen is None:
        raise LabError("lab: install: no package in build/deb; `make deb` builds it (or give --deb PATH, or --bare)")
    if not chosen.is_file():
        raise LabError(f"lab: install: {chosen}: no such file")
    return chosen


def cluster_toml(engine: str, nodes: Sequence[str] = NODES, fabric: str = FABRIC) -> str:
    """The description `sparkctl cluster create` is given."""
    text = f'[cluster]\nname = "lab"\nbase_range = "10.77.0.0/21"\nmanagement_interface = "{MANAGEMENT_DEVICE}"\n'
    for rank, node in enumerate(nodes):
        text += f'\n[[cluster.node]]\nname = "{node}"\nrank = {rank}\naddress = "{address(node)}"\n'
    text += fabric + f'\n[engine]\nname = "{engine}"\n'
    if engine == "sglang":
        text += f'profile = "{PROFILE.stem}"\n'
    # Tests take the power from the same hosts again and again.
    return text + "\n[recovery]\nhard_reset_hours = 0\n"


def everywhere(lab: Lab, package: Path, engine: str, say: Callable[[str], None]) -> None:
    """Install the package on each host with apt, make them a cluster and start sparkd.

    Raises LabError naming the node and the step; a daemon that does not become active is reported with its journal.
    """
    say(f"installing {package.name}")
    lab.each(lambda node: _install(lab, node, package))
    if engine == "sglang":
        lab.each(lambda node: _add_profile(lab, node))
    say("making a cluster of them")
    first = lab.nodes[0]
    (lab.places.root(first) / "root/cluster.toml").write_text(cluster_toml(engine, lab.nodes))
    lab.exec(first, "sparkctl", "cluster", "create", "/root/cluster.toml", "--out", CLUSTER)
    made = lab.places.root(first) / CLUSTER.lstrip("/")
    for node in lab.nodes:
        if not (made / node).is_dir():
            raise LabError(f"{first}: sparkctl cluster create: it made no {CLUSTER}/{node}")
        if node != first:
            # An administrator would use scp; the directory holds the node's keys and keeps its modes.
            shutil.copytree(made / node, lab.places.root(node) / CLUSTER.lstrip("/") / node)
    say("starting sparkd")
    lab.each(lambda node: _configure(lab, node))
    say("hearing the cables")
    lab.each(lambda node: _wait_heard(lab, node))


# nspawn gives each host a boot id of its own by a bind mount over /proc, which systemd loses in the mount namespace of
# a service with this setting: all hosts would have this machine's boot id, and none would ever seem to reboot.
DROP_IN = "[Service]\nProtectControlGroups=no\n"


def _install(lab: Lab, node: str, package: Path) -> None:
    drop_ins = lab.places.root(node) / "etc/systemd/system/sparkd.service.d"
    drop_ins.mkdir(parents=True, exist_ok=True)
    (drop_ins / "lab.conf").write_text(DROP_IN)
    # Not below /root: apt's own user could not read it there.
    shutil.copyfile(package, lab.places.root(node) / "var/cache" / package.name)
    apt = ("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-y", "--no-install-recommends")
    lab.exec(node, *apt, f"/var/cache/{package.name}", timeout=120)


def _add_profile(lab: Lab, node: str) -> None:
    profiles = lab.places.root(node) / "etc/sparkd/profiles"
    profiles.mkdir(exist_ok=True)
    shutil.copyfile(PROFILE, profiles / PROFILE.name)


def _configure(lab: Lab, node: str) -> None:
    lab.exec(node, "sparkctl", "cluster", "install", f"{CLUSTER}/{node}")
    started = lab.exec(node, "systemctl", "enable", "--now", "sparkd", check=False)
    end = time.monotonic() + ACTIVE_SECONDS
    state = ""
    while time.monotonic() < end:
        state = lab.exec(node, "systemctl", "show", "sparkd", "-P", "ActiveState").stdout.strip()
        if state == "active":
            return
        if state == "failed" or started.returncode:
            break
        time.sleep(0.05)
    story = lab.exec(node, "journalctl", "-u", "sparkd", "-n", "15", "-o", "cat", "--no-pager").stdout
    raise LabError(f"{node}: start sparkd: {started.stderr.strip() or f'it is {state}'}\n{story.rstrip()}")


def _wait_heard(lab: Lab, node: str) -> None:
    """Wait until the node knows all cables, without which a start is refused. Raises LabError with what it says."""
    ask = ("curl", "-sS", "-f", "-m", "5", "--unix-socket", "/run/sparkd/api.sock", "http://sparkd/v1/ring")
    end = time.monotonic() + HEARD_SECONDS
    while True:
        answer = lab.exec(node, *ask, check=False)
        said: dict[str, Any] = {"cables": [], "summary": answer.stderr.strip()}
        ring = json.loads(answer.stdout) if answer.returncode == 0 else said
        # A package of before the hello has nothing to wait for.
        if ring.get("cables", True):
            return
        if time.monotonic() > end:
            found = [f"{each['node']}: {each['subject']}: {each['observed']}" for each in ring.get("findings", ())]
            raise LabError(f"{node}: hear the cables: {'; '.join(found) or ring['summary']}")
        time.sleep(0.1)
