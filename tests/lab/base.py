"""The base root file system all hosts share: made once, packed, and kept in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.lab.shell import LabError, environment, locked, run, tail

# The daemon's dependencies are here and not installed later: the hosts have no way out to a mirror.
PACKAGES: tuple[str, ...] = (
    "systemd-sysv", "dbus", "polkitd", "iproute2", "iputils-ping", "nftables", "procps", "kmod", "curl",
    "ca-certificates",
    "python3", "python3-gi", "gir1.2-glib-2.0", "python3-pydbus", "python3-pyroute2", "python3-fastapi",
    "python3-uvicorn", "python3-pydantic", "python3-systemd", "python3-cryptography", "python3-prometheus-client",
)  # fmt: skip
OPTIONS: tuple[str, ...] = (
    "--variant=apt",
    "--mode=root",
    '--aptopt=APT::Install-Recommends "false"',
    '--aptopt=Acquire::Languages "none"',
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    # The package's own documentation is wanted, that of a hundred dependencies is not.
    "--dpkgopt=path-exclude=/usr/share/doc/[!s]*",
    "--dpkgopt=force-unsafe-io",
)
MASKED: tuple[str, ...] = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "console-getty.service", "getty@tty1.service", "systemd-networkd.service",
    "systemd-firstboot.service",
)  # fmt: skip
# First process of each host. nspawn mounts what it needs read-only; the daemon's interface sysctls and the
# resource limits of units would be refused, the latter silently, so both are opened before systemd starts.
INIT = """#!/bin/sh
for name in memory pids cpu cpuacct cpu,cpuacct blkio devices freezer; do
    if [ -d "/sys/fs/cgroup/$name" ]; then mount -o remount,bind,rw "/sys/fs/cgroup/$name"; fi
