"""SGLang's own options, read from its source, and a profile against them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from sparkd.config.listing import asked, strangers
from sparkd.config.profiles import resolve
from sparkd.host.engine import EngineFiles
from sparkd.host.engineoptions import OptionsError, ask, read_options, read_variables
from sparkd.ports import DoorError
from tests.architecture.repository import ROOT
from tests.engine.record import listing, recorded
from tests.engine.site import FIELDS, PYTHON, Site

SHIPPED = sorted((ROOT / "profiles").glob("*.toml"))
SERVER_ARGS = '''
def _parsers():
    import sys
    module = sys.modules.get("sglang.srt.parser.parsers")
    if module is not None:
        return list(module.Parsers.Map)
    from sglang.srt.parser.names import NAMES

    return list(NAMES)


class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        """Those that are not declared."""
        choices = _parsers()
        parser.add_argument("--parser", "--parser-name", type=str, choices=["auto"] + choices)
        parser.add_argument("--computed", choices=[m.name for m in something()])
        parser.add_argument("--old", action=DeprecatedStoreTrueAction, new_flag="--new")
        parser.add_argument("--older", action="store_true", help="(Deprecated: use --new)")
        parser.add_argument("--numbers", type=int, nargs="+")
'''
MORE = """
class Backend:
    FULL = "full"
    NONE = "none"
    ALL = [FULL, NONE]
class More:
    either: A[bool, Arg(help="x", action=argparse.BooleanOptionalAction)] = True
    free: A["Optional[int]", Arg(help="x" + "y", type_parser=human)] = None
    union: A[int | None, "x" f"y"] = None
    graph: A[Optional[str], Arg(choices=Backend.ALL)] = None
    paths: A[Optional[str], Arg(action=PathAction, action_kwargs={"nargs": "*"})] = None
    sum: A[Optional[str], Arg(nargs="?", const="")] = None
    told: A[str, UNDECLARED] = None
