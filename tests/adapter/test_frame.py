"""The frame: loaded by SGLang's own plug-in system from the installed layout, and refusing what has drifted."""

from __future__ import annotations

import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from adapter import catalogue, frame, source
from adapter.declare import NOT_AS_ASKED, RELEASE, AdapterError, Symbol
from runtime.exits import ExitCode
from tests.adapter.conftest import REPOSITORY, Child

TP3 = json.dumps({"tp3_pad": {}})


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory that a rank has on its path, as the package makes it: the adapters and their description."""
    made = tmp_path_factory.mktemp("path") / "plugin"
    shutil.copytree(REPOSITORY / "packaging/plugin", made)
    (made / "adapter").symlink_to(REPOSITORY / "adapter")
    return made


@dataclass(frozen=True)
class Ended:
    status: int
    error: str
    proof: str


CASES = {
    "on": ("scheduler", TP3),
    "elsewhere": ("detokenizer", TP3),
    "off": ("main", ""),
    "wrong": ("detokenizer", '{"tp3_pad": {"padding": "middle"}}'),
}


@pytest.fixture(scope="module")
def ended(child: Child, plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """One of SGLang's processes for each case."""
    proofs = tmp_path_factory.mktemp("proofs")
    cases = [
        {"process": process, "variables": {"SPARKD_ADAPTERS": adapters, "SPARKD_PLUGIN_PROOF": str(proofs / name)}}
        for name, (process, adapters) in CASES.items()
    ]
    found = plugged(child, f"{plugin}", cases)
    return {
        name: Ended(each["status"], each["error"], (proofs / name).read_text() if (proofs / name).exists() else "")
        for name, each in zip(CASES, found, strict=True)
    }


