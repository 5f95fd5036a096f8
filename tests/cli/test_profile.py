"""profile list, show, check: what they print of files, and how they end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Ctl
from tests.engine.site import PROFILE, PYTHON, Site

EXAMPLE = PROFILE + 'context-length = { value = 8192, why = "cheap", source = "measured" }\n'


@pytest.fixture
def site(tmp_path: Path) -> Site:
    made = Site(tmp_path)
    made.profile(EXAMPLE)
    made.install()
    return made


@pytest.fixture
def profile(ctl: Ctl, site: Site) -> Ctl:
    """`sparkctl profile ...` of the site."""
    return lambda *arguments: ctl("profile", *arguments, "--root", str(site.root), daemon=False)


def configure(site: Site, engine: str = '[engine]\nname = "sglang"\nprofile = "tiny"\n') -> None:
    site.write("etc/sparkd/sparkd.toml", engine)


def test_list_names_each_profile_its_file_and_which_one_is_this_nodes(site: Site, profile: Ctl) -> None:
    configure(site)
    site.profile("sglang = 3\n", name="bad")
    ended = profile("list")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"bad  {site.share}/bad.toml",
        "  cannot be used: sparkctl profile check bad",
        f"tiny (this node's)  {site.share}/tiny.toml",
        "  SGLang 0.5.23: A model for tests",
    ]
    rows = json.loads(profile("list", "--json").out)["profiles"]
    assert [(row["profile"], row["configured"], row["sglang"], len(row["problems"])) for row in rows] == [
        ("bad", False, None, 1),
        ("tiny", True, "0.5.23", 0),
    ]


def test_list_says_where_it_has_looked_in_vain(site: Site, profile: Ctl) -> None:
    (site.share / "tiny.toml").unlink()
    assert profile("list").out == f"no profile in {site.etc}/profiles or {site.share}\n"


def test_show_has_value_origin_why_and_source_of_each_setting(site: Site, profile: Ctl) -> None:
    site.override('allow_sglang = ["0.5.24"]\n[arguments]\ncontext-length = 4096\nsizes = [1, 2]\n')
    lines = profile("show", "tiny").out.splitlines()
    assert lines[:9] == [
        f"tiny  {site.share}/tiny.toml, for SGLang 0.5.23, here also 0.5.24",
        "A model for tests",
        "",
        "[arguments]",
        '  model-path = "/srv/models/tiny"',
        f"  context-length = 4096  ({site.etc}/engine.toml; the profile has 8192)",
        f"  sizes = [1, 2]  ({site.etc}/engine.toml)",
        "",
        "[launch]",
    ]
    assert "  stall_seconds = 600  (default)" in lines
    (site.etc / "engine.toml").unlink()
    lines = profile("show", "tiny").out.splitlines()
    at = lines.index("  context-length = 8192")
    assert lines[at + 1] == "      cheap [measured]"


def test_show_as_json(site: Site, profile: Ctl) -> None:
    told = json.loads(profile("show", "tiny", "--json").out)
    assert (told["profile"], told["sglang"], told["allow_sglang"]) == ("tiny", "0.5.23", [])
    assert told["arguments"] == ["--model-path", "/srv/models/tiny", "--context-length", "8192"]
    setting = next(row for row in told["settings"] if row["name"] == "context-length")
    assert setting == {
        "table": "arguments",
        "name": "context-length",
        "value": 8192,
        "origin": f"{site.share}/tiny.toml",
        "why": "cheap",
        "source": "measured",
        "replaced": None,
    }


def test_show_of_a_profile_that_is_not_there_names_those_that_are(profile: Ctl) -> None:
    ended = profile("show", "huge")
    assert ended.code == 7
    assert "huge.toml: file: found nothing, expected a profile" in ended.err
    assert ended.err.endswith("hint: profiles on this node: tiny\n")


def test_a_good_profile_is_compared_with_the_installed_sglang(site: Site, profile: Ctl) -> None:
    ended = profile("check")
    assert (ended.code, ended.out) == (0, "tiny: good; 2 options and 0 variables compared with SGLang 0.5.23\n")


def test_check_tells_every_problem_with_file_key_found_and_expected(site: Site, profile: Ctl) -> None:
    site.override("[arguments]\ncontxt-length = 1\ngemm = 'best'\n")
    ended = profile("check", "tiny")
    assert ended.code == 7
    assert ended.out.splitlines() == [
        f"{site.etc}/engine.toml: arguments.contxt-length: found a name that SGLang 0.5.23 does not have, expected an "
        "option of SGLang 0.5.23, such as context-length",
        f'{site.etc}/engine.toml: arguments.gemm: found "best", expected one of auto, cutlass (SGLang 0.5.23)',
        "tiny: 2 problems; 4 options and 0 variables compared with SGLang 0.5.23",
    ]
    told = json.loads(profile("check", "tiny", "--json").out)["profiles"]
    assert [(row["profile"], [problem["key"] for problem in row["problems"]]) for row in told] == [
        ("tiny", ["arguments.contxt-length", "arguments.gemm"])
    ]


def test_check_of_files_that_cannot_be_used(site: Site, profile: Ctl) -> None:
    site.override("[arguments]\ntp-size = 3\n")
    ended = profile("check", "tiny")
    assert ended.code == 7
    assert ended.out.splitlines()[0].startswith(f"{site.etc}/engine.toml: arguments.tp-size: found a key that cannot")
    assert ended.out.splitlines()[1] == "tiny: 1 problem; not compared with SGLang"


def test_check_takes_no_other_version_that_is_not_allowed(site: Site, profile: Ctl) -> None:
    (site.packages / "sglang-0.5.23.dist-info").rename(site.packages / "sglang-0.5.24.dist-info")
    ended = profile("check", "tiny")
    assert ended.code == 7
    assert ended.out.splitlines()[0] == (
        f"{PYTHON}: sglang: found version 0.5.24, expected version 0.5.23, which the profile is written for, or "
        f"allow_sglang in {site.etc}/engine.toml"
    )
    site.override('allow_sglang = ["0.5.24"]')
    assert profile("check", "tiny").code == 0


def test_what_could_not_be_compared_is_no_success(site: Site, profile: Ctl) -> None:
    ended = profile("check", "tiny", "--python", "/opt/other/bin/python")
    assert ended.code == 8
    assert ended.out == "tiny: good; not compared: there is no SGLang in the environment of /opt/other/bin/python\n"


def test_check_without_a_name_is_of_the_configured_one_or_of_all(site: Site, profile: Ctl) -> None:
    site.profile("sglang = 3\n", name="bad")
    assert profile("check").code == 7
    configure(site)
    assert profile("check").out.startswith("tiny: good")
    configure(site, '[engine]\nname = "probe"\n')
    assert profile("check").code == 7


def test_check_takes_the_interpreter_of_sparkd_toml(site: Site, profile: Ctl) -> None:
    configure(site, '[engine]\nname = "sglang"\nprofile = "tiny"\npython = "/opt/mine/bin/python"\n')
    assert "no SGLang in the environment of /opt/mine/bin/python" in profile("check").out


def test_nothing_of_a_profile_moves_the_cursor(site: Site, profile: Ctl) -> None:
    site.profile(EXAMPLE.replace('"cheap"', '"a\\u001b[2Jb"'))
    assert "\x1b" not in profile("show", "tiny").out