"""


@pytest.fixture
def package(site: Site) -> Path:
    site.install(fields=FIELDS + MORE)
    below = "opt/sparkd/engine/lib/python3.12/site-packages/sglang/srt"
    site.write(f"{below}/server_args.py", SERVER_ARGS)
    site.write(f"{below}/parser/names.py", 'NAMES = ["one", "two"]\n')
    site.write(f"{below}/entrypoints/server.py", 'TIMEOUT = os.getenv("SGLANG_ELSEWHERE", 20)  # not SGLANG_NOWHERE\n')
    return site.packages / "sglang"


def option(
    kind: str,
    choices: list[object] | None = None,
    *,
    many: bool = False,
    alone: bool = False,
    deprecated: bool = False,
) -> object:
    return {"kind": kind, "many": many, "alone": alone, "choices": choices, "deprecated": deprecated}


def test_declared_and_added_options_are_found_with_kind_and_choices(package: Path) -> None:
    found = {name: told for name, told in read_options(package).items() if not name.startswith("filler")}
    assert found == {
        "model-path": option("text"),
        "model": option("text"),
        "context-length": option("integer"),
        "enable-metrics": option("flag"),
        "gemm": option("text", ["auto", "cutlass"]),
        "level": option("integer", [1, 2]),
        "sizes": option("integer", many=True),
        "either": option("flag"),
        "no-either": option("flag"),
        "free": option("text"),
        "union": option("integer"),
        "graph": option("text", ["full", "none"]),
        "paths": option("text", many=True, alone=True),
        "sum": option("text", alone=True),
        "parser": option("text", ["auto", "one", "two"]),
        "parser-name": option("text", ["auto", "one", "two"]),
        "computed": option("text"),
        "old": option("flag", deprecated=True),
        "older": option("flag", deprecated=True),
        "numbers": option("integer", many=True),
    }


def test_variables_are_found_where_they_are_declared_and_where_they_are_only_read(site: Site, package: Path) -> None:
    text = (
        "class Envs:\n    SGLANG_A = EnvBool(False)\n    SGLANG_B = EnvIntWithAlias(1, deprecated_name='SGLANG_OLD')\n"
        "    SGLANG_C = EnvStr(None)\n    SGLANG_D = EnvFloat(0.5)\n"
        "_DEPRECATED_ENVS: Dict[str, X] = {'SGLANG_GONE': X()}\n"
    )
    site.write("opt/sparkd/engine/lib/python3.12/site-packages/sglang/srt/environ.py", text)
    declared = {"SGLANG_A": "flag", "SGLANG_B": "integer", "SGLANG_C": "text", "SGLANG_D": "number"}
    assert read_variables(package) == declared | {"SGLANG_OLD": "deprecated", "SGLANG_GONE": "deprecated"}
    answer = ask(package, [], ["SGLANG_A", "SGLANG_ELSEWHERE", "SGLANG_NOWHERE"])
    assert answer["variables"] == {"SGLANG_A": "flag", "SGLANG_ELSEWHERE": "", "SGLANG_NOWHERE": None}


def test_what_is_like_an_unknown_name_is_told(package: Path) -> None:
    answer = ask(package, ["contxt-length", "poetry"], ["SGLANG_SWTCH"])
    assert answer["like"] == {"contxt-length": ["context-length"], "poetry": [], "SGLANG_SWTCH": ["SGLANG_SWITCH"]}


def test_another_layout_is_not_taken_for_one_without_options(site: Site) -> None:
    site.install(fields="class Fields:\n    model_path: A[str, 'x']\n")
    with pytest.raises(OptionsError, match=r"only 1 options were found .* another layout than that of"):
        read_options(site.packages / "sglang")
    site.install(environ="")
    with pytest.raises(OptionsError, match="no variable was found"):
        read_variables(site.packages / "sglang")


LOST = "found a name that SGLang 9 does not have, expected"


def faults(site: Site, override: str) -> list[str]:
    site.override(override)
    resolved = site.resolve()
    answer = ask(site.packages / "sglang", *asked(resolved))
    return [
        f"{Path(p.file).name}: {p.key}: found {p.found}, expected {p.expected}"
        for p in strangers(resolved, "9", answer)
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("contxt-length = 1", f"{LOST} an option of SGLang 9, such as context-length"),
        ("poetry = false", f"{LOST} an option of SGLang 9"),
        ("context-length = 'long'", 'found "long", expected an integer (SGLang 9)'),
        ("context-length = 1.5", "found 1.5, expected an integer (SGLang 9)"),
        ("context-length = true", "found true, expected an integer: the option takes a value"),
        ("context-length = [1, 2]", "found a list of 2, expected an integer: the option takes one value"),
        ("enable-metrics = 1", "found 1, expected true or false: the option takes no value"),
        ("gemm = 'best'", 'found "best", expected one of auto, cutlass (SGLang 9)'),
        ("level = 3", "found 3, expected one of 1, 2 (SGLang 9)"),
        ("sizes = ['a']", 'found "a", expected an integer (SGLang 9)'),
        ("filler-1 = 'x'", 'found "x", expected a number (SGLang 9)'),
    ],
)  # fmt: skip
def test_an_option_that_sglang_would_refuse_is_told(site: Site, package: Path, line: str, expected: str) -> None:
    assert faults(site, f"[arguments]\n{line}\n") == [f"engine.toml: arguments.{line.split(maxsplit=1)[0]}: {expected}"]


@pytest.mark.parametrize(
    "line",
    [
        "context-length = 1", "context-length = '4096'", "context-length = false", "enable-metrics = true", "level = 2",
        "gemm = 'cutlass'", "sizes = [1, 2]", "sizes = 3", "filler-1 = 3", "filler-1 = 0.5", "no-either = true",
        "free = '8k'", "computed = 'anything'", "parser = 'two'", "model = '/x'", "sum = true", "sum = 'abc'",
    ],
)  # fmt: skip
def test_an_option_that_sglang_takes_is_fine(site: Site, package: Path, line: str) -> None:
    assert faults(site, f"[arguments]\n{line}\n") == []


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("SGLANG_SWTCH = 1", f"{LOST} a variable of SGLang 9, such as SGLANG_SWITCH"),
        ("SGLANG_SWITCH = 'on'", 'found "on", expected 1 or 0, true or false: it is a switch'),
        ("SGLANG_NUMBER = 'x'", 'found "x", expected an integer: SGLang would go on with its default'),
    ],
)  # fmt: skip
def test_a_variable_that_sglang_would_pass_over_is_told(site: Site, package: Path, line: str, expected: str) -> None:
    assert faults(site, f"[environment]\n{line}\n") == [
        f"engine.toml: environment.{line.split(maxsplit=1)[0]}: {expected}"
    ]


def test_variables_of_others_are_not_judged(site: Site, package: Path) -> None:
    assert (
        faults(site, "[environment]\nPYTORCH_CUDA_ALLOC_CONF = 'x'\nSGLANG_SWITCH = 'True'\nNCCL_ALGO = 'Ring'\n") == []
    )


# The release that shipped profiles are for.


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_a_shipped_profile_is_one_that_its_sglang_takes(file: Path, tmp_path: Path) -> None:
    """Against what was recorded of the release, so that it is checked with and without the release itself."""
    profile = resolve(file.stem, [file.parent], tmp_path / "engine.toml")
    known = recorded(profile.sglang)
    assert strangers(profile, profile.sglang, known) == []
    _, variables = asked(profile)
    assert {name for name in variables if known["variables"].get(name) is None} == set()


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_setting_of_a_shipped_profile_says_why_and_on_whose_word(file: Path, tmp_path: Path) -> None:
    profile = resolve(file.stem, [file.parent], tmp_path / "engine.toml")
    own = [setting for setting in profile.settings if setting.origin == str(file)]
    assert [setting.key for setting in own if not (setting.why and setting.source)] == []
    assert len(own) > 20


def test_the_record_is_what_the_installed_release_says() -> None:
    """Needs SGLang: /opt/sparkd/engine, or the directory of the package in SPARKD_TEST_SGLANG."""
    given = os.environ.get("SPARKD_TEST_SGLANG", "")
    usual = sorted(Path("/opt/sparkd/engine").glob("lib/python3*/site-packages/sglang"))
    places = [Path(given)] if given else usual
    if not places:
        pytest.skip("no SGLang here: neither in /opt/sparkd/engine nor in SPARKD_TEST_SGLANG")
    version = next(places[0].parent.glob("sglang-*.dist-info")).name.split("-")[1].removesuffix(".dist")
    found = listing(places[0])
    present = {part: {k: v for k, v in found[part].items() if v is not None} for part in ("options", "variables")}
    assert present == {part: recorded(version)[part] for part in present}


# The door.


def test_the_installed_version_is_that_of_the_package_alone(site: Site) -> None:
    files = EngineFiles(site.root)
    assert (files.installed(Path(PYTHON)).version, files.installed(Path(PYTHON)).python) == ("", False)
    site.install("0.5.23+cpu")
    found = files.installed(Path(PYTHON))
    assert (found.version, found.python, found.package) == ("0.5.23+cpu", True, site.packages / "sglang")


def test_another_installation_has_another_stamp(site: Site) -> None:
    files = EngineFiles(site.root)
    site.install()
    before = files.installed(Path(PYTHON)).stamp
    assert files.installed(Path(PYTHON)).stamp == before
    (site.packages / "sglang-0.5.23.dist-info/RECORD").write_text("")
    os.utime(site.packages / "sglang-0.5.23.dist-info", (1, 1))
    assert files.installed(Path(PYTHON)).stamp != before


def test_two_versions_are_not_chosen_from(site: Site) -> None:
    site.install()
    site.write("opt/sparkd/engine/lib/python3.11/site-packages/sglang-0.5.22.dist-info/METADATA", "")
    with pytest.raises(DoorError, match=r"several SGLang are installed .*: .*0\.5\.22.*0\.5\.23"):
        EngineFiles(site.root).installed(Path(PYTHON))


def test_a_child_reads_the_options(site: Site) -> None:
    site.install()
    files = EngineFiles(site.root)
    answer = files.options(site.packages / "sglang", ["gemm", "x"], ["SGLANG_NUMBER"])
    assert answer == ask(site.packages / "sglang", ["gemm", "x"], ["SGLANG_NUMBER"])


def test_a_child_that_cannot_tell_says_why(site: Site) -> None:
    site.install(fields="class :\n")
    with pytest.raises(DoorError, match="could not be read: invalid syntax"):
        EngineFiles(site.root).options(site.packages / "sglang", [], [])


def test_a_child_that_hangs_is_ended(site: Site) -> None:
    site.install()
    environ = site.packages / "sglang/srt/environ.py"
    environ.unlink()
    os.mkfifo(environ)
    began = time.monotonic()
    with pytest.raises(DoorError, match=r"could not be read within 0\.5 s"):
        EngineFiles(site.root, seconds=0.5).options(site.packages / "sglang", [], [])
    assert time.monotonic() - began < 4
    left = subprocess.run(["pgrep", "-f", str(site.packages)], capture_output=True, check=False)
    assert left.stdout == b""
