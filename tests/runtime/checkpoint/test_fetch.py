"""A copy is fetched from a hub that goes wrong, and is what the hub has; or the error says what was seen."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from runtime.checkpoint import manifest as manifests
from runtime.checkpoint import receipts
from runtime.checkpoint.fetch import Fetched, fetch
from runtime.checkpoint.manifest import OWN, Manifest
from runtime.checkpoint.partial import Partial, place
from runtime.checkpoint.remote import Remote
from runtime.checkpoint.sources import Hub as Source
from runtime.checkpoint.stream import Patience
from runtime.trouble import Trouble
from tests.runtime.checkpoint import hub as hubs
from tests.runtime.checkpoint.hub import COMMIT, REPOSITORY, Fault, Hub, running
from tests.runtime.checkpoint.made import digests

SEGMENT = 65536
SHARD = "00002-of-00003.safetensors"


def source_of(hub: Hub, timeout: float = 5.0, token: str = "") -> Source:
    return Source(Remote(hub.url, timeout=timeout, token=token), REPOSITORY, COMMIT)


def bring(
    source: Source, target: Path, manifest: Manifest | None = None, *, attempts: int = 4, streams: int = 4
) -> Fetched:
    patience = Patience(attempts=attempts, first_pause=0.001)
    known = manifest or source.manifest()
    return fetch(target, known, source.remote, source.path_of, streams=streams, segment=SEGMENT, patience=patience)


def assert_equal(origin: Path, copy: Path) -> None:
    names = manifests.load(copy).files
    assert digests(copy, names) == digests(origin, names)
    assert "encoding/README.md" in names
    assert not list((copy / OWN / "partial").iterdir())


def test_a_copy_is_what_the_hub_has(origin: Path, tmp_path: Path) -> None:
    with running(origin) as hub:
        got = bring(source_of(hub), tmp_path / "copy", streams=3)
        before = len(hub.asked)
        again = bring(source_of(hub), tmp_path / "copy", manifests.load(tmp_path / "copy"))
        assert hub.most <= 3
        assert len(hub.asked) == before

    assert_equal(origin, tmp_path / "copy")
    manifest = manifests.load(tmp_path / "copy")
    assert (got.files, got.received) == (len(manifest.files), manifest.size)
    assert again == Fetched(0, 0)
    assert receipts.valid(tmp_path / "copy", manifest, receipts.load(tmp_path / "copy")) == set(manifest.files)


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("reset", SHARD, times=5, after=20_000)],
        [Fault("reset", "", times=8, after=0), Fault("reset", SHARD, times=3, after=1)],
        [Fault("short", SHARD, times=6, after=30_000)],
        [Fault("status", SHARD, times=2, status=503)],
        [Fault("status", SHARD, times=1, status=429, headers={"Retry-After": "0"})],
        [Fault("status", SHARD, times=2, status=416)],
        [Fault("status", SHARD, times=7, status=416), Fault("length", SHARD, times=1, after=9)],
        [Fault("length", SHARD, times=2, after=10)],
        [Fault("whole", SHARD, times=3)],
        [Fault("etag", SHARD, times=2)],
        [Fault("flip", SHARD, times=2)],
    ],
    ids=lambda faults: "-".join(f"{fault.kind}{fault.status if fault.kind == 'status' else ''}" for fault in faults),
)
def test_what_goes_wrong_for_a_while_is_overcome(faults: list[Fault], origin: Path, tmp_path: Path) -> None:
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    with running(origin, *faults) as hub:
        bring(source_of(hub), tmp_path / "copy", manifest, attempts=9)

        assert all(fault.times == 0 for fault in hub.faults)
    assert_equal(origin, tmp_path / "copy")


def test_a_server_that_says_nothing_is_asked_again(origin: Path, tmp_path: Path) -> None:
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    with running(origin, Fault("stall", SHARD, times=1)) as hub:
        bring(source_of(hub, timeout=0.2), tmp_path / "copy", manifest)

    assert_equal(origin, tmp_path / "copy")


def test_a_redirect_is_followed_and_gets_no_token(origin: Path, tmp_path: Path) -> None:
    fault = Fault("redirect", SHARD, times=99)
    with running(origin) as store, running(origin, fault, token="secret") as hub:
        fault.target = store.url
        bring(source_of(hub, token="secret"), tmp_path / "copy")

        assert {(asked.path, asked.authorization) for asked in store.asked} == {(f"/model-{SHARD}", "")}
        assert {asked.authorization for asked in hub.asked} == {"Bearer secret"}
        with pytest.raises(Trouble, match="HTTP 401"):
            source_of(hub, token="wrong").manifest()
    assert_equal(origin, tmp_path / "copy")


def test_a_token_is_not_sent_in_the_clear() -> None:
    with pytest.raises(Trouble, match="a token would go over the network unencrypted"):
        Remote("http://192.0.2.1:1", token="secret")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (Fault("reset", SHARD, times=99, after=0), rf"{SHARD}: .*times in a row at byte \d+ of \d+"),
        (Fault("status", SHARD, times=99, status=404), f"{SHARD}: HTTP 404"),
        (Fault("status", SHARD, times=99, status=403), f"{SHARD}: HTTP 403"),
        (
            Fault("status", SHARD, times=99, status=416, headers={"Content-Range": "bytes */77"}),
            f"{SHARD}: the server has 77 bytes, expected",
        ),
        (Fault("length", SHARD, times=99, after=10), rf"{SHARD}: the server has \d+ bytes, expected \d+"),
        (Fault("flip", SHARD, times=99), f"{SHARD}: has SHA-256 [0-9a-f]+ after a second transfer, expected"),
        (Fault("etag", SHARD, times=999), f"{SHARD}: is another file with each answer"),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else "",
)
def test_what_stays_wrong_is_named_and_nothing_half_written_is_there(
    fault: Fault, said: str, origin: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    with running(origin, fault) as hub, pytest.raises(Trouble, match=said):
        bring(source_of(hub), copy, manifest)

    for name in manifest.files:
        if (copy / name).exists():
            assert digests(copy, [name]) == digests(origin, [name])
    assert not (copy / f"model-{SHARD}").exists()
    assert not manifests.path_of(copy).exists()


def test_what_has_come_is_not_fetched_again(origin: Path, tmp_path: Path) -> None:
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    size = manifest.files[f"model-{SHARD}"].size
    with running(origin, Fault("reset", SHARD, times=99, after=40_000)) as hub, pytest.raises(Trouble):
        bring(source_of(hub), tmp_path / "copy", manifest, attempts=1)
    with running(origin) as hub:
        bring(source_of(hub), tmp_path / "copy", manifest)

        ranges = [asked for asked in hub.asked if asked.path.endswith(SHARD)]
        assert sum(length(asked.range) for asked in ranges) < size
        assert all(asked.if_range for asked in ranges)
    assert_equal(origin, tmp_path / "copy")


def test_a_half_of_another_version_is_thrown_away(origin: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    entry = manifest.files[f"model-{SHARD}"]
    half = Partial(copy, f"model-{SHARD}", entry, SEGMENT)
    assert half.seen('"older"', half.version)
    half.write(0, memoryview(bytes(1000)), half.version)
    half.close()
    with running(origin) as hub:
        bring(source_of(hub), copy, manifest)

    assert_equal(origin, copy)


def test_one_changed_file_is_fetched_alone(origin: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with running(origin) as hub:
        bring(source_of(hub), copy)
        with (copy / "config.json").open("r+b") as file:
            file.write(b"#")
        got = bring(source_of(hub), copy)

    assert got.files == 1
    assert_equal(origin, copy)


def test_a_file_that_came_another_way_is_kept(origin: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / f"model-{SHARD}").write_bytes((origin / f"model-{SHARD}").read_bytes())
    with running(origin) as hub:
        bring(source_of(hub), copy)

        assert not any(asked.path.endswith(SHARD) for asked in hub.asked)
    assert_equal(origin, copy)


def test_a_full_disk_is_seen_before_anything_is_written(origin: Path, tmp_path: Path) -> None:
    huge = {"a.safetensors": manifests.Entry(1 << 60, "0" * 64)}
    with (
        running(origin) as hub,
        pytest.raises(Trouble, match=r"needs 1073741824\.0 GiB and 1\.0 GiB to spare, and .* free"),
    ):
        bring(source_of(hub), tmp_path / "copy", Manifest(REPOSITORY, COMMIT, huge))

    assert not place(tmp_path / "copy", "a.safetensors").exists()


def test_an_interruption_keeps_what_has_come(origin: Path, tmp_path: Path) -> None:
    with running(origin) as plain:
        manifest = source_of(plain).manifest()
    source_patience = Patience(first_pause=0.001)
    with running(origin, Fault("stall", SHARD, times=99)) as hub:
        source = source_of(hub, timeout=0.5)
        timer = threading.Timer(0.3, source_patience.stop.set)
        timer.start()
        with pytest.raises(Trouble, match=rf"stopped; 1 files are missing, the first is model-{SHARD}"):
            fetch(tmp_path / "copy", manifest, source.remote, source.path_of, segment=SEGMENT, patience=source_patience)
        timer.join()

    assert not (tmp_path / "copy" / f"model-{SHARD}").exists()
    assert (tmp_path / "copy/config.json").exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/passwd", "a/../../b", ".sparkd/receipts.json", "a\\b", "", "a\nb", "a//b"]
)
def test_a_name_that_leads_out_of_the_checkpoint_is_refused(name: str) -> None:
    found = {"format": 1, "files": {name: {"size": 1, "sha256": "0" * 64}}}
    with pytest.raises(Trouble, match="is no name for a file of a checkpoint"):
        manifests.parse(found, "manifest")


def test_an_edited_manifest_is_refused() -> None:
    found = Manifest("a/b", "c", {"x": manifests.Entry(1, "0" * 64)}).as_json()
    assert manifests.parse(json.loads(json.dumps(found)), "m").files["x"].size == 1
    found["files"]["x"]["size"] = 2
    with pytest.raises(Trouble, match="it was edited"):
        manifests.parse(found, "m")


def test_a_server_that_is_no_hub_is_named(origin: Path) -> None:
    with running(origin) as hub:
        hub.revision = "f" * 40
        with pytest.raises(Trouble, match="the hub answers for revision ffff"):
            source_of(hub).manifest()
        with pytest.raises(Trouble, match=r"HTTP 404"):
            Source(Remote(hub.url), "maker/other", COMMIT).manifest()


def length(text: str) -> int:
    first, _, last = text.removeprefix("bytes=").partition("-")
    return int(last) - int(first) + 1


def test_the_hub_of_these_tests_has_large_files_and_small_ones(origin: Path) -> None:
    sizes = [path.stat().st_size for path in origin.rglob("*") if path.is_file()]
    assert min(sizes) < hubs.LARGE < SEGMENT < max(sizes)
