"""The units: what systemd makes of them, and what they promise."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.packaging.built import Package, run

UNITS = "/lib/systemd/system"


def settings(package: Package, unit: str) -> dict[str, list[str]]:
    """The settings of a unit by section and key, such as "Service.Type"."""
    found: dict[str, list[str]] = {}
    section = ""
    for line in package.text(f"{UNITS}/{unit}").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith(("#", ";")):
            key, _, value = line.partition("=")
            found.setdefault(f"{section}.{key}", []).append(value)
    return found


@pytest.fixture
def host(package: Package, tmp_path: Path) -> Path:
    """A root file system with the package and the units of systemd itself."""
    root = tmp_path / "host"
    shutil.copytree(package.root, root, symlinks=True)
    for pattern in ("*.target", "*.slice", "*.socket", "dbus.service"):
        for unit in Path(UNITS).glob(pattern):
            shutil.copy(unit, root / UNITS.lstrip("/"), follow_symlinks=False)
    return root


def verify(root: Path) -> str:
    """What systemd finds wrong with the units: unknown settings, commands that are not there."""
    done = run(
        ["systemd-analyze", "verify", "--recursive-errors=no", "--man=no", f"--root={root}",
         "sparkd.service", "sparkd-rank@7.service", "sparkd-drop-caches@7.service", "sparkd-measure@7.service"],
        "systemd", check=False,
    )  # fmt: skip
    return done.stderr or ("" if done.returncode == 0 else f"exit status {done.returncode}")


def test_systemd_understands_the_units(host: Path) -> None:
    assert verify(host) == ""


@pytest.mark.parametrize(
    ("unit", "old", "new", "complaint"),
    [
        ("sparkd.service", "WatchdogSec=", "WatchdogSecs=", "Unknown key"),
        ("sparkd-rank@.service", "/usr/lib/sparkd/rank", "/usr/lib/sparkd/rang", "not executable"),
        ("sparkd-measure@.service", "/usr/lib/sparkd/measure", "/usr/lib/sparkd/measured", "not executable"),
    ],
)
def test_the_check_above_finds_mistakes(host: Path, unit: str, old: str, new: str, complaint: str) -> None:
    path = host / UNITS.lstrip("/") / unit
    path.write_text(path.read_text().replace(old, new))
    assert complaint in verify(host)


def test_the_daemon_stays_confined(package: Package) -> None:
    path = package.root / UNITS.lstrip("/") / "sparkd.service"
    # The scale of systemd goes to 100; without its own restrictions this unit would be at 92.
    run(["systemd-analyze", "security", "--offline=true", "--threshold=25", "--no-pager", str(path)], "systemd")
    found = settings(package, "sparkd.service")
    assert found["Service.User"] == found["Service.Group"] == ["sparkd"]
    capabilities = found["Service.AmbientCapabilities"]
    assert capabilities == found["Service.CapabilityBoundingSet"] == ["CAP_NET_ADMIN CAP_SYSLOG"]
    # What CAP_SYSLOG is for is reading /dev/kmsg, not clearing the log.
    assert "syslog" in found["Service.SystemCallFilter"][-1].removeprefix("~").split()
    assert found["Service.RestrictAddressFamilies"] == ["AF_UNIX AF_INET AF_INET6 AF_NETLINK"]
    # It would make /proc/sys read-only, where the daemon sets the interface sysctls.
    assert "Service.ProtectKernelTunables" not in found


def test_the_daemon_is_watched(package: Package) -> None:
    found = settings(package, "sparkd.service")
    wanted = {"Type": "notify", "WatchdogSec": "30", "Restart": "on-failure", "RuntimeDirectory": "sparkd"}
    wanted |= {"RuntimeDirectoryMode": "0711", "RuntimeDirectoryPreserve": "yes", "StateDirectory": "sparkd"}
    assert {key: found[f"Service.{key}"] for key in wanted} == {key: [value] for key, value in wanted.items()}
    assert found["Install.WantedBy"] == ["multi-user.target"]


def test_a_rank_is_started_by_nobody_but_the_daemon(package: Package) -> None:
    found = settings(package, "sparkd-rank@.service")
    wanted = {"Type": "notify", "NotifyAccess": "main", "Restart": "no", "User": "sparkd-rank", "KillMode": "mixed"}
    wanted |= {"TimeoutStartSec": "infinity", "TimeoutStopSec": "10", "LimitMEMLOCK": "infinity"}
    wanted |= {"EnvironmentFile": "/run/sparkd/rank-%i.env", "ExecStart": "/usr/lib/sparkd/rank"}
    assert {key: found[f"Service.{key}"] for key in wanted} == {key: [value] for key, value in wanted.items()}
    assert not [key for key in found if key.startswith("Install.")]


def test_what_measures_is_started_by_nobody_but_the_daemon_and_ends_by_itself(package: Package) -> None:
    found = settings(package, "sparkd-measure@.service")
    wanted = {"Type": "exec", "NotifyAccess": "main", "Restart": "no", "User": "sparkd-rank", "RuntimeMaxSec": "300"}
    wanted |= {"LimitMEMLOCK": "infinity", "EnvironmentFile": "/run/sparkd/measure-%i.env"}
    # What was measured outlives the unit, and sparkd, which is another user, reads it.
    wanted |= {"RuntimeDirectory": "sparkd-measure", "RuntimeDirectoryMode": "0755", "RuntimeDirectoryPreserve": "yes"}
    assert {key: found[f"Service.{key}"] for key in wanted} == {key: [value] for key, value in wanted.items()}
    # perftest opens /dev/infiniband.
    assert "Service.PrivateDevices" not in found
    assert not [key for key in found if key.startswith("Install.")]
    path = package.root / UNITS.lstrip("/") / "sparkd-measure@.service"
    run(["systemd-analyze", "security", "--offline=true", "--threshold=35", "--no-pager", str(path)], "systemd")


def test_stopping_the_daemon_leaves_ranks_running_and_the_other_way_round(package: Package) -> None:
    for unit in ("sparkd.service", "sparkd-rank@.service"):
        dependencies = {key for key in settings(package, unit) if key.startswith("Unit.")}
        allowed = {"Unit.Description", "Unit.Documentation", "Unit.After", "Unit.StartLimitIntervalSec"}
        assert dependencies - {"Unit.Wants"} <= allowed
    for unit, other in (("sparkd.service", "rank"), ("sparkd-rank@.service", "sparkd.service")):
        found = settings(package, unit)
        assert other not in " ".join([*found["Unit.After"], *found.get("Unit.Wants", [])])


def test_the_page_cache_goes_before_a_rank_starts_and_cannot_keep_it_from_starting(package: Package) -> None:
    """Field report page-cache-counts: the one privileged step, bounded in time, on a Spark only."""
    helper, rank = "sparkd-drop-caches@.service", settings(package, "sparkd-rank@.service")
    instance = helper.replace("@", "@%i")
    assert instance in rank["Unit.Wants"] and instance in rank["Unit.After"]
    assert not {"Unit.Requires", "Unit.BindsTo", "Unit.Requisite"} & rank.keys()
    found = settings(package, helper)
    wanted = {"Unit.ConditionArchitecture": "arm64", "Unit.ConditionPathExists": "/sys/module/nvidia"}
    wanted |= {"Service.Type": "oneshot", "Service.TimeoutStartSec": "20", "Service.CapabilityBoundingSet": ""}
    assert {key: found[key] for key in wanted} == {key: [value] for key, value in wanted.items()}


@pytest.mark.parametrize("unit", ["sparkd.service", "sparkd-rank@.service", "sparkd-measure@.service"])
def test_the_documentation_that_a_unit_names_is_installed(package: Package, unit: str) -> None:
    for link in settings(package, unit)["Unit.Documentation"][0].split():
        if page := re.fullmatch(r"man:(\w+)\((\d)\)", link):
            assert f"/usr/share/man/man{page[2]}/{page[1]}.{page[2]}.gz" in package.files
        else:
            assert link.removeprefix("file://") in package.files


def test_users_are_made_for_the_units(package: Package) -> None:
    lines = [line.split() for line in package.text("/usr/lib/sysusers.d/sparkd.conf").splitlines()]
    users = {line[1] for line in lines if line and line[0] == "u"}
    assert users == {settings(package, unit)["Service.User"][0] for unit in ("sparkd.service", "sparkd-rank@.service")}


def test_without_a_configuration_the_daemon_is_skipped_with_a_hint(package: Package, tmp_path: Path) -> None:
    assert settings(package, "sparkd.service")["Service.ExecCondition"] == ["/usr/lib/sparkd/configured"]
    script = package.text("/usr/lib/sparkd/configured").replace("-e /etc/sparkd/", f"-e {tmp_path}/")

    def condition() -> subprocess.CompletedProcess[str]:
        return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False, timeout=10)

    skipped = condition()
    # 1 to 254 skip the unit; 255 would make it fail.
    assert (skipped.returncode, skipped.stderr) == (1, "")
    assert skipped.stdout.startswith("<5>Not configured: /etc/sparkd/sparkd.toml is missing")
    named = re.findall(r"/usr/share/doc/sparkd/[\w.]+\w", skipped.stdout)
    assert named
    assert set(named) <= set(package.files)
    (tmp_path / "sparkd.toml").touch()
    assert (condition().returncode, condition().stdout) == (0, "")
