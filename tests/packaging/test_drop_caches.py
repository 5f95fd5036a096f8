"""What sparkd-drop-caches@.service runs, on recorded trees of /proc."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.packaging.built import ROOT

SCRIPT = ROOT / "packaging/bin/drop-caches"


def drop(proc: Path, available: int, free: int, cached: int, shmem: int = 0) -> subprocess.CompletedProcess[str]:
    """With so many GiB of each."""
    fields = {"MemTotal": 121, "MemFree": free, "MemAvailable": available, "Cached": cached, "Shmem": shmem}
    lines = [f"{name}: {value * 1024 * 1024:>12} kB\n" for name, value in fields.items()]
    (proc / "meminfo").write_text("".join(lines))
    environment = {"PATH": "/usr/bin:/bin", "SPARKD_PROC": str(proc)}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "sys/vm").mkdir(parents=True)
    (tmp_path / "sys/vm/drop_caches").touch()
    return tmp_path


def test_a_large_page_cache_is_given_back(proc: Path) -> None:
    """Field report page-cache-counts."""
    done = drop(proc, available=110, free=2, cached=111)
    assert done.returncode == 0
    assert (proc / "sys/vm/drop_caches").read_text() == "1\n"
    assert done.stdout == "gave page cache back: 110592 MiB before, 110592 MiB now\n"


@pytest.mark.parametrize(
    ("available", "free", "cached", "shmem"), [(110, 105, 6, 0), (110, 80, 31, 30), (20, 19, 90, 0)]
)
def test_a_small_one_and_what_only_looks_like_one_stay(
    proc: Path, available: int, free: int, cached: int, shmem: int
) -> None:
    done = drop(proc, available, free, cached, shmem)
    assert (done.returncode, done.stdout) == (0, "")
    assert (proc / "sys/vm/drop_caches").read_text() == ""


def test_where_it_may_not_it_says_so_and_leaves(proc: Path) -> None:
    (proc / "sys/vm/drop_caches").unlink()
    (proc / "sys/vm/drop_caches").mkdir()
    done = drop(proc, available=110, free=2, cached=111)
    assert done.returncode == 1
    assert "drop_caches" in done.stderr
