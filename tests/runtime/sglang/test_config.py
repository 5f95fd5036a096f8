"""SPARKD_ENGINE_CONFIG: read whole, and every bad key named."""

import json
from pathlib import Path
from typing import Any

import pytest

from runtime.environment import BadEnvironment
from runtime.sglang.config import RESERVED, Limits, read_engine_config
from tests.runtime.sglang.bench import LAUNCH, config


def good(tmp_path: Path) -> dict[str, Any]:
    value = json.loads(config(tmp_path, {"smoke": ["arithmetic"], "plugins": ["tp3_pad"]}, {"NCCL_ALGO": "Ring"}))
    assert isinstance(value, dict)
    return value


def problems(value: object) -> list[str]:
    text = value if isinstance(value, str) else json.dumps(value)
    with pytest.raises(BadEnvironment) as caught:
        read_engine_config({"SPARKD_ENGINE_CONFIG": text})
    return list(caught.value.problems)


def test_a_good_one_is_read_whole(tmp_path: Path) -> None:
    read = read_engine_config({"SPARKD_ENGINE_CONFIG": json.dumps(good(tmp_path))})
    assert (read.profile, read.version) == ("test", "0.5.23")
    assert read.environment["NCCL_ALGO"] == "Ring"
    assert read.launch == Limits("any", 10, 10, 30, 0.3, 0.5, 10, ("arithmetic",), True, ("tp3_pad",))
    assert read.argument("--load-format") == "dummy"
    assert read.argument("--model-path", "--model") == str(tmp_path / "model")
    assert read.argument("--enable-metrics") == ""
    assert read.argument("--served-model-name") is None


def test_the_last_of_two_arguments_counts_in_either_form(tmp_path: Path) -> None:
    value = good(tmp_path)
    value["arguments"] = ["--api-key", "a", "--api-key=b"]
    assert read_engine_config({"SPARKD_ENGINE_CONFIG": json.dumps(value)}).argument("--api-key") == "b"


@pytest.mark.parametrize("key", ["profile", "python", "version", "arguments", "environment", "launch"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    value = good(tmp_path)
    del value[key]
    assert [p for p in problems(value) if p.startswith(f"SPARKD_ENGINE_CONFIG: {key}: ") and p.endswith("not set")]


@pytest.mark.parametrize("key", sorted(LAUNCH))
def test_a_missing_or_bad_limit_is_named(tmp_path: Path, key: str) -> None:
    value = good(tmp_path)
    del value["launch"][key]
    assert [p.partition(": expected")[0] for p in problems(value)] == [f"SPARKD_ENGINE_CONFIG: launch.{key}"]
    value["launch"][key] = {"a": 1}
    assert [p.partition(": expected")[0] for p in problems(value)] == [f"SPARKD_ENGINE_CONFIG: launch.{key}"]


@pytest.mark.parametrize("seconds", [0, -1, True, "10", 1e12])
def test_seconds_are_seconds(tmp_path: Path, seconds: object) -> None:
    value = good(tmp_path)
    value["launch"]["hung_seconds"] = seconds
    assert problems(value)[0].startswith("SPARKD_ENGINE_CONFIG: launch.hung_seconds: expected seconds above 0")


def test_everything_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    value = good(tmp_path)
    value["python"] = "python3"
    value["surprise"] = 1
    value["launch"]["transport"] = "carrier pigeon"
    value["launch"]["surprise"] = 1
    value["environment"] = {"SPARKD_GROUP_KEY": "x", "BAD-NAME": "x", "TOKEN": 5}
    said = "\n".join(problems(value))
    for part in (
        "python: ",
        "CONFIG: surprise: not a key",
        "transport: ",
        "CONFIG: launch.surprise: not a key",
        "SPARKD_GROUP_KEY",
        "BAD-NAME",
    ):
        assert part in said
    assert "environment.TOKEN: expected a text" in said


@pytest.mark.parametrize("name", RESERVED)
def test_what_the_launcher_sets_is_refused(tmp_path: Path, name: str) -> None:
    for form in ([name, "3"], [f"{name}=3"]):
        value = good(tmp_path)
        value["arguments"] += form
        assert problems(value) == [f"SPARKD_ENGINE_CONFIG: arguments: {name} is set by the launcher, leave it out"]


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "[" * 100000])
def test_what_is_no_object_is_refused(text: str) -> None:
    assert problems(text)[0].startswith("SPARKD_ENGINE_CONFIG: ") or problems(text)[0].startswith(
        "SPARKD_ENGINE_CONFIG"
    )


def test_without_it_there_is_nothing_to_run() -> None:
    with pytest.raises(BadEnvironment, match="SPARKD_ENGINE_CONFIG: expected the resolved profile as JSON, not set"):
        read_engine_config({})


def test_a_value_that_may_be_secret_is_not_repeated(tmp_path: Path) -> None:
    value = good(tmp_path)
    value["environment"]["HF_TOKEN"] = ["sesame"]
    value["arguments"] = "sesame"
    assert "sesame" not in "\n".join(problems(value))
