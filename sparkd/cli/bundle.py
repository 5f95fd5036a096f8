"""A node's files: made from a description (create), and put under /etc/sparkd (install)."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import tomllib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sparkd.cli.certificates import Pair, expiry, issue, make_ca
from sparkd.cli.failure import Exit, Failure
from sparkd.config import ConfigError, Settings, load, load_cluster

FILES = ("tls/ca.crt", "tls/node.crt", "tls/node.key", "cluster.key", "sparkd.toml")
"""Of each node. sparkd.toml comes last, since its presence is what makes a machine configured."""
CA = "ca"
GROUP = "sparkd"


@dataclass(frozen=True)
class Made:
    """What create has written. kept: an earlier CA and key are still in force."""

    nodes: tuple[str, ...]
    kept: bool


def create(description: Path, out: Path, *, force: bool, now: datetime) -> Made:
    """Write OUT/ca and OUT/NODE for each node of the description. Raises Failure, before it has written anything.

    force: go on in an existing OUT, with its CA and cluster key, so that nodes which already have theirs and
    nodes which get new files still trust each other.
    """
    try:
        cluster = load_cluster(description)
    except ConfigError as error:
        raise Failure(Exit.CONFIG, str(error)) from error
    names = [node.name for node in cluster.nodes]
    if CA in names:
        text = f'{description}: cluster.node: found a node named "{CA}", expected another name: the CA is kept there'
        raise Failure(Exit.CONFIG, text)
    if not force and out.exists() and (not out.is_dir() or any(out.iterdir())):
        hint = "choose another directory, or --force: its CA and key stay, certificates and sparkd.toml are new"
        raise Failure(Exit.CONFIG, f"{out} exists", hint)
    text = description.read_text(encoding="utf-8")
    ca = _kept_ca(out) or make_ca(cluster.name, now)
    cluster_key = _kept(out, "cluster.key") or f"{secrets.token_hex(32)}\n".encode()
    kept = (out / CA / "ca.key").exists()
    files = {Path(CA, "ca.key"): ca.key, Path(CA, "ca.crt"): ca.certificate}
    for node in cluster.nodes:
        try:
            pair = issue(ca, node.name, node.address, now)
        except ValueError as error:
            raise Failure(Exit.CONFIG, f"{out / CA}: no usable CA: {error}") from error
        contents = (ca.certificate, pair.certificate, pair.key, cluster_key, _for_node(text, node.name))
        files |= {Path(node.name, name): content for name, content in zip(FILES, contents, strict=True)}
    try:
        for name, content in files.items():
            _directory(out, name.parent)
            _write(out / name, content, 0o600)
    except OSError as error:
        raise Failure(Exit.ERROR, f"cannot write to {out}: {error}") from error
    return Made(tuple(names), kept)


def check_bundle(bundle: Path, now: datetime) -> Settings:
    """The settings in a node's directory as create has made it. Raises Failure with all that is wrong with it."""
    if not bundle.is_dir():
        if bundle.exists():
            raise Failure(Exit.CONFIG, f"{bundle} is not a directory", "give DIR/NODE, which create has made")
        near = _near(bundle)
        hint = f"there is {near}: sparkctl cluster install {near}" if near else "give DIR/NODE, which create has made"
        raise Failure(Exit.CONFIG, f"no such directory: {bundle.absolute()}", hint)
    if not (bundle / "sparkd.toml").is_file():
        nodes = sorted(path.parent for path in bundle.glob("*/sparkd.toml"))
        if nodes:
            hint = f"give the one of this machine, e.g. {nodes[0]}"
            raise Failure(Exit.CONFIG, f"{bundle} holds the directories of several nodes", hint)
    try:
        settings = load(bundle / "sparkd.toml", {}, installed=False)
    except ConfigError as error:
        raise Failure(Exit.CONFIG, str(error)) from error
    for name in ("ca.crt", "node.crt"):
        end = expiry((bundle / "tls" / name).read_bytes())
        if end <= now:
            text = f"{bundle / 'tls' / name}: file: found one that expired on {end:%Y-%m-%d}, expected one in force"
            raise Failure(Exit.CONFIG, text, "make new ones with `sparkctl cluster create --force`")
    return settings


def install(bundle: Path, root: Path, owner: int, group: int) -> list[str]:
    """Copy a checked bundle to ROOT/etc/sparkd; returns the paths that were kept as a backup. Raises OSError.

    owner, group: numeric; secrets are readable for the group, that is for the daemon.
    """
    etc = root / "etc/sparkd"
    _own(etc, owner, owner, 0o755)
    _own(etc / "tls", owner, group, 0o750)
    kept = []
    for name in FILES:
        source, target = bundle / name, etc / name
        content = source.read_bytes()
        if name == "sparkd.toml" and target.exists() and target.read_bytes() != content:
            backup = target.with_name("sparkd.toml.old")
            shutil.copy2(target, backup)
            kept.append(str(backup))
        public = name == "sparkd.toml"
        _write(target, content, 0o644 if public else 0o640, (owner, owner if public else group))
    return kept


def _near(missing: Path) -> Path | None:
    """A node's directory that may be meant by one that does not exist, seen from the working directory."""
    name = missing.name
    bundles = sorted(path.parent.parent for path in Path().glob("*/ca/ca.crt"))
    likely = [path / name for path in (Path("cluster"), *bundles, Path())]
    return next((path for path in likely if name and (path / "sparkd.toml").is_file()), None)


def _for_node(text: str, node: str) -> bytes:
    header = f'[node]\nname = "{node}"\n'
    made = f"{header}\n{text}"
    try:
        same = tomllib.loads(made) == {"node": {"name": node}, **tomllib.loads(text)}
    except tomllib.TOMLDecodeError:
        same = False
    # A description may start with keys outside any table (`cluster.name = ...`), which must stay in front.
    return (made if same else f"{text}\n{header}").encode()


def _kept_ca(out: Path) -> Pair | None:
    key, certificate = out / CA / "ca.key", out / CA / "ca.crt"
    if not key.exists() and not certificate.exists():
        return None
    try:
        return Pair(certificate.read_bytes(), key.read_bytes())
    except OSError as error:
        raise Failure(Exit.CONFIG, f"{error.filename}: {(error.strerror or '').lower()}; the CA needs both") from error


def _kept(out: Path, name: str) -> bytes | None:
    found: dict[bytes, Path] = {}
    for path in sorted(out.glob(f"*/{name}")):
        found.setdefault(path.read_bytes(), path)
    if len(found) > 1:
        text = f"{' and '.join(str(path) for path in found.values())} differ"
        raise Failure(Exit.CONFIG, text, "all nodes share one; delete those that are not in force")
    return next(iter(found), None)


def _directory(out: Path, inner: Path) -> None:
    for path in (out, *(out / parent for parent in reversed(inner.parents)), out / inner):
        path.mkdir(mode=0o700, parents=path == out, exist_ok=True)


def _own(path: Path, owner: int, group: int, mode: int) -> None:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(path, owner, group)


def _write(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None = None) -> None:
    """Replace the file in one step; nobody ever sees a part of it, or all of it with a wider mode."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            if owner is not None and os.geteuid() == 0:
                os.fchown(descriptor, *owner)
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
