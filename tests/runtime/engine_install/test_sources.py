"""Sources of others are what the manifest says, to the byte, or not there."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.checkpoint.remote import Remote
from runtime.engine_install.sources import ThirdParty, bring, read
from runtime.trouble import Trouble
from tests.runtime.checkpoint.hub import Fault, running

COMMIT = "c" * 40
DATA = b"an archive"
SOURCE = ThirdParty(
    "nccl", f"https://192.0.2.1/{COMMIT}.tar.gz", COMMIT, len(DATA), hashlib.sha256(DATA).hexdigest(), "BSD",
    "a ring of four",
)  # fmt: skip
TEXT = "[[source]]\n" + "".join(f"{key} = {value!r}\n" for key, value in vars(SOURCE).items())


def test_the_manifest_that_comes_with_sparkd_is_sound() -> None:
    assert len({each.name for each in read()}) == len(read())


def test_what_the_manifest_names_is_fetched_once(tmp_path: Path) -> None:
    (tmp_path / "origin").mkdir()
    (tmp_path / f"origin/{COMMIT}.tar.gz").write_bytes(DATA)
    with running(tmp_path / "origin", Fault("reset", times=2, after=3)) as hub:
        for _ in range(2):
            assert bring(SOURCE, tmp_path / "out", remote=Remote(hub.url)).read_bytes() == DATA
        assert len(hub.asked) == 3
    assert [path.name for path in (tmp_path / "out").iterdir()] == [f"nccl-{COMMIT[:12]}.tar.gz"]


@pytest.mark.parametrize("data", [b"an Archive", b"an", b"an archive and more"])
def test_anything_else_is_refused_and_not_kept(data: bytes, tmp_path: Path) -> None:
    (tmp_path / f"{COMMIT}.tar.gz").write_bytes(data)
    with running(tmp_path) as hub, pytest.raises(Trouble, match=r"expected 10 with|more than 10 bytes"):
        bring(SOURCE, tmp_path / "out", remote=Remote(hub.url))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "change",
    [("https://", "http://"), (COMMIT + "'", "c'"), ("'BSD'", "''"), ("size = 10", "size = '10'"), ("why", "because")],
)
def test_a_faulty_manifest_is_named(change: tuple[str, str], tmp_path: Path) -> None:
    path = tmp_path / "m"
    path.write_text(TEXT)
    assert read(path) == (SOURCE,)
    path.write_text(TEXT.replace(*change))
    with pytest.raises(Trouble, match="m: nccl: "):
        read(path)
    path.write_text(TEXT + TEXT)
    with pytest.raises(Trouble, match="twice"):
        read(path)


def test_a_source_has_its_commit_in_its_name() -> None:
    assert replace(SOURCE, commit="d" * 40).file == "nccl-dddddddddddd.tar.gz"
