"""`python -m tests.engine.record PACKAGE`: writes down the options and variables of an SGLang, for tests without it.

PACKAGE is the directory `sglang` of an installed or unpacked release, beside its `.dist-info`. The record has names,
kinds and choices, nothing else of it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from sparkd.host.engineoptions import ask, read_options, read_variables

HERE = Path(__file__).parent
_NAME = re.compile(rb"[\"'](SGLANG_[A-Z0-9_]+)[\"']")


def listing(package: Path) -> dict[str, Any]:
    """Everything that a question could ask of."""
    mentioned = {name.decode() for file in sorted(package.rglob("*.py")) for name in _NAME.findall(file.read_bytes())}
    names = sorted(mentioned | read_variables(package).keys())
    return {**ask(package, sorted(read_options(package)), names), "like": {}}


def recorded(version: str) -> dict[str, Any]:
    """What was written down of that version. Names that it does not have are missing from it."""
    found: dict[str, Any] = json.loads((HERE / f"sglang-{version}.json").read_text())
    return found


def main(package: Path) -> None:
    version = next(package.parent.glob("sglang-*.dist-info")).name.removeprefix("sglang-").removesuffix(".dist-info")
    told = listing(package)
    lines = [f'"known": {json.dumps(told["known"])}, "like": {{}}']
    for part in ("options", "variables"):
        entries = [
            f"{json.dumps(name)}: {json.dumps(value)}" for name, value in told[part].items() if value is not None
        ]
        lines.append(f'"{part}": {{\n' + ",\n".join(entries) + "\n}")
    (HERE / f"sglang-{version}.json").write_text("{" + ",\n".join(lines) + "}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
