"""The directory that the hosts of a lab see as /opt/sparkd/engine: SGLang on a CPU build of torch, and a tiny model.

A virtual environment on the distribution's interpreter, which the hosts have at the same place, so that it works
wherever it is mounted. Made once, in about two minutes, and kept in the lab's cache under a digest of what it is made
of.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.lab.shell import LabError, locked, tail

MOUNTED = "/opt/sparkd/engine"
"""Where the hosts have it."""
MODEL = "models/tiny"
TORCH = "torch==2.13.0"
PYTHON = Path("/usr/bin/python3")
HERE = Path(__file__).parent
SHIMS: dict[str, str] = {
    "sgl_kernel.py": "sgl_kernel.py",
    "torchvision_extension.py": "torchvision/extension.py",
}
"""What of ours goes where below site-packages."""
KERNELS = {"Metadata-Version": "2.1", "Name": "sglang-kernel", "Version": "0.4.10"}
"""As which SGLang wants the package of sgl_kernel installed."""
UNNEEDED: tuple[str, ...] = (
    "torch/test", "torch/bin/test_*", "torch/include",
    "triton/include", "triton/backends/*/lib", "triton/backends/*/bin", "triton/FileCheck",
    # They are for building the environment.
    "pip", "pip-*", "setuptools", "setuptools-*", "_distutils_hack", "distutils-precedence.pth", "pkg_resources",
)  # fmt: skip
ROOM = {"cpu": 4 << 30, "cuda": 12 << 30}
"""Bytes that have to be free, by the build of torch."""
UNFINISHED = "engine-unfinished"
LOCK = ".engine.lock"
LARGE_BUILD = (
    "engine: pip finds no CPU build of {torch} and takes the one for CUDA, with {count} packages of NVIDIA's: several "
    "GB to load and to keep. To avoid that, put a CPU build where pip looks (PIP_FIND_LINKS, PIP_EXTRA_INDEX_URL)."
)
NEEDS = (
    "The lab's SGLang needs x86_64 or arm64, Python 3.11 or newer, glibc 2.34 or newer, and an index where pip finds "
    "the wheels of tests/lab/sglang/requirements.txt. `make lab` without ENGINE=sglang does without it."
)
Say = Callable[[str], None]


def key() -> str:
    """Digest of what an engine is made of."""
    found = hashlib.sha256(f"{platform.machine()} {_interpreter()} {TORCH} {MOUNTED}".encode())
    for path in (HERE / "root.py", HERE / "model.py", HERE / "requirements.txt", *sorted(HERE.glob("shims/*.py"))):
        found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def make(cache: Path, say: Say) -> Path:
    """The engine's directory, made or taken from the cache. Nobody writes to it.

    `say` gets a line per step. Raises LabError if it cannot be made.
    """
    tree = cache / f"engine-{key()}"
    if tree.is_dir():
        return tree
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with locked(cache / LOCK, wait=True):
        if not tree.is_dir():
            unfinished = cache / UNFINISHED
            shutil.rmtree(unfinished, ignore_errors=True)
            try:
                _build(unfinished, say)
                unfinished.replace(tree)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
            _prune(cache, tree)
    return tree


def hold(tree: Path) -> None:
    """Keep an engine from being removed for a newer one for as long as this process lives."""
    fcntl.flock(os.open(tree, os.O_RDONLY | os.O_CLOEXEC), fcntl.LOCK_SH)


def tidy(cache: Path) -> None:
    """Remove what an interrupted `make` has left, unless another one is at work."""
    if (cache / UNFINISHED).exists():
        with contextlib.suppress(LabError), locked(cache / LOCK, wait=False):
            shutil.rmtree(cache / UNFINISHED, ignore_errors=True)


def _prune(cache: Path, newest: Path) -> None:
    """Remove the engines of former definitions that no host stands on: each takes about 2 GB."""
    for tree in cache.glob("engine-*"):
        if tree != newest:
            descriptor = os.open(tree, os.O_RDONLY | os.O_CLOEXEC)
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(tree, ignore_errors=True)
            os.close(descriptor)


def _interpreter() -> str:
    """Version of the distribution's Python, as 3.11."""
    show = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([PYTHON, "-I", "-c", show], check=True, capture_output=True, text=True).stdout.strip()


