"""`sparkd-engine model ...`: the checkpoint on this host."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint import receipts
from runtime.checkpoint.fetch import STREAMS, fetch
from runtime.checkpoint.manifest import OWN, Manifest
from runtime.checkpoint.remote import Remote, peer_context
from runtime.checkpoint.sources import Hub, Peer, Source
from runtime.checkpoint.status import removable, remove, standing
from runtime.checkpoint.verify import Fault, record, verify
from runtime.durable import alone, gib, read_json
from runtime.engram.check import check_rows, packed_files
from runtime.engram.ownership import tables_of
from runtime.engram.pack import is_packed, job_of, pack, room_for
from runtime.engram_format import EngramFormatError, read_header, source_digest, tensor_names
from runtime.progress import Progress
from runtime.trouble import Trouble

TLS = Path("/etc/sparkd/tls")
PACKED = "engram"
"""The directory below a checkpoint where packed rows are, unless another one is named."""
WRONG = 3


def add(commands: Any) -> None:
    """The subcommands that work on a copy."""
    fetching = _command(commands, "fetch", _fetch, "bring what is missing from a hub or from a peer's copy")
    fetching.add_argument("--from", dest="origin", metavar="URL", help="the hub; or $HF_ENDPOINT")
    fetching.add_argument("--peer", metavar="ADDRESS[:PORT]", help="a node that runs `sparkd-engine model serve`")
    fetching.add_argument("--repository", metavar="OWNER/NAME", help="at the hub")
    fetching.add_argument("--revision", metavar="COMMIT", help="at the hub; a commit, so that it is always the same")
    fetching.add_argument("--manifest", type=Path, metavar="FILE", help="fetch exactly what this one says")
    fetching.add_argument("--streams", type=int, default=STREAMS, metavar="N", help="requests at once (%(default)s)")
    fetching.add_argument("--token-file", type=Path, metavar="FILE", help="a file with the hub's token")
    fetching.add_argument("--tls", type=Path, default=TLS, metavar="DIR", help="certificates for --peer (%(default)s)")
    checking = _command(commands, "verify", _verify, "read what has changed since it was last read; name what is wrong")
    checking.add_argument("--all", action="store_true", help="read everything, whatever the receipts say")
    checking.add_argument("--manifest", type=Path, metavar="FILE", help="what it has to be, from now on")
    checking.add_argument("--record", action="store_true", help="make a manifest of what is there")
    checking.add_argument("--repository", default="", metavar="OWNER/NAME", help="to be noted with --record")
    checking.add_argument("--revision", default="", metavar="COMMIT", help="to be noted with --record")
    showing = _command(commands, "status", _status, "what is there, without reading it")
    showing.add_argument("--json", action="store_true", help="as JSON")
    packing = _command(commands, "pack", _pack, "write ranks' rows of the Engram tables, for one read from disk each")
    packing.add_argument("--world", type=int, required=True, metavar="N", help="ranks in the group")
    packing.add_argument("--rank", type=int, action="append", metavar="R", help="this node's; may be repeated")
    packing.add_argument("--all-ranks", action="store_true", help="the rows of every rank")
    packing.add_argument("--out", type=Path, metavar="DIR", help=f"instead of {PACKED} below the checkpoint")
    pruning = _command(commands, "prune", _prune, "remove downloads that nothing goes on with")
    pruning.add_argument("--others", action="store_true", help="also files that are not in the manifest")
    pruning.add_argument("--packed", type=int, metavar="N", help="also packed rows of other than N ranks")
    pruning.add_argument("--yes", action="store_true", help="remove it; otherwise it is only listed")


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    made.add_argument("checkpoint", type=Path, metavar="DIR", help="the directory of the checkpoint")
    if name != "status":
        made.add_argument("--quiet", action="store_true", help="no progress")
    made.set_defaults(run=run)
    return made


def _fetch(options: argparse.Namespace) -> int:
    source = _source(options)
    checkpoint: Path = options.checkpoint
    with alone(checkpoint / OWN):
        manifest = _read_manifest(options.manifest) if options.manifest else source.manifest()
        print(f"{len(manifest.files)} files, {gib(manifest.size)}, manifest {manifest.digest[:16]}", file=sys.stderr)
        got = fetch(
            checkpoint, manifest, source.remote, source.path_of, streams=options.streams, quiet=options.quiet
        )  # fmt: skip
    print(f"{checkpoint}: whole and verified; {got.files} files were fetched, {gib(got.received)}")
    return 0


def _source(options: argparse.Namespace) -> Source:
    if options.peer:
        from runtime.checkpoint.serve import PORT

        host, colon, port = options.peer.rpartition(":")
        address = f"{host}:{port}" if colon and port.isdigit() else f"{options.peer}:{PORT}"
        return Peer(Remote(f"https://{address}", context=peer_context(options.tls, server=False)))
    origin = options.origin or os.environ.get("HF_ENDPOINT", "")
    lacking = [
        name
        for name, value in (("--from", origin), ("--repository", options.repository), ("--revision", options.revision))
        if not value
    ]
    if lacking:
        raise Trouble(f"{' and '.join(lacking)}: not given", "say where it comes from, or give --peer")
    token = ""
    if options.token_file:
        try:
            token = options.token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise Trouble(f"{options.token_file}: cannot be read: {error}") from error
    return Hub(Remote(origin, token=token), options.repository, options.revision)


def _verify(options: argparse.Namespace) -> int:
    checkpoint: Path = options.checkpoint
    if options.manifest and options.record:
        raise Trouble("--manifest and --record: expected one of them")
    with alone(checkpoint / OWN):
        if options.record:
            manifest = record(checkpoint, options.repository, options.revision, quiet=options.quiet)
            manifests.save(checkpoint, manifest)
        else:
            manifest = _read_manifest(options.manifest) if options.manifest else manifests.load(checkpoint)
            if options.manifest:
                manifests.save(checkpoint, manifest)
        found = verify(checkpoint, manifest, everything=options.all, quiet=options.quiet)
        rows = _verify_rows(checkpoint, everything=options.all, quiet=options.quiet)
    for fault in (*found.faults, *rows):
        print(f"sparkd-engine: {checkpoint}: {fault}", file=sys.stderr)
    if found.faults or rows:
        print(
            "  `sparkd-engine model fetch` brings what is missing or damaged, `pack` makes rows anew", file=sys.stderr
        )
        return WRONG
    print(
        f"{checkpoint}: {len(manifest.files)} files are as manifest {manifest.digest[:16]} says; "
        f"{gib(found.read)} were read, {found.known} files had a receipt"
    )
    return 0


def _verify_rows(checkpoint: Path, *, everything: bool, quiet: bool) -> list[Fault]:
    """Packed rows below the checkpoint that are damaged, or of another one."""
    faults = []
    kept = receipts.load(checkpoint / PACKED)
    for path in packed_files(checkpoint / PACKED):
        try:
            header = read_header(path)
            fresh = receipts.of_file(path, header.segments)
            if everything or kept.get(path.name) != fresh or source_digest(checkpoint, header.layer) != header.source:
                progress = Progress(path.name, header.file_bytes, quiet=quiet)
                check_rows(path, checkpoint, progress.add)
                progress.end()
                kept[path.name] = fresh
        except (EngramFormatError, OSError) as error:
            kept.pop(path.name, None)
            faults.append(
                Fault(f"{PACKED}/{path.name}", str(error).removeprefix(f"{path}: "), "the rows of this table")
            )
    if kept:
        receipts.save(checkpoint / PACKED, kept)
    return faults


def _status(options: argparse.Namespace) -> int:
    checkpoint: Path = options.checkpoint
    manifest = manifests.load(checkpoint)
    found = standing(checkpoint, manifest)
    packed = [path.name for path in packed_files(checkpoint / PACKED)]
    if options.json:
        print(
            json.dumps(
                {
                    "repository": manifest.repository, "revision": manifest.revision, "digest": manifest.digest,
                    "files": len(manifest.files), "bytes": manifest.size, "whole": found.whole, **vars(found),
                    "packed": packed,
                },
                indent=1,
            )
        )  # fmt: skip
        return 0 if found.whole else WRONG
    print(f"{checkpoint}: {manifest.repository or 'unnamed'} {manifest.revision}, manifest {manifest.digest[:16]}")
    print(f"  {len(found.verified)} of {len(manifest.files)} files verified, of {gib(manifest.size)} in all")
    for what, names in (
        ("not verified", found.unverified),
        ("of the wrong size", found.wrong),
        ("missing", found.missing),
    ):
        if names:
            rest = f" and {len(names) - 3} more" if len(names) > 3 else ""
            print(f"  {what}: {', '.join(names[:3])}{rest}")
    if found.fetched:
        print(f"  {gib(found.fetched)} of what is missing have come")
    print(f"  packed: {', '.join(packed) or 'nothing'}")
    return 0 if found.whole else WRONG


def _pack(options: argparse.Namespace) -> int:
    checkpoint: Path = options.checkpoint
    out: Path = options.out or checkpoint / PACKED
    if not 1 <= options.world <= 64:
        raise Trouble(f"--world {options.world}: expected 1 to 64 ranks")
    ranks = list(range(options.world)) if options.all_ranks else sorted(set(options.rank or []))
    if not ranks or ranks[0] < 0 or ranks[-1] >= options.world:
        raise Trouble(f"--rank: expected 0 to {options.world - 1}, or --all-ranks; got {ranks}")
    manifest = manifests.load(checkpoint)
    tables = tables_of(checkpoint)
    with alone(checkpoint / OWN):
        _verify_shards(checkpoint, manifest, tables.layers, quiet=options.quiet)
        jobs = [
            job_of(checkpoint, out, tables, layer, rank, options.world, manifest.revision)
            for layer in tables.layers
            for rank in ranks
        ]
        todo = [job for job in jobs if not is_packed(job)]
        room_for(todo, out)
        for job in todo:
            progress = Progress(job.target.name, job.size, quiet=options.quiet)
            pack(job, progress.add)
            progress.end()
    size = gib(sum(job.size for job in jobs))
    print(f"{out}: {len(todo)} files of rows written, {len(jobs) - len(todo)} were there; {size}")
    return 0


def _verify_shards(checkpoint: Path, manifest: Manifest, layers: tuple[int, ...], *, quiet: bool) -> None:
    """Nothing is packed from a shard that is not what it has to be. Raises Trouble, naming it."""
    from runtime.engram.safetensors import index_of

    where = index_of(checkpoint)
    shards = {where.get(name, "") for layer in layers for name in tensor_names(layer)} | {"config.json"}
    some = {name: manifest.files[name] for name in shards if name in manifest.files}
    if missing := sorted(shards - some.keys()):
        raise Trouble(f"{checkpoint}: {', '.join(missing)} is not in the manifest", "is it the one of this checkpoint?")
    found = verify(checkpoint, Manifest(manifest.repository, manifest.revision, some), quiet=quiet, partly=True)
    if found.faults:
        raise Trouble(
            "\n".join(f"{checkpoint}: {fault}" for fault in found.faults), "`sparkd-engine model fetch` brings it anew"
        )


def _prune(options: argparse.Namespace) -> int:
    checkpoint: Path = options.checkpoint
    manifest = manifests.load(checkpoint)
    with alone(checkpoint / OWN):
        found = removable(checkpoint, manifest, others=options.others, world=options.packed, packed=PACKED)
        for each in found:
            print(f"{each.path}: {gib(each.size)}, {each.why}")
        if not found:
            print(f"{checkpoint}: nothing to remove")
        elif options.yes:
            print(f"{gib(remove(found))} are free again")
        else:
            print(f"{gib(sum(each.size for each in found))} in all; --yes removes it")
    return 0


def _read_manifest(path: Path) -> Manifest:
    try:
        return manifests.parse(read_json(path), str(path))
    except FileNotFoundError as error:
        raise Trouble(f"{path}: {error.strerror}") from error
