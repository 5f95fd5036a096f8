"""The list of `make mutate` fits the tree, and the tool tells a test that notices from one that does not."""

import ast
from pathlib import Path

import pytest

from sparkd.core import gates
from tests.architecture.repository import ROOT
from tests.mutate.__main__ import try_out
from tests.mutate.mutations import Mutation, apply, mutations

MUTATIONS = mutations()


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_a_mutation_applies_and_leaves_a_program(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    broken = apply(mutation, text)
    assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(text))


def test_every_gate_is_dropped_once() -> None:
    dropped = [mutation.gate for mutation in MUTATIONS if mutation.gate]
    assert sorted(dropped) == sorted(gate.__name__ for gate in gates.GATES)


@pytest.mark.parametrize("text", ["one", "one two two"])
def test_a_mutation_that_does_not_apply_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"a\.py: a rule: 'two' stands there [02] times, not once"):
        apply(Mutation("a rule", "a.py", "two", "three"), text)


@pytest.mark.parametrize(
    ("new", "equivalent", "verdict", "good"),
    [
        ("1 + 1 + 1", "", "caught", True),
        ("1 * 2", "", "survived", False),
        ("1 * 2", "it is the same", "equivalent", True),
        ("1 + 1 + 1", "it is the same", "not equivalent", False),
        ("1 +", "", "undecided", False),
    ],
)
def test_the_tool_tells_what_was_noticed(tmp_path: Path, new: str, equivalent: str, verdict: str, good: bool) -> None:
    (tmp_path / "conftest.py").write_text(
        "from hypothesis import settings\nsettings.register_profile('mutate')\n", encoding="utf-8"
    )
    (tmp_path / "thing.py").write_text("TWO = 1 + 1\n", encoding="utf-8")
    (tmp_path / "test_thing.py").write_text(
        "import thing\n\n\ndef test_two():\n    assert thing.TWO == 2\n", encoding="utf-8"
    )
    mutation = Mutation("two is two", "thing.py", "1 + 1", new, equivalent=equivalent)
    outcome = try_out(tmp_path, mutation, [("test_thing.py",)])
    assert (outcome.verdict, outcome.good) == (verdict, good), outcome.test
    assert (tmp_path / "thing.py").read_text(encoding="utf-8") == "TWO = 1 + 1\n"
