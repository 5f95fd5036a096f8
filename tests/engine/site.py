"""A site's files below a directory that stands for /, for tests to write and to spoil."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from sparkd.config import ConfigError
from sparkd.config.profiles import folders, resolve, site_file
from sparkd.config.resolved import Resolved

PROFILE = """
description = "A model for tests"
sglang = "0.5.23"
[arguments]
model-path = "/srv/models/tiny"
"""
PYTHON = "/opt/sparkd/engine/bin/python"
# What the reader needs to find: enough options for the layout to be taken for understood.
FIELDS = """
from typing import List, Literal, Optional
from sglang.srt.arg_groups.arg_utils import A, Arg
from sglang.srt.arg_groups.choices import BACKENDS
class Fields:
    model_path: A[str, Arg(help="x", aliases=["--model"])]
    context_length: A[Optional[int], "The length."] = None
    enable_metrics: A[bool, "Metrics."] = False
    gemm_runner: A[str, Arg(help="x", cli_name="--gemm", choices=BACKENDS)] = "auto"
    level: A[Literal[1, 2], "Level."] = 1
    sizes: A[Optional[List[int]], "Sizes."] = None
    hidden: A[int, Arg(no_cli=True)] = 0
    callback: Optional[object] = None
""" + "".join(f'    filler_{number}: A[float, "x"] = 0\n' for number in range(60))


@dataclass(frozen=True)
class Site:
    """`etc`: /etc/sparkd; `share`: the packages' profiles. `root` stands for /."""

    root: Path

    @property
    def etc(self) -> Path:
        return self.root / "etc/sparkd"

    @property
    def share(self) -> Path:
        return self.root / "usr/share/sparkd/profiles"

    @property
    def packages(self) -> Path:
        return self.root / "opt/sparkd/engine/lib/python3.12/site-packages"

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def profile(self, text: str = PROFILE, name: str = "tiny") -> Path:
        return self.write(f"usr/share/sparkd/profiles/{name}.toml", text)

    def override(self, text: str) -> Path:
        return self.write("etc/sparkd/engine.toml", text)

    def install(self, version: str = "0.5.23", fields: str = FIELDS, environ: str | None = None) -> None:
        """An SGLang of which there is no more than its options and variables."""
        below = "opt/sparkd/engine/lib/python3.12/site-packages"
        self.write("opt/sparkd/engine/bin/python", "")
        self.write(f"{below}/sglang-{version}.dist-info/METADATA", f"Name: sglang\nVersion: {version}\n")
        self.write(f"{below}/sglang_kernel-0.4.10.dist-info/METADATA", "Name: sglang-kernel\n")
        self.write(f"{below}/sglang/srt/arg_groups/choices.py", 'BACKENDS = ["auto", "cutlass"]\n')
        self.write(f"{below}/sglang/srt/arg_groups/fields/all.py", fields)
        self.write(f"{below}/sglang/srt/server_args.py", "class ServerArgs:\n    pass\n")
        switch = "class Envs:\n    SGLANG_SWITCH = EnvBool(False)\n    SGLANG_NUMBER = EnvInt(3)\n"
        self.write(f"{below}/sglang/srt/environ.py", switch if environ is None else environ)

    def resolve(self, name: str = "tiny") -> Resolved:
        return resolve(name, folders(self.etc, self.share), site_file(self.etc))

    def problems(self, name: str = "tiny") -> list[str]:
        """Each as FILE'S NAME: KEY: found ..., expected ..."""
        with pytest.raises(ConfigError) as caught:
            self.resolve(name)
        return [str(problem).removeprefix(f"{Path(problem.file).parent}/") for problem in caught.value.problems]
