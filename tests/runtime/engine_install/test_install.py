"""An installation is whole and verified, or the one before stays in use and the error says what was seen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from adapter.engram_rows.build import library
from runtime.engine_install.versions import in_use
from runtime.manage.main import main
from tests.runtime.engine_install.made import lock, wheel

PYTHON = f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"


class Place:
    """A root for versions, and wheels that pip finds without an index."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.wheels = directory / "engine", directory / "wheels"
        self.wheels.mkdir()
        self.directory = directory
        for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PIP_CONSTRAINT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(self.wheels))

    def lock(self, version: str) -> Path:
        """A lock with one wheel of this version, and one that stays the same."""
        made = [wheel(self.wheels, "tiny", version), wheel(self.wheels, "other")]
        return lock(self.directory / f"{version}.toml", *made, sglang=version, imports=("tiny",))

    def install(self, path: Path, *more: str, index: bool = False) -> int:
        """With `index`, wheels come as pip downloads them; otherwise from the directory, which takes less time."""
        root = ("--root", str(self.root), "--lock", str(path), "--python", PYTHON, "--quiet")
        return main(["install", *root, *(() if index else ("--wheels", str(self.wheels))), *more])

    def run(self, *command: str) -> int:
        return main([command[0], "--root", str(self.root), *command[1:]])

    def says(self) -> str:
        """What the engine in use is."""
        script = self.root / "bin/tiny"
        return subprocess.run([script], check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.fixture
def old(place: Place, capsys: pytest.CaptureFixture[str]) -> str:
    """A version that is in use; its name."""
    assert place.install(place.lock("0.1")) == 0, capsys.readouterr().err
    capsys.readouterr()
    return in_use(place.root)


def test_a_version_is_installed_and_another_one_beside_it(
    place: Place, old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.says() == "0.1"
    assert place.install(place.lock("0.2"), "--no-use", index=True) == 0
    assert (in_use(place.root), place.says()) == (old, "0.1")
    assert place.run("list", "--json") == 0
    names = [each["name"] for each in json.loads(capsys.readouterr().out.partition("\n")[2])]
    assert names == sorted(names)
    new = next(name for name in names if name != old)
    assert place.run("use", new) == 0
    assert place.says() == "0.2"
    # The interpreter's own path stays the same, and finds what is in use.
    code = "import sys, tiny; print(sys.prefix, tiny.VERSION)"
    found = subprocess.run([place.root / "bin/python", "-c", code], check=True, capture_output=True, text=True).stdout
    assert found.split() == [str(place.root), "0.2"]
    assert place.run("verify") == 0
    assert place.run("remove", new) == 1
    assert "is in use" in capsys.readouterr().err
    assert place.run("remove", old) == 0
    assert not (place.root / old).exists()


@pytest.mark.parametrize("harm", ["flipped", "truncated", "another"])
def test_a_wrong_wheel_leaves_the_old_version_in_use(
    harm: str, place: Place, old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place.lock("0.2")
    target = place.wheels / "tiny-0.2-py3-none-any.whl"
    data = target.read_bytes()
    if harm == "flipped":
        target.write_bytes(data[:60] + bytes([data[60] ^ 1]) + data[61:])
    elif harm == "truncated":
        target.write_bytes(data[:200])
    else:
        wheel(place.wheels, "tiny", "0.2", files={"more.py": b"x = 1\n"})

    assert place.install(path, index=True) == 1
    said = capsys.readouterr().err
    assert "tiny-0.2-py3-none-any.whl" in said
    assert "what the index has is not what the lock says" in said
    assert (in_use(place.root), place.says()) == (old, "0.1")
    assert not list(place.root.glob(".partial-*"))
    # From a directory that is named, the same.
    assert place.install(path) == 1
    assert "expected" in capsys.readouterr().err


def test_a_dead_network_is_named(
    place: Place, old: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.lock("0.2")
    (place.wheels / "tiny-0.2-py3-none-any.whl").unlink()
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    assert place.install(path, index=True) == 1
    assert "tiny-0.2-py3-none-any.whl" in (said := capsys.readouterr().err)
    assert "no index that pip knows has it" in said or "the package index does not answer" in said
    assert place.says() == "0.1"


def test_an_import_that_fails_is_named_and_nothing_is_installed(
    place: Place, old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = wheel(place.wheels, "broken", files={"broken.py": b"import nowhere\n"})
    assert place.install(lock(place.directory / "b.toml", broken, sglang="0.3", imports=("broken",))) == 1
    assert "cannot import broken: ModuleNotFoundError: No module named 'nowhere'" in capsys.readouterr().err
    assert in_use(place.root) == old


def test_the_file_that_differs_is_named_and_mended(place: Place, old: str, capsys: pytest.CaptureFixture[str]) -> None:
    site = next((place.root / old).glob("lib/python3*/site-packages"))
    with (site / "tiny.py").open("ab") as file:
        file.write(b"#")
    (site / "other.py").unlink()
    (site / "added.py").write_text("x = 1\n")

    assert place.run("verify", "--quiet") == 3
    said = capsys.readouterr().err
    for name, what in (
        ("tiny.py", " bytes, "),
        ("other.py", "missing; expected a file"),
        ("added.py", "nothing there"),
    ):
        assert any(f"site-packages/{name}: " in line and what in line for line in said.splitlines())
    assert place.install(place.lock("0.1"), "--again") == 0
    assert place.run("verify", "--quiet") == 0


def test_the_core_that_an_adapter_builds_there_is_no_difference(
    place: Place, old: str, capsys: pytest.CaptureFixture[str]
) -> None:
    core = place.root / old / library().relative_to(sys.prefix)
    core.parent.mkdir()
    core.write_bytes(b"compiled")
    assert place.run("verify", "--quiet") == 0
    (core.parent / "other.so").write_bytes(b"compiled")
    assert place.run("verify", "--quiet") == 3
    assert "lib/sparkd/other.so: a file; expected nothing there" in capsys.readouterr().err


def test_a_lock_for_another_machine_is_refused(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    path = place.lock("0.1")
    path.write_text(path.read_text().replace('machine = "', 'machine = "not-'))
    assert place.install(path) == 1
    assert "profile made is for not-" in capsys.readouterr().err


def test_a_full_disk_is_seen_before_anything_is_downloaded(
    place: Place, old: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.durable.require_room.__defaults__", (1 << 60,))
    assert place.install(place.lock("0.2")) == 1
    assert "GiB to spare, and" in capsys.readouterr().err
    assert in_use(place.root) == old


def test_a_version_that_runs_is_not_taken_away(place: Place, old: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.install(place.lock("0.2"), "--no-use") == 0
    new = next(each.name for each in place.root.glob("0.2-*"))
    mapped = place.root / old / "mapped"
    mapped.write_bytes(bytes(4096))
    code = (
        "import mmap, sys; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); "
        "print(1, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(mapped)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        assert place.run("use", new) == 1
        assert f"(pid {process.pid})" in capsys.readouterr().err
        process.communicate("\n")
    assert place.run("use", new) == 0


def test_another_installation_in_this_place_is_left_alone(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    (place.root / "bin").mkdir(parents=True)
    assert place.install(place.lock("0.1")) == 1
    assert f"{place.root / 'bin'}: is there and is no link" in capsys.readouterr().err
    assert in_use(place.root) == ""


def test_old_versions_and_remains_are_pruned(place: Place, old: str, capsys: pytest.CaptureFixture[str]) -> None:
    (place.root / ".partial-x").mkdir()
    for version in ("0.2", "0.3"):
        assert place.install(place.lock(version), "--no-use") == 0
        # They are told apart by the second.
        time.sleep(1.01)
    assert place.run("prune", "--keep", "1") == 0
    left = {path.name.partition("-")[0] for path in place.root.glob("0.*")}
    assert left == {"0.1", "0.3"}
    assert not (place.root / ".partial-x").exists()
    assert not (place.root / ".sparkd/wheels").exists()
    assert in_use(place.root) == old


def test_a_killed_installation_is_gone_on_with(place: Place, old: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed as a whole at different moments: each time the old version is in use, and at the end the new."""
    path = place.lock("0.2")
    command = [sys.executable, "-m", "runtime.manage", "install", "--root", str(place.root), "--lock", str(path)]
    for delay in (0.05, 0.4, 0.9, 1.4, 1.9, 2.4):
        with subprocess.Popen([*command, "--python", PYTHON, "--quiet"], stderr=subprocess.DEVNULL) as process:
            timer = threading.Timer(delay, process.kill)
            timer.start()
            process.wait()
            timer.cancel()
            timer.join()
        if process.returncode == 0:
            break
        assert (in_use(place.root), place.says()) == (old, "0.1")
    assert place.install(path) == 0
    assert place.says() == "0.2"
    assert place.run("verify", "--quiet") == 0
    assert not list(place.root.glob(".partial-*"))
