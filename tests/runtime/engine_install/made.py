"""Wheels that are made up, and a lock of them."""

from __future__ import annotations

import base64
import hashlib
import io
import platform
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

WHEEL = b"Wheel-Version: 1.0\nGenerator: made\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
SCRIPT = "[console_scripts]\n{name} = {name}:main\n"


def wheel(directory: Path, name: str, version: str = "1.0", *, files: Mapping[str, bytes] | None = None) -> Path:
    """A wheel with one module and a script that calls it."""
    inside = {
        f"{name}.py": f"VERSION = '{version}'\n\n\ndef main() -> None:\n    print(VERSION)\n".encode(),
        **(files or {}),
        f"{name}-{version}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode(),
        f"{name}-{version}.dist-info/WHEEL": WHEEL,
        f"{name}-{version}.dist-info/entry_points.txt": SCRIPT.format(name=name).encode(),
    }
    rows = [f"{path},{_record(data)},{len(data)}" for path, data in inside.items()]
    record = f"{name}-{version}.dist-info/RECORD"
    inside[record] = "\n".join([*rows, f"{record},,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in inside.items():
            # The same bytes each time: a lock is made of them.
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), data)
    target = directory / f"{name}-{version}-py3-none-any.whl"
    target.write_bytes(packed.getvalue())
    return target


def lock(path: Path, *wheels: Path, sglang: str = "0.1", imports: tuple[str, ...] = ()) -> Path:
    """A lock for this machine and the interpreter that runs the tests."""
    lines = [
        "format = 1", 'profile = "made"', f'sglang = "{sglang}"',
        f'python = "{sys.version_info[0]}.{sys.version_info[1]}"', f'machine = "{platform.machine()}"',
        f"imports = {list(imports)}", "left_out = []", "wheels = [",
    ]  # fmt: skip
    for each in wheels:
        name, version = each.name.split("-")[:2]
        data = each.read_bytes()
        lines.append(
            f'{{ name = "{name}", version = "{version}", file = "{each.name}", size = {len(data)}, '
            f'sha256 = "{hashlib.sha256(data).hexdigest()}", needs = [] }},'
        )
    path.write_text("\n".join([*lines, "]", ""]), encoding="utf-8")
    return path


def _record(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
