"""How the lab's SGLang is made: what it is made of, and that a failure or an interruption leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from tests.lab.sglang import model, root
from tests.lab.shell import LabError

ENGINE = Path(__file__).with_name("engine")


def environment(cache: Path) -> dict[str, str]:
    """With an index of packages that has none."""
    settings = {"SPARKD_LAB_CACHE": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(cache / "nothing")}
    return os.environ | settings | {"PIP_CONFIG_FILE": os.devnull}


def test_what_cannot_be_installed_is_said_in_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run([ENGINE], env=environment(tmp_path), capture_output=True, text=True, timeout=120, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert f"engine: find {root.TORCH}: exit 1: " in done.stderr
    assert "No matching distribution found for torch==2.13.0" in done.stderr
    assert root.NEEDS in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == [root.LOCK]


def test_interrupted_it_leaves_nothing(tmp_path: Path) -> None:
    with subprocess.Popen([ENGINE], env=environment(tmp_path), stderr=subprocess.PIPE, text=True) as running:
        end = time.monotonic() + 60
        while not (tmp_path / root.UNFINISHED / "bin").exists() and time.monotonic() < end:
            time.sleep(0.02)
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=60)

    assert running.returncode == 130
    assert errors.endswith("engine: interrupted\n")
    assert [path.name for path in tmp_path.iterdir()] == [root.LOCK]


def test_a_disk_that_is_too_small_is_said_before_anything_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(root.ROOM, "cpu", 1 << 60)

    with pytest.raises(LabError, match=r"MB are free in .*SPARKD_LAB_CACHE"):
        root.make(tmp_path, print)


def test_every_version_is_pinned() -> None:
    lines = (root.HERE / "requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if not line.startswith("#")]

    assert [line for line in wanted if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line)] == []
    assert "sglang==0.5.23" in wanted


def header(path: Path) -> tuple[dict[str, Any], int]:
    """A safetensors file's own description, and the size of what follows it."""
    raw = path.read_bytes()
    (size,) = struct.unpack("<Q", raw[:8])
    return json.loads(raw[8 : 8 + size]), len(raw) - 8 - size


def test_the_models_files_agree_with_each_other(tmp_path: Path) -> None:
    model.write(tmp_path / "tiny")
    shards = sorted((tmp_path / "tiny").glob("*.safetensors"))
    index = json.loads((tmp_path / "tiny/model.safetensors.index.json").read_text())
    config = json.loads((tmp_path / "tiny/config.json").read_text())
    found: dict[str, tuple[str, list[int]]] = {}
    for shard in shards:
        told, size = header(shard)
        del told["__metadata__"]
        assert max(tensor["data_offsets"][1] for tensor in told.values()) == size
        found |= {name: (shard.name, tensor["shape"]) for name, tensor in told.items()}

    assert len(shards) == model.SHARDS
    assert {name: file for name, (file, _) in found.items()} == index["weight_map"]
    assert found["lm_head.weight"][1] == [config["vocab_size"], config["hidden_size"]]
    # Three ranks share them out evenly.
    assert [config[name] % 3 for name in ("num_attention_heads", "num_key_value_heads", "vocab_size")] == [0, 0, 0]
    assert len(json.loads((tmp_path / "tiny/tokenizer.json").read_text())["model"]["vocab"]) == config["vocab_size"]


def test_a_model_is_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        model.write(tmp_path / name)

    assert {path.name: path.read_bytes() for path in (tmp_path / "one").iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "other").iterdir()
    }