done
mount --bind /proc/sys/net /proc/sys/net && mount -o remount,bind,rw /proc/sys/net
exec /lib/systemd/systemd
"""
INIT_PATH = "/usr/local/sbin/lab-init"
HOOKS: tuple[str, ...] = (
    'rm -rf "$1"/var/cache/apt/archives/*.deb && mkdir -p "$1"/var/log/journal',
    # mmdebstrap copies the machine's name; an empty machine-id is filled in per host.
    'echo lab >"$1"/etc/hostname && : >"$1"/etc/machine-id && rm -f "$1"/var/lib/dbus/machine-id',
    "for unit in " + " ".join(MASKED) + '; do ln -sf /dev/null "$1"/etc/systemd/system/$unit; done',
)
UNFINISHED: tuple[str, str] = ("scratch", "unpacking")
KEPT = 3
"""How many bases stay in the cache; a base takes about 290 MB."""
TOOLS: dict[str, str] = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "zstd": "zstd",
    "ip": "iproute2",
}


def require_tools() -> None:
    """Raise LabError unless the machine has what the lab needs; SPARKD_LAB_INSTALL=1 installs it."""
    if os.geteuid() != 0:
        raise LabError("lab: start: namespaces, mounts and hosts need root")
    search = environment()["PATH"]
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool, path=search) is None]
    if not missing:
        return
    command = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.environ.get("SPARKD_LAB_INSTALL") != "1":
        advice = f"run `{' '.join(command)}`, or set SPARKD_LAB_INSTALL=1"
        raise LabError(f"lab: start: missing {', '.join(missing)}; {advice}")
    if run(command, step="install tools", check=False, timeout=600).returncode != 0:
        # A fresh machine has no package lists, or old ones whose files are gone.
        run(["apt-get", "update"], step="update package lists", timeout=600)
        run(command, step="install tools", timeout=600)


def codename() -> str:
    """The distribution release of this machine, which the hosts run too."""
    for line in Path("/etc/os-release").read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "VERSION_CODENAME":
            return value.strip('"')
    raise LabError("lab: base: /etc/os-release names no VERSION_CODENAME; a Debian or Ubuntu release is needed")


def sources(suite: str, directory: Path = Path("/etc/apt")) -> list[str]:
    """The machine's own apt sources of its release, as one-line entries; third-party ones are left out."""
    found: list[str] = []
    for path in [directory / "sources.list", *sorted((directory / "sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            text = path.read_text()
            found += _stanzas(text) if path.suffix == ".sources" else _one_liners(text)
    allowed = {suite, f"{suite}-updates", f"{suite}-security", f"{suite}/updates"}
    entries = (entry for entry in _split(found) if entry[2] in allowed)
    chosen = [f"deb {options}{uri} {name} {parts}" for options, uri, name, parts in entries]
    if not any(f" {suite} " in f"{entry} " for entry in chosen):
        raise LabError(f"lab: base: no source for {suite} in {directory}/sources.list or sources.list.d")
    return chosen


def _split(lines: list[str]) -> Iterator[tuple[str, str, str, str]]:
    """Split one-line entries into options (with a blank after them, or empty), URI, suite, components."""
    for line in lines:
        rest = line.removeprefix("deb").strip()
        options = ""
        if rest.startswith("["):
            inside, _, rest = rest.partition("]")
            options = f"{inside}] "
        words = rest.split()
        if len(words) >= 3:
            yield options, words[0], words[1], " ".join(words[2:])


def _one_liners(text: str) -> list[str]:
    lines = (line.split("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line.split()[:1] == ["deb"]]


def _stanzas(text: str) -> Iterator[str]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in lines.split("\n\n"):
        fields: dict[str, str] = {}
        for line in stanza.splitlines():
            key, colon, value = line.partition(":")
            if colon and not line[0].isspace():
                fields[key.lower()] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() in ("no", "false"):
            continue
        key_file = fields.get("signed-by", "")
        options = [f"signed-by={key_file}"] if key_file.startswith("/") else []
        options += ["trusted=yes"] if fields.get("trusted", "").lower() == "yes" else []
        bracket = f"[{' '.join(options)}] " if options else ""
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield f"deb {bracket}{uri} {suite} {fields.get('components', '')}"


def proxy_options() -> list[str]:
    """apt's proxy settings of this machine: mmdebstrap runs apt with a configuration of its own."""
    dump = run(["apt-config", "dump"], step="read apt's configuration").stdout
    lines = [line.rstrip(";") for line in dump.splitlines()]
    return [f"--aptopt={line}" for line in lines if line.lower().startswith("acquire::http") and "roxy" in line]


def make(cache: Path) -> Path:
    """Directory of the unpacked base root file system, made or taken from the cache. Nobody writes to it.

    Raises LabError if it cannot be made.
    """
    suite = codename()
    lines = sources(suite)
    definition = "\n".join([suite, platform.machine(), *PACKAGES, *OPTIONS, *HOOKS, INIT, *lines])
    key = hashlib.sha256(definition.encode()).hexdigest()[:16]
    archive, tree = cache / f"base-{key}.tar.zst", cache / f"base-{key}"
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(cache / ".lock", wait=True):
        if not tree.is_dir():
            if not archive.is_file():
                _bootstrap(suite, lines, archive)
            _unpack(archive, tree)
            _prune(cache)
    return tree


def tidy(cache: Path) -> None:
    """Remove what an interrupted `make` has left, unless another one is at work."""
    if any((cache / name).exists() for name in UNFINISHED):
        with contextlib.suppress(LabError), locked(cache / ".lock", wait=False):
            for name in UNFINISHED:
                shutil.rmtree(cache / name, ignore_errors=True)


def _prune(cache: Path) -> None:
    """Forget bases of former definitions, except the newest ones and what a lab is standing on."""
    mounts = Path("/proc/self/mounts").read_text()
    archives = sorted(cache.glob("base-*.tar.zst"), key=lambda path: path.stat().st_mtime, reverse=True)
    for archive in archives[KEPT:]:
        tree = archive.with_name(archive.name.removesuffix(".tar.zst"))
        if f"lowerdir={tree}," not in mounts:
            shutil.rmtree(tree, ignore_errors=True)
            archive.unlink()


def mmdebstrap(
    scratch: Path,
    target: Path,
    suite: str,
    lines: Sequence[str],
    packages: Sequence[str],
    hooks: Sequence[str] = (),
    *,
    step: str,
) -> None:
    """Make a root file system, as a directory or an archive by the name of `target`. Raises LabError naming `step`.

    In a PID and mount namespace of its own: killed, it takes the whole tree of apt and dpkg with it, together with what
    mmdebstrap had mounted.
    """
    command = [
        "setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
        "mmdebstrap", *OPTIONS, *proxy_options(), f"--include={','.join(packages)}",
        *(f"--customize-hook={hook}" for hook in hooks), suite, str(target), "-",
    ]  # fmt: skip
    done = subprocess.run(
        command, check=False, input="\n".join(lines) + "\n", text=True, errors="replace", capture_output=True,
        env={**environment(), "TMPDIR": str(scratch)},
    )  # fmt: skip
    if done.returncode != 0:
        raise LabError(f"{step}: mmdebstrap: exit {done.returncode}: {tail(done.stderr)}")


def _bootstrap(suite: str, lines: list[str], archive: Path) -> None:
    scratch = archive.with_name(UNFINISHED[0])
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    (scratch / "init").write_text(INIT)
    partial = scratch / archive.name
    hooks = (*HOOKS, f'install -m 755 "{scratch}/init" "$1{INIT_PATH}"')
    mmdebstrap(scratch, partial, suite, lines, PACKAGES, hooks, step="lab: base")
    partial.replace(archive)
    shutil.rmtree(scratch)


def _unpack(archive: Path, tree: Path) -> None:
    partial = tree.with_name(UNFINISHED[1])
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    how = ["--zstd", "--numeric-owner", "--xattrs", "--xattrs-include=*"]
    run(["tar", *how, "-xpf", str(archive), "-C", str(partial)], step="unpack the base", timeout=300)
    partial.replace(tree)
