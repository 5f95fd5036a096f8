"""The locks that come with sparkd: complete, for the platform that they name, and silent on where files are from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from runtime.engine_install.lock import Lock, Wheel, read, shipped, tags
from runtime.trouble import Trouble
from tests.runtime.engine_install import made

GLIBC = {"spark": 39, "cpu": 36}
"""Minor version of glibc 2 where a profile runs: Ubuntu 24.04, which DGX OS is, and Debian 12."""
PINNED = {
    "sglang": "0.5.23", "torch": "2.14.1", "flashinfer-python": "0.7.2", "b12x": "1.5.1", "nvidia-cutlass-dsl": "4.8.0",
    "sglang-kernel": "0.4.10", "nvidia-nccl-cu13": "2.30.7", "triton": "3.8.0", "transformers": "5.19.0",
}  # fmt: skip


@pytest.fixture(params=["spark", "cpu"])
def lock(request: pytest.FixtureRequest) -> Lock:
    return read(shipped(request.param))


def runs_on(wheel: Wheel, lock: Lock) -> bool:
    """Whether a wheel is for the lock's Python, processor and C library (PEP 425 and 600)."""
    pythons, abis, platforms = tags(wheel.file)
    minor = int(lock.python.partition(".")[2])
    exact = f"cp3{minor}"
    python = any(
        each in ("py3", exact)
        or (re.fullmatch(r"py3\d+", each) is not None and int(each[3:]) <= minor)
        or ("abi3" in abis and re.fullmatch(r"cp3\d+", each) is not None and int(each[3:]) <= minor)
        for each in pythons
    )
    abi = bool({"none", "abi3", exact} & set(abis))
    return python and abi and any(_platform(each, lock) for each in platforms)


def _platform(name: str, lock: Lock) -> bool:
    if name in ("any", f"linux_{lock.machine}", f"manylinux2014_{lock.machine}", f"manylinux1_{lock.machine}"):
        return True
    match = re.fullmatch(rf"manylinux_2_(\d+)_{lock.machine}", name)
    return (match is not None and int(match[1]) <= GLIBC[lock.profile]) or name == f"manylinux2010_{lock.machine}"


def test_every_wheel_runs_on_the_platform(lock: Lock) -> None:
    assert [wheel.file for wheel in lock.wheels if not runs_on(wheel, lock)] == []
    assert len(lock.wheels) > 100
    assert all(re.fullmatch("[0-9a-f]{64}", wheel.sha256) and wheel.size > 0 for wheel in lock.wheels)


def test_everything_that_is_needed_is_there(lock: Lock) -> None:
    names = {wheel.name for wheel in lock.wheels}
    assert {need for wheel in lock.wheels for need in wheel.needs} <= names
    assert not names & set(lock.left_out)


def test_the_spark_is_complete_and_as_pinned() -> None:
    lock = read(shipped("spark"))
    versions = {wheel.name: wheel.version for wheel in lock.wheels}
    assert (lock.python, lock.machine, lock.left_out) == ("3.12", "aarch64", ())
    assert {name: versions[name] for name in PINNED} == PINNED
    assert len(lock.wheels) > 200
    needs = {wheel.name: wheel.needs for wheel in lock.wheels}
    assert {"torch", "flashinfer-python", "sglang-kernel"} <= set(needs["sglang"])
    assert "nvidia-nccl-cu13" in needs["torch"]


def test_a_wheel_for_another_platform_would_be_noticed() -> None:
    lock = read(shipped("spark"))
    for file in (
        "x-1-cp311-cp311-manylinux_2_28_aarch64.whl", "x-1-cp312-cp312-manylinux_2_28_x86_64.whl",
        "x-1-cp312-cp312-manylinux_2_41_aarch64.whl", "x-1-cp313-abi3-any.whl",
        "x-1-cp312-cp312-musllinux_1_2_aarch64.whl",
    ):  # fmt: skip
        assert not runs_on(Wheel("x", "1", file, 1, "0" * 64, ()), lock)


def test_the_lock_does_not_say_where_files_are_from(lock: Lock) -> None:
    text = shipped(lock.profile).read_text(encoding="utf-8")
    assert "://" not in text
    assert re.findall(r"[\w-]+\.(?:org|com|io|net)\b", text) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("format = 1", "format = 2"), "format is 2, expected 1"),
        (("tiny-1.0-py3", "tiny-1.1-py3"), "is no wheel of tiny 1.0"),
        (("size = ", "size = -"), "size or sha256 of tiny-1.0-py3-none-any.whl is missing"),
        (('sglang = "0.1"', 'sglang = "../x"'), "is no name for a directory"),
        (("wheels = [", "other = ["), "is no lock"),
        (("format", "["), "cannot be read"),
    ],
)
def test_a_faulty_lock_is_named(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    path = made.lock(tmp_path / "l.toml", made.wheel(tmp_path, "tiny"))
    assert read(path).version.startswith("0.1-made-")
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(Trouble, match=said):
        read(path)


def test_a_profile_that_there_is_not_is_named() -> None:
    with pytest.raises(Trouble, match="nothing: no such profile"):
        shipped("nothing")
