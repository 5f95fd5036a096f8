"""What counts as text, and what as garbage."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.smoke.readable import agreement, corrupt, runaway, unreadable
from tests.runtime.fake_model import PROSE

MARKDOWN = """\
**Bees make honey** in three steps:

1. They collect nectar from flowers -- up to 100 of them in one flight.
2. In the hive, other bees take it over and dry it with their wings (to about 18 % of water).
3. The honey is closed off with wax.

| step | where |
|------|-------|
| 1    | fields, at 20 °C |
| 2    | the "hive" |

---------------------------------------------------
That's it: it's naïve to think that they do it for us!"""


@pytest.mark.parametrize("text", [PROSE, MARKDOWN, "Yes.", "42 is the answer, as you know.", f"{PROSE[:90]}\ufffd"])
def test_text_is_readable(text: str) -> None:
    assert unreadable(text) == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "is empty"),
        (" \n\n ", "is empty"),
        (f"The \ufffd ring. {PROSE}", "has 1 replacement characters"),
        ("The ring\x00 is up.", "has 1 characters that are none (first: U+0000)"),
        ("!" * 30, "repeats '!' 30 times"),
        (f"{PROSE} " + "and so on, " * 9, "repeats ' and so on,' 9 times"),
        ("the cat and the dog and the cat sat and then the dog sat " * 3, "has only"),
        ("это написано не на том языке, который нужен", "of another script (first: 'э'"),
        (f"{PROSE[:100]} 这是一个关于自行车的解释", "of another script"),
        ("{}[]();;== 0x4f <<>> a b && || ++ -- 17 99 b /* */ $%^ @@ ## ~~", "expected prose"),
        (f"{'ab' * 20} {'xy' * 20} {'Donaudampfschifffahrt' * 3}", "expected English ones|repeats"),
        (
            "bahn table wire Qt lambda ember sett orch vine Kraft bolt ruin cast plex dorm silk Venn ogle pith quark "
            "zinc mole",
            "has 0 common English words among 22",
        ),
    ],
)
def test_garbage_is_not(text: str, fault: str) -> None:
    assert any(part in unreadable(text) for part in fault.split("|")), unreadable(text)


def test_a_rule_in_a_table_is_no_runaway() -> None:
    assert runaway("-" * 200) == runaway("| --- | --- | --- | --- | --- | --- | --- | --- | --- |") == ""
    assert runaway("ha " * 16) == "repeats 'ha ' 16 times"
    assert runaway("ha " * 3) == ""


@settings(max_examples=40)
@given(st.text(max_size=200))
def test_any_text_has_a_verdict(text: str) -> None:
    assert isinstance(unreadable(text), str)
    assert (corrupt(text) == "is empty") == (not text.strip())


@given(st.text(max_size=20), st.text(max_size=20))
def test_agreement_is_the_common_beginning(one: str, other: str) -> None:
    count = agreement(one, other)
    assert one[:count] == other[:count]
    assert count == min(len(one), len(other)) or one[count] != other[count]