def _build(root: Path, say: Say) -> None:
    _room(root, ROOM["cpu"])
    say(f"making the engine's environment: {TORCH}, SGLang {_version('sglang')}, Python {_interpreter()}")
    _step([str(PYTHON), "-m", "venv", str(root)], "make a virtual environment (python3-venv)")
    site = root / f"lib/python{_interpreter()}/site-packages"
    pip = [str(root / "bin/python"), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    install = ["install", "--quiet", "--no-compile", "--only-binary", ":all:"]
    plan = _step([*pip, *install, "--dry-run", "--report", "-", TORCH], f"find {TORCH}")
    chosen = [str(each["metadata"]["name"]) for each in json.loads(plan[plan.index("{") :])["install"]]
    if large := [name for name in chosen if name.startswith("nvidia")]:
        say(LARGE_BUILD.format(torch=TORCH, count=len(large)))
        _room(root, ROOM["cuda"])
    say(f"installing {TORCH} and {len(chosen) - 1} packages that it needs")
    wanted = HERE / "requirements.txt"
    _step([*pip, *install, TORCH], f"install {TORCH}")
    say(f"installing SGLang and what it needs on a CPU ({wanted.name})")
    _step([*pip, *install, "--no-deps", "--requirement", str(wanted)], f"install {wanted.name}")
    for pattern in UNNEEDED:
        for path in site.glob(pattern):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    # They begin with the path of the environment as it is now.
    for script in (root / "bin").iterdir():
        if not script.name.startswith("python"):
            script.unlink()
    for name, place in SHIMS.items():
        shutil.copyfile(HERE / "shims" / name, site / place)
    kernels = site / "sglang_kernel-{Version}.dist-info".format_map(KERNELS)
    kernels.mkdir()
    (kernels / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in KERNELS.items()))
    say("compiling it, and making the model")
    _step([str(root / "bin/python"), "-B", str(HERE / "model.py"), str(root / MODEL)], "make the model")
    # Checked against the sources never: these are read-only, and a stat of each of 6000 files takes its time.
    compiling = ["-m", "compileall", "-q", "-j2", "--invalidation-mode", "unchecked-hash"]
    places = ["-s", str(root), "-p", MOUNTED]
    _step([str(root / "bin/python"), *compiling, *places, str(site)], "compile", strict=False)
    say("trying it")
    _step([str(root / "bin/python"), "-B", "-W", "ignore", "-m", "sglang.launch_server", "--help"], "start SGLang")


def _version(package: str) -> str:
    lines = (HERE / "requirements.txt").read_text().splitlines()
    return next(line.removeprefix(f"{package}==") for line in lines if line.startswith(f"{package}=="))


def _room(root: Path, wanted: int) -> None:
    free = shutil.disk_usage(root if root.exists() else root.parent).free
    if free < wanted:
        raise LabError(
            f"engine: {free >> 20} MB are free in {root.parent}, and SGLang needs {wanted >> 20} MB while it is "
            "installed; make room, or set SPARKD_LAB_CACHE to a directory on a larger disk"
        )


def _step(command: Sequence[str], what: str, *, strict: bool = True) -> str:
    """Run it to its end, with this process's environment: pip's settings are there. Returns what it printed.

    Raises LabError with the last lines of what it said.
    """
    # Set, these two would make the environment's interpreter see this one's packages.
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    # Killed with its parent: an interrupted `make` must not go on in what the next one removes.
    argv = ["setpriv", "--pdeathsig", "KILL", *command]
    settings = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    done = subprocess.run(
        argv, check=False, env=kept | settings, text=True, errors="replace", stdin=subprocess.DEVNULL,
        capture_output=True, umask=0o022,
    )  # fmt: skip
    if strict and done.returncode != 0:
        raise LabError(f"engine: {what}: exit {done.returncode}: {tail(done.stderr or done.stdout)}\n{NEEDS}")
    return done.stdout
