"""The plan of memory: against what was published of the model, and of rings of two, three and four Sparks."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.budget.division import WIDTH, Division
from runtime.budget.inputs import as_published, of_checkpoint, settings_of
from runtime.budget.plan import Budget, Settings, plan
from runtime.budget.published import GIB
from runtime.budget.shapes import Shape
from runtime.trouble import Trouble
from tests.runtime.checkpoint import made

PROFILE = str(Path(__file__).parents[3] / "profiles/deepseek-v4.1-flash-tp3.toml")


def budget(world: int, settings: Settings | None = None) -> Budget:
    return plan(*as_published(), settings or settings_of(PROFILE, site=None), world)


def test_the_tensors_are_those_of_the_published_checkpoint() -> None:
    shapes, _ = as_published()
    assert sum(each.count for each in shapes) == 96_085
    # Two values of an expert are in one byte; scales are no parameters.
    values = sum(
        each.count * math.prod(each.shape) * (2 if each.dtype == "I8" else 1)
        for each in shapes
        if each.dtype != "F8_E8M0"
    )
    assert values == 763_205_315_794
    size = sum(each.count * math.prod(each.shape) * WIDTH[each.dtype] for each in shapes)
    assert size / GIB == pytest.approx(476, rel=0.002)
    tables = sum(math.prod(each.shape) for each in shapes if ".engram.embed." in each.name)
    assert tables / GIB == pytest.approx(189, rel=0.001)


@pytest.mark.parametrize(("world", "gib"), [(2, 145), (3, 101), (4, 77)])
def test_the_published_budget_is_reproduced(world: int, gib: int) -> None:
    assert budget(world).total / GIB == pytest.approx(gib, rel=0.02)


def test_two_nodes_are_refused_with_the_numbers() -> None:
    found = [budget(world) for world in (2, 3, 4)]
    assert [each.fits for each in found] == [False, True, True]
    assert found[0].faults[0] == ("rank 0 takes 147.6 GiB of 121.7, and 15.0 are needed beside it: 40.9 GiB too much")


def test_only_three_ranks_need_padding() -> None:
    _, config = as_published()
    found = {world: Division.of(config, world) for world in (2, 3, 4)}
    assert {world: (each.padded_heads, each.padded_groups) for world, each in found.items()} == {
        2: (64, 8), 3: (96, 12), 4: (64, 8),
    }  # fmt: skip
    assert found[3].padded_vocabulary == 129408


def test_a_profile_that_wants_too_much_is_refused() -> None:
    usual = settings_of(PROFILE, site=None)
    assert (usual.tokens, usual.fraction, usual.expert_parallel) == (750000, 0.95, 1)
    many = budget(3, replace(usual, tokens=8_000_000))
    assert ["GiB too much" in fault for fault in many.faults] == [True]
    divided = budget(3, replace(usual, expert_parallel=3))
    assert divided.faults == ("dspark_n_routed_experts 128 does not divide by ep-size 3",)
    narrow = budget(3, replace(usual, fraction=0.5))
    assert "mem-fraction-static 0.5 admits 60.8" in narrow.faults[0]


def test_each_tensor_is_somewhere_as_a_whole() -> None:
    """What is divided adds up to what there is, where nothing has to be padded."""
    _, config = as_published()
    division = Division.of(config, 4)
    for name, dtype, shape in (
        ("layers.0.ffn.experts.0.w1.weight", "I8", (2304, 2560)),
        ("layers.0.attn.wq_b.weight", "F8_E4M3", (32768, 1280)),
        ("layers.0.attn.wo_b.scale", "F8_E8M0", (160, 256)),
    ):
        tensor = Shape(name, dtype, shape)
        assert division.resident(tensor)[1] * 4 == math.prod(shape)
    assert division.resident(Shape("layers.0.attn.wq_a.weight", "F8_E4M3", (1280, 5120))) == (
        "on every rank",
        1280 * 5120,
    )
    assert division.resident(Shape("layers.1.engram.embed.weight", "F8_E4M3", (99, 256))) == ("engram tables", 0.0)


def test_a_checkpoint_on_disk_is_read(tmp_path: Path) -> None:
    directory = made.checkpoint(tmp_path / "model")
    with pytest.raises(Trouble, match="has no num_attention_heads, o_groups, vocab_size, moe_intermediate_size"):
        of_checkpoint(directory)
    (directory / "config.json").write_text(
        '{"num_attention_heads": 64, "o_groups": 8, "vocab_size": 250, "moe_intermediate_size": 12}'
    )
    shapes, config = of_checkpoint(directory)
    assert {each.name for each in shapes} >= {"embed.weight", "layers.14.engram.embed.scale"}
    found = plan(shapes, config, Settings("p", 1000, 0.9, 1), 3)
    # 250 words of 100 values of two bytes each, padded to 384, of which a rank has a third.
    assert found.weights["vocabulary"] == 384 / 3 * 100 * 2


@pytest.mark.parametrize(
    "text", ["[arguments]\nmax-total-tokens = 0", "arguments = 3", "[arguments]\nep-size = true", "["]
)
def test_a_faulty_profile_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(Trouble, match=r"bad\.toml: "):
        settings_of(str(path), site=None)


def test_the_site_overrides_the_profile(tmp_path: Path) -> None:
    site = tmp_path / "engine.toml"
    site.write_text("[arguments]\nmax-total-tokens = { value = 1000, why = 'small' }\n")
    assert settings_of(PROFILE, site).tokens == 1000
    assert not settings_of(PROFILE, site).rows_on_disk
    for gate, on in ((" = true", True), (" = false", False), (".directory = '/x'", True)):
        site.write_text(f"[adapters]\nengram_rows{gate}\n")
        assert settings_of(PROFILE, site).rows_on_disk is on
    with pytest.raises(Trouble, match="nowhere: no such profile"):
        settings_of("nowhere")
