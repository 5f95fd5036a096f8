"""Makes the locks in runtime/locks from packaging/engine/*.in: `.venv/bin/python packaging/engine_lock.py [PROFILE]`.

uv resolves for the platform of the profile, whatever this machine is, and says which wheels there are; pip says what
each of them needs. Both look where they are configured to look; where that was is not written down, because a wheel is
identified by its digest. Needs uv (`.venv/bin/pip install uv`) and a network, a minute per profile, and no disk.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import tomllib
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pip._vendor.packaging.markers import default_environment  # noqa: E402
from pip._vendor.packaging.requirements import Requirement  # noqa: E402
from pip._vendor.packaging.tags import compatible_tags, cpython_tags, parse_tag  # noqa: E402

from runtime.engine_install.lock import normal, read, tags  # noqa: E402


@dataclass(frozen=True)
class Profile:
    """For which machines a lock is."""

    name: str
    python: str
    machine: str
    glibc: int
    """Minor version of the oldest glibc 2 that it runs with."""
    imports: tuple[str, ...]
    closed: bool
    """Whether everything that is asked for is in it; otherwise the list is complete as it stands."""


PROFILES = (
    Profile("spark", "3.12", "aarch64", 39, ("torch", "sglang"), closed=True),
    Profile("cpu", "3.11", "x86_64", 34, ("torch", "transformers"), closed=False),
)


def main(names: list[str]) -> int:
    for profile in PROFILES:
        if not names or profile.name in names:
            target = ROOT / f"runtime/locks/{profile.name}.toml"
            target.write_text(text(profile), encoding="utf-8")
            lock = read(target)
            print(f"{target.relative_to(ROOT)}: {len(lock.wheels)} wheels, {lock.size / 1e9:.1f} GB, {lock.version}")
            print(f"  left out: {', '.join(lock.left_out) or 'nothing'}")
    return 0


def text(profile: Profile) -> str:
    """The lock of a profile."""
    packages = resolved(profile)
    chosen = {normal(each["name"]): (each["version"], best(profile, each)) for each in packages}
    wanted = metadata(profile, {name: version for name, (version, _) in chosen.items()})
    needs = closure(profile, wanted)
    left_out = sorted({each for some in needs.values() for each in some} - chosen.keys())
    if profile.closed and left_out:
        sys.exit(f"{profile.name}: nothing was resolved for {', '.join(left_out)}")
    lines = [
        "# Made by packaging/engine_lock.py; not to be edited.",
        "format = 1",
        f'profile = "{profile.name}"',
        f'sglang = "{chosen["sglang"][0]}"',
        f'python = "{profile.python}"',
        f'machine = "{profile.machine}"',
        f"imports = {json.dumps(list(profile.imports))}",
        f"left_out = {json.dumps(left_out)}",
        "wheels = [",
    ]
    for name, (version, wheel) in sorted(chosen.items()):
        inside = ", ".join(f'"{each}"' for each in sorted(needs.get(name, set()) & chosen.keys()))
        lines.append(
            f'    {{ name = "{name}", version = "{version}", file = "{wheel[0]}", size = {wheel[1]}, '
            f'sha256 = "{wheel[2]}", needs = [{inside}] }},'
        )
    return "\n".join([*lines, "]", ""])


def resolved(profile: Profile) -> list[dict[str, Any]]:
    """What uv resolves, with the wheels that there are for the platform."""
    uv = shutil.which("uv", path=f"{ROOT / '.venv/bin'}:{os.environ.get('PATH', '')}")
    if uv is None:
        sys.exit("uv is missing: .venv/bin/pip install uv")
    links = [f"--find-links={each}" for each in os.environ.get("PIP_FIND_LINKS", "").split()]
    with tempfile.TemporaryDirectory() as directory:
        out = Path(directory) / "pylock.toml"
        subprocess.run(
            [uv, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version", profile.python,
             "--python-platform", f"{profile.machine}-manylinux_2_{profile.glibc}", "--format", "pylock.toml",
             *(() if profile.closed else ("--no-deps",)), *links, "--output-file", str(out),
             str(ROOT / f"packaging/engine/{profile.name}.in")],
            check=True,
        )  # fmt: skip
        found: list[dict[str, Any]] = tomllib.loads(out.read_text(encoding="utf-8"))["packages"]
        return found


def best(profile: Profile, package: dict[str, Any]) -> tuple[str, int, str]:
    """File, size and SHA-256 of the wheel that pip would take on such a machine: the one whose tag comes first."""
    version = tuple(int(each) for each in profile.python.split("."))
    platforms = [f"manylinux_2_{minor}_{profile.machine}" for minor in range(profile.glibc, 4, -1)]
    at = platforms.index(f"manylinux_2_17_{profile.machine}") + 1
    platforms[at:at] = [f"manylinux2014_{profile.machine}"]
    platforms.append(f"linux_{profile.machine}")
    order = [
        *cpython_tags(version, platforms=platforms),
        *compatible_tags(version, f"cp{version[0]}{version[1]}", platforms),
    ]
    rank = {tag: number for number, tag in enumerate(order)}
    found = []
    for wheel in package["wheels"]:
        file = urllib.parse.unquote(wheel["url"].rpartition("/")[2])
        ranks = [rank[tag] for tag in parse_tag("-".join(".".join(each) for each in tags(file))) if tag in rank]
        if ranks:
            found.append((min(ranks), file, size_of(wheel), wheel["hashes"]["sha256"]))
    if not found:
        sys.exit(f"{package['name']} {package['version']}: no wheel for {profile.name}")
    return min(found)[1:]


def size_of(wheel: dict[str, Any]) -> int:
    if "size" in wheel:
        return int(wheel["size"])
    return Path(urllib.parse.unquote(urllib.parse.urlsplit(wheel["url"]).path)).stat().st_size


def metadata(profile: Profile, versions: dict[str, str]) -> dict[str, list[str]]:
    """What each package asks for, as its metadata has it."""
    minors = [f"manylinux_2_{minor}_{profile.machine}" for minor in range(profile.glibc, 4, -1)]
    platforms = [
        f"--platform={each}" for each in (*minors, f"manylinux2014_{profile.machine}", f"linux_{profile.machine}")
    ]
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps",
             "--only-binary", ":all:", "--python-version", profile.python, "--implementation", "cp", *platforms,
             # It asks the interpreter that it runs on, though another one was named.
             "--ignore-requires-python",
             "--target", directory, "--report", "-", *(f"{name}=={version}" for name, version in versions.items())],
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    report = json.loads(done.stdout[done.stdout.index("{") :])
    return {normal(each["metadata"]["name"]): each["metadata"].get("requires_dist", []) for each in report["install"]}


def closure(profile: Profile, wanted: dict[str, list[str]]) -> dict[str, set[str]]:
    """Names of the packages that each package needs on such a machine, with the extras that others ask of it."""
    environment = {
        **default_environment(), "python_version": profile.python, "python_full_version": f"{profile.python}.0",
        "platform_machine": profile.machine, "sys_platform": "linux", "platform_system": "Linux", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    extras: dict[str, set[str]] = {name: {""} for name in wanted}
    needs: dict[str, set[str]] = {name: set() for name in wanted}
    changed = True
    while changed:
        changed = False
        for name, requirements in wanted.items():
            for requirement in map(Requirement, requirements):
                marker = requirement.marker
                if marker and not any(marker.evaluate({**environment, "extra": each}) for each in extras[name]):
                    continue
                other = normal(requirement.name)
                needs[name].add(other)
                known = extras.get(other)
                if known is not None and not requirement.extras <= known:
                    known |= requirement.extras
                    changed = True
    return needs


if __name__ == "__main__":
    print(f"for {', '.join(sys.argv[1:]) or 'all profiles'}, on {platform.machine()}", file=sys.stderr)
    sys.exit(main(sys.argv[1:]))