def plugged(child: Child, path: str, cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    script = REPOSITORY / "tests/adapter/child/plugged.py"
    done = child(script, json.dumps(cases), SGLANG_PLUGINS="sparkd", PYTHONPATH=path)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def copied(sglang: Path, tmp_path: Path, files: set[str]) -> Path:
    """An SGLang of these files alone, to be spoilt."""
    for name in files:
        target = tmp_path / "site" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(sglang.parent / name, target)
    return tmp_path / "site/sglang"


def file_of(symbol: Symbol) -> str:
    return symbol.name.partition(":")[0].replace(".", "/") + ".py"


def test_the_exit_status_is_the_runtimes() -> None:
    assert NOT_AS_ASKED == ExitCode.NOT_AS_ASKED


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_every_symbol_is_that_of_the_pinned_release(sglang: Path, name: str) -> None:
    assert source.version(sglang) == RELEASE
    adapter = catalogue.load(name).adapter
    assert source.drifts(sglang, adapter.symbols) == []
    assert adapter.symbols
    assert adapter.processes
    assert (adapter.name, len({symbol.name for symbol in adapter.symbols})) == (name, len(adapter.symbols))


@pytest.mark.parametrize("name", catalogue.NAMES)
def test_one_character_of_any_symbol_is_drift_and_refused(sglang: Path, tmp_path: Path, name: str) -> None:
    adapter = catalogue.load(name).adapter
    package = copied(sglang, tmp_path, {file_of(symbol) for symbol in adapter.symbols})
    for symbol in adapter.symbols:
        file = package.parent / file_of(symbol)
        text = file.read_text()
        scope, _, inner = symbol.name.partition(":")[2].partition(".")
        at = 0
        for each in filter(None, (scope, inner)):
            found = re.compile(rf"^ *(?:(?:async )?def |class |){each}\b(?= =|[(:])", re.MULTILINE).search(text, at)
            assert found is not None
            at = found.end()
        end = text.index("\n", at)
        file.write_text(text[:end] + " " + text[end:])
    assert [drift.symbol for drift in source.drifts(package, adapter.symbols)] == list(adapter.symbols)
    with pytest.raises(
        AdapterError, match=r"than the release that this was written for: digest [0-9a-f]{16}, expected "
    ):
        frame.prepared({name: {}} | {other: {} for other in adapter.needs}, package)


def test_what_is_gone_is_drift_with_its_reason(sglang: Path, tmp_path: Path) -> None:
    adapter = catalogue.load("tp3_pad").adapter
    package = copied(sglang, tmp_path, {file_of(symbol) for symbol in adapter.symbols})
    file = package / "srt/models/deepseek_v4_dspark.py"
    file.write_text(file.read_text().replace("class DSparkAttention(", "class Other("))
    (package / "srt/configs/model_config.py").unlink()
    found = {drift.symbol.name.rpartition(".")[2]: drift.found for drift in source.drifts(package, adapter.symbols)}
    assert found["__init__"] == "no DSparkAttention in sglang.srt.models.deepseek_v4_dspark"
    assert found["from_server_args"].startswith("no source of sglang.srt.configs.model_config: ")


@pytest.mark.parametrize(
    ("adapters", "says"),
    [
        ('{"tp4_pad": {}}', "adapters.tp4_pad: there is no such adapter; there are tp3_pad, engram_rows"),
        ('{"tp3_pad": {"padding": "middle"}}', "adapters.tp3_pad.padding: found 'middle', expected one of spread, end"),
        ('{"tp3_pad": {"x": 1}}', "adapters.tp3_pad.x: no such option; it has padding"),
        ('{"tp3_pad": true}', "SPARKD_ADAPTERS: expected an object of options by adapter"),
        ("{", "SPARKD_ADAPTERS: expected JSON, "),
    ],
)
def test_what_is_not_known_is_refused(sglang: Path, adapters: str, says: str) -> None:
    with pytest.raises(AdapterError) as caught:
        frame.prepared(frame.wanted(adapters), sglang)
    assert says in str(caught.value)


# In SGLang's own processes.


def test_a_scheduler_has_the_adapter_and_leaves_its_proof(ended: dict[str, Ended]) -> None:
    seen = ended["on"]
    assert seen.status == 0, seen.error
    assert seen.error.endswith("model: True\n")
    adapter = catalogue.load("tp3_pad").adapter
    digest = source.digest_of_adapter(adapter, adapter.settled({}))
    assert re.fullmatch(rf"ADAPTER=tp3_pad {digest} (\d+)\nADAPTER=sparkd [0-9a-f]{{16}} \1\n", seen.proof)
    assert f"adapter tp3_pad is installed, digest {digest}" in seen.error


def test_a_detokenizer_checks_and_imports_no_model(ended: dict[str, Ended]) -> None:
    seen = ended["elsewhere"]
    assert seen.status == 0
    whole = re.compile(r"^ADAPTER=sparkd (\w+) \d+\n", re.MULTILINE)
    assert whole.fullmatch(seen.proof)
    assert whole.findall(seen.proof) == whole.findall(ended["on"].proof), "each process has the same set"
    assert "adapter.tp3_pad" in seen.error
    assert seen.error.endswith("model: False\n")


def test_off_is_off(ended: dict[str, Ended]) -> None:
    assert ended["off"] == Ended(0, "modules: adapter adapter.plugin\nmodel: False\n", "")


def test_a_process_whose_adapter_cannot_be_ends_with_the_sentence(ended: dict[str, Ended]) -> None:
    says = "\nadapter check: error: adapters.tp3_pad.padding: found 'middle', expected one of spread, end\n"
    assert ended["wrong"] == Ended(NOT_AS_ASKED, says, "")


def test_a_rank_with_a_drifted_sglang_does_not_start(child: Child, plugin: Path, sglang: Path, tmp_path: Path) -> None:
    """A whole SGLang with one file exchanged, made of links."""
    site = tmp_path / "site"
    shutil.copytree(
        sglang, site / "sglang", copy_function=os.symlink, ignore=shutil.ignore_patterns("__pycache__", "test")
    )
    file = site / "sglang/srt/models/deepseek_v4.py"
    text = file.read_text().replace("self.n_groups = config.o_groups\n", "self.n_groups = config.o_groups \n")
    file.unlink()
    file.write_text(text)
    (seen,) = plugged(child, f"{site}:{plugin}", [{"process": "scheduler", "variables": {"SPARKD_ADAPTERS": TP3}}])
    assert seen["status"] == NOT_AS_ASKED
    assert "has another sglang.srt.models.deepseek_v4:MqaAttentionBase.__init__ than the release" in seen["error"]


def test_list_and_check(child: Child, sglang: Path, tmp_path: Path) -> None:
    rows = json.loads(child("-m", "adapter", "list", "--json", SPARKD_ADAPTERS=TP3).stdout)
    assert [row["name"] for row in rows] == list(catalogue.NAMES)
    assert [row["name"] for row in rows if row["on"]] == ["tp3_pad"]
    done = child("-m", "adapter", "check")
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith(" symbols, 0 drifted\n")
    package = copied(sglang, tmp_path, {"sglang/srt/models/deepseek_v4.py"})
    done = child("-m", "adapter", "check", "tp3_pad", "--sglang", package)
    assert done.returncode == NOT_AS_ASKED
    assert "DRIFT tp3_pad" in done.stdout
