"""The lines of a file's keys, and a change of one of them that leaves all others as they are."""

from __future__ import annotations

import tomllib

import pytest

from sparkd.config.lines import NotUnderstood, numbers, with_value, without

TEXT = """\
# a comment
[node]
name = "spark1"   # of this node

[cluster]
name = 'lab'
[[cluster.node]]
name = "spark1"
[[cluster.node]]
  name = "spark2"

[recovery]
# how often
restarts = 3 # a day
"backoff_seconds" = 5
text = \"\"\"
restarts = 9
\"\"\"
window_minutes = 60
"""


def test_where_keys_are() -> None:
    found = numbers(TEXT)
    assert {
        key: found[key] for key in ("node.name", "cluster.name", "recovery.restarts", "recovery.backoff_seconds")
    } == {
        "node.name": 3,
        "cluster.name": 6,
        "recovery.restarts": 14,
        "recovery.backoff_seconds": 15,
    }
    assert (found["cluster.node[0].name"], found["cluster.node[1].name"], found["cluster.node[1]"]) == (8, 10, 9)
    assert found["recovery.window_minutes"] == 19
    assert numbers("recovery.restarts = 2\n") == {"recovery.restarts": 1}


def test_a_value_changes_its_line_alone() -> None:
    changed = with_value(TEXT, "recovery.restarts", "7")
    assert changed == TEXT.replace("restarts = 3 # a day", "restarts = 7 # a day")
    assert with_value(TEXT, "node.name", '"a # b"').splitlines()[2] == 'name = "a # b"   # of this node'


def test_a_new_key_comes_into_its_table_or_makes_one() -> None:
    changed = with_value(TEXT, "recovery.hard_reset_hours", "2.5")
    assert changed.splitlines()[12] == "hard_reset_hours = 2.5"
    assert with_value("", "peers.fresh_seconds", "20") == "[peers]\nfresh_seconds = 20\n"
    assert with_value("# mine\n", "peers.fresh_seconds", "20") == "# mine\n\n[peers]\nfresh_seconds = 20\n"


def test_what_is_taken_out_leaves_the_rest() -> None:
    assert without(TEXT, "recovery.restarts") == TEXT.replace("restarts = 3 # a day\n", "")
    assert without(TEXT, "recovery.nothing") == TEXT


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("[a]\nb = [\n 1,\n 2,\n]\n", "a.b"),
        ('[a]\nb = """\nx\n"""\n', "a.b"),
        ("a = {b = 1}\n", "a.b"),
        ("a = 3\n", "a.b"),
        ("[a]\nb.c = 1\n", "a.b"),
    ],
)
def test_a_form_that_is_not_understood_is_refused_and_never_spoilt(text: str, key: str) -> None:
    tomllib.loads(text)
    with pytest.raises(NotUnderstood):
        with_value(text, key, "4")
