"""What the maintainer scripts do, found by running them with stand-ins for the commands that they call."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.built import ROOT, Package

STAND_INS = ("systemctl", "deb-systemd-invoke", "deb-systemd-helper", "systemd-sysusers", "py3compile", "py3clean",
             "pypy3compile", "dpkg", "update-rc.d", "invoke-rc.d")  # fmt: skip
PATHS = re.compile(r"(?<![\w./])/(?=(etc|var|run)/)")
OTHER_PATHS = re.compile(r"(?<![\w.@/])/(etc|var|run|srv|home|root)\b")
ACTIONS = ("start", "stop", "restart", "try-restart", "reload-or-restart", "kill")


class Machine:
    """A directory that stands for the file system of a machine where systemd runs."""

    def __init__(self, directory: Path, package: Package) -> None:
        self.root = directory / "machine"
        self.log = directory / "calls"
        self.package = package
        (self.root / "run/systemd/system").mkdir(parents=True)
        self.commands = directory / "commands"
        self.commands.mkdir()
        for name in STAND_INS:
            path = self.commands / name
            path.write_text(f'#!/bin/sh\necho "{name} $*" >>{self.log}\n')
            path.chmod(0o755)

    def run(self, script: str, *arguments: str) -> list[str]:
        """Run a maintainer script. Returns the commands that it called, in order."""
        # Every path of the machine is moved below the directory: these scripts delete.
        moved = PATHS.sub(rf"{self.root}\g<0>", self.package.script(script))
        code = "\n".join(line for line in moved.splitlines() if not line.lstrip().startswith("#"))
        assert not OTHER_PATHS.search(code.replace(f"{self.root}/", "@")), code
        self.log.write_text("")
        subprocess.run(
            ["/bin/sh", "-c", moved, script, *arguments],
            env={"PATH": f"{self.commands}:{os.environ['PATH']}", "DPKG_MAINTSCRIPT_PACKAGE": "sparkd"},
            check=True, cwd=self.root, timeout=30,
        )  # fmt: skip
        return self.log.read_text().splitlines()

    def touched(self, script: str, *arguments: str) -> list[str]:
        """What a script starts or stops: only the calls that do."""
        calls = self.run(script, *arguments)
        return [call for call in calls if any(word in ACTIONS for word in call.split()[1:])]


@pytest.fixture
def machine(tmp_path: Path, package: Package) -> Machine:
    return Machine(tmp_path, package)


def test_first_installation_makes_the_users_before_it_starts_the_daemon(machine: Machine) -> None:
    calls = machine.run("postinst", "configure", "")
    assert "systemd-sysusers sparkd.conf" in calls
    assert calls.index("systemd-sysusers sparkd.conf") < calls.index("deb-systemd-invoke start sparkd.service")


def test_an_upgrade_restarts_the_daemon_and_no_rank(machine: Machine) -> None:
    assert machine.touched("prerm", "upgrade", "0.2.0") == []
    assert machine.touched("postrm", "upgrade", "0.2.0") == []
    assert machine.touched("postinst", "configure", "0.1.0") == ["deb-systemd-invoke restart sparkd.service"]
    assert not [call for call in machine.run("postinst", "configure", "0.1.0") if "rank" in call]


@pytest.mark.parametrize("arguments", [("failed-upgrade", "0.1.0"), ("deconfigure", "in-favour", "x", "1")])
def test_no_other_way_out_touches_a_rank(machine: Machine, arguments: tuple[str, ...]) -> None:
    assert machine.touched("prerm", *arguments) == []


def test_removal_stops_the_daemon_and_then_its_ranks(machine: Machine) -> None:
    assert machine.touched("prerm", "remove") == [
        "deb-systemd-invoke stop sparkd.service",
        "systemctl stop sparkd-rank@*.service sparkd-measure@*.service",
    ]


def test_removal_keeps_configuration_and_state(machine: Machine) -> None:
    files = configured(machine.root)
    machine.run("prerm", "remove")
    machine.run("postrm", "remove")
    assert [file for file in files if not file.exists()] == []


def test_purge_deletes_what_the_commands_wrote_and_nothing_else(machine: Machine) -> None:
    configured(machine.root)
    other = machine.root / "etc/sparkd/notes"
    other.write_text("mine")
    machine.run("postrm", "purge")
    assert sorted(path for path in machine.root.rglob("*") if path.is_file()) == [other]
    other.unlink()
    machine.run("postrm", "purge")
    assert not other.parent.exists()


def test_purge_deletes_all_that_an_installation_of_a_configuration_makes(machine: Machine, tmp_path: Path) -> None:
    (machine.root / "etc").mkdir()
    (machine.root / "etc/group").write_text("sparkd:x:996:\n")
    made = tmp_path / "made"
    sparkctl("cluster", "create", str(ROOT / "packaging/examples/cluster.toml"), "--out", str(made))
    for change in ("", "# a change, so that the former file is kept\n"):
        with (made / "spark1/sparkd.toml").open("a") as file:
            file.write(change)
        sparkctl("cluster", "install", str(made / "spark1"), "--root", str(machine.root))
    assert len(list((machine.root / "etc/sparkd").rglob("*"))) > 6
    machine.run("postrm", "purge")
    assert not (machine.root / "etc/sparkd").exists()


def sparkctl(*arguments: str) -> None:
    """Run the command of this tree."""
    subprocess.run([sys.executable, "-m", "sparkd.cli", *arguments], cwd=ROOT, check=True, timeout=60)


def configured(root: Path) -> list[Path]:
    """Make the files of a configured node that has run. Returns them."""
    names = (
        "etc/sparkd/sparkd.toml", "etc/sparkd/sparkd.toml.d/site.toml", "etc/sparkd/tokens.json",
        "etc/sparkd/cluster.key",
        "etc/sparkd/tls/node.key", "var/lib/sparkd/intent.json", "var/cache/sparkd-rank/kernel",
        "run/sparkd/rank-7.env",
    )  # fmt: skip
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    return [root / name for name in names]
