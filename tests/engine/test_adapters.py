"""`[adapters]` of profile and site: what they may say, what hosts compare, and what a rank is given."""

from __future__ import annotations

import json

import pytest

from adapter import catalogue
from runtime.sglang.command import ADAPTERS as PASSED
from sparkd.config import adapters
from tests.engine.site import PROFILE, Site

ROWS = '[adapters.engram_rows]\ndirectory = "/srv/engram"\n'


def given(site: Site) -> object:
    told = adapters.environment(site.resolve())
    return json.loads(told[adapters.VARIABLE]) if told else None


def test_the_names_are_those_that_there_are() -> None:
    there = {name: tuple(catalogue.load(name).adapter.options) for name in catalogue.NAMES}
    assert there == dict(adapters.ADAPTERS)
    assert adapters.VARIABLE == PASSED


def test_without_any_a_rank_is_told_of_none(site: Site) -> None:
    assert adapters.environment(site.resolve()) == {}
    site.profile(PROFILE + "[adapters]\ntp3_pad = false\n")
    assert adapters.environment(site.resolve()) == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[adapters]\ntp3_pad = true\n", {"tp3_pad": {}}),
        ('[adapters]\ntp3_pad = { value = true, why = "it fits" }\n', {"tp3_pad": {}}),
        ('[adapters.tp3_pad]\npadding = { value = "end", why = "a test" }\n', {"tp3_pad": {"padding": "end"}}),
        (ROWS + "depth = 64\n", {"engram_rows": {"directory": "/srv/engram", "depth": 64}}),
        (ROWS + "value = false\n", None),
        ('[adapters.engram_rows]\ndirectory = "it\'s"\n', {"engram_rows": {"directory": "it's"}}),
    ],
)
def test_gates_and_options_reach_the_rank(site: Site, text: str, expected: object) -> None:
    site.profile(PROFILE + text)
    assert given(site) == expected
    assert "'" not in "".join(adapters.environment(site.resolve()).values())
    plugins = json.loads(site.resolve().config("/python", "0.5.23"))["launch"]["plugins"]
    assert plugins == (["sparkd"] if expected else [])


def test_the_site_turns_one_on_and_another_off(site: Site) -> None:
    site.profile(PROFILE + "[adapters.tp3_pad]\nwhy = 'w'\npadding = 'end'\n[adapters.engram_prefetch]\n")
    site.override("[adapters]\nengram_prefetch = false\n" + ROWS)
    assert given(site) == {"tp3_pad": {"padding": "end"}, "engram_rows": {"directory": "/srv/engram"}}
    found = {setting.key: setting for setting in site.resolve().settings}
    assert (found["adapters.tp3_pad"].why, found["adapters.tp3_pad"].value) == ("w", True)
    assert found["adapters.engram_prefetch"].replaced is not None


def test_hosts_compare_each_gate_and_option(site: Site) -> None:
    site.profile(PROFILE + "[adapters]\nengram_prefetch = true\n" + ROWS)
    told = site.resolve().digests()
    assert {key: value for key, value in told.items() if ".adapters." in key} == {
        "engine.adapters.engram_prefetch": "true",
        "engine.adapters.engram_rows": "true",
        "engine.adapters.engram_rows.directory": "/srv/engram",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[adapters]\ntp3_pda = true\n", 'adapters.tp3_pda: found a key that cannot be set, expected "tp3_pad"?'),
        ("[adapters]\ntp3_pad = 1\n", "adapters.tp3_pad: found 1, expected true, false, or a table of options"),
        ("[adapters.tp3_pad]\npad = 'end'\n", "adapters.tp3_pad.pad: found a key that cannot be set, expected "),
        ("[adapters.tp3_pad]\npadding = ['end']\n", "adapters.tp3_pad.padding: found "),
        ("[adapters.tp3_pad]\nvalue = 'yes'\n", 'adapters.tp3_pad: found "yes", expected true, false, or a table'),
        ("[adapters.engram_rows]\ndepth = inf\n", "adapters.engram_rows.depth: found inf, expected true, false"),
        ("adapters = 3\n", "adapters: found 3, expected one [adapters] table"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_told_with_file_and_key(site: Site, text: str, says: str) -> None:
    site.profile(text + PROFILE if text.startswith("adapters =") else PROFILE + text)
    (problem,) = site.problems()
    assert problem.startswith(f"tiny.toml: {says}")
