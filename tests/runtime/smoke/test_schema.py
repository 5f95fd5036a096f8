"""The few keywords of JSON schema that the checks rely on."""

import pytest

from runtime.smoke.answers import SCHEMA
from runtime.smoke.schema import violation

GOOD = {"name": "Paris", "kind": "city", "letters": 5, "capital": True, "languages": ["French"]}


def test_what_conforms() -> None:
    assert violation(GOOD, SCHEMA) == ""


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ([], "the value is [], expected object"),
        (None, "the value is None, expected object"),
        ({**GOOD, "letters": "5"}, "'letters' is '5', expected integer"),
        ({**GOOD, "letters": True}, "'letters' is True, expected integer"),
        ({**GOOD, "letters": 5.0}, "'letters' is 5.0, expected integer"),
        ({**GOOD, "capital": 1}, "'capital' is 1, expected boolean"),
        ({**GOOD, "kind": "lake"}, "'kind' is 'lake', expected one of 'city', 'river', 'mountain'"),
        ({**GOOD, "languages": []}, "'languages' has 0 items, expected at least 1"),
        ({**GOOD, "languages": ["a"] * 5}, "'languages' has 5 items, expected at most 4"),
        ({**GOOD, "languages": ["a", 1]}, "item 1 of 'languages' is 1, expected string"),
        ({**GOOD, "more": 1}, "the value has 'more', which the schema does not know"),
        ({key: GOOD[key] for key in GOOD if key != "capital"}, "the value has no 'capital'"),
    ],
)
def test_what_does_not(value: object, fault: str) -> None:
    assert violation(value, SCHEMA) == fault


def test_a_keyword_that_is_not_known_is_not_passed_over() -> None:
    with pytest.raises(NotImplementedError, match="maxLength"):
        violation("x", {"type": "string", "maxLength": 0})
