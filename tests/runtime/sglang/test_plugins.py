"""Proof of the plug-ins that a profile asks for, in each process that needs them."""

from pathlib import Path

import pytest

from runtime.sglang.plugins import Installed, Plugins, read_proof
from runtime.sglang.processes import Process
from runtime.sglang.shared import MemoryFile
from tests.runtime.sglang.bench import engine, until_ready
from tests.runtime.sglang.test_engine import ended

MAIN = Process(10, 1, "S", "python", 0.0, 1)
SCHEDULER = Process(11, 10, "S", "sglang::schedul", 0.0, 1, "sglang::scheduler_TP0")
HELPER = Process(12, 10, "S", "sglang::detoken", 0.0, 1)


def test_only_whole_lines_are_proof() -> None:
    text = "ADAPTER=a 12ab 7\nADAPTER=a 12ab\nADAPTER=b 1 x\nADAPTER=c 1 2 3\n\nADAPTER=a 12ab 8"
    assert read_proof(text) == [Installed("a", "12ab", 7), Installed("a", "12ab", 8)]


def test_the_set_is_told_with_its_digests(tmp_path: Path) -> None:
    proof = MemoryFile("test")
    names = [f"p{number}" for number in range(5)]
    try:
        for name in names:
            for pid in (10, 11):
                with open(proof.path, "a") as file:
                    file.write(f"ADAPTER={name} d{name} {pid}\n")
        few, many, none = Plugins(names[:2], proof), Plugins(names, proof), Plugins([], proof)
        for plugins in (few, many, none):
            plugins.check(10, [MAIN, SCHEDULER, HELPER])
        assert few.text() == "plug-ins p0 dp0, p1 dp1"
        assert many.text().startswith("5 plug-ins ")
        assert many.describe().endswith("p4 dp4")
        assert none.text() == ""
        with open(proof.path, "a") as file:
            file.write("ADAPTER=p4 other 11\n")
        with pytest.raises(
            Exception, match=r"p4 is not the same in all processes: dp4 in python .* other in sglang::s"
        ):
            many.check(10, [MAIN, SCHEDULER])
        with pytest.raises(Exception, match="no process of the engine calls itself sglang::scheduler"):
            few.check(10, [MAIN, HELPER])
    finally:
        proof.close()


def test_a_rank_with_its_plug_ins_tells_them(tmp_path: Path) -> None:
    launch: dict[str, object] = {"plugins": ["tp3_pad", "draft_tau"]}
    with engine(tmp_path, launch=launch, MAIN="tp3_pad:aa draft_tau:bb", PLUGINS="draft_tau:bb tp3_pad:aa") as rank:
        until_ready(rank)
        assert rank.statuses()[-1].endswith("plug-ins draft_tau bb, tp3_pad aa")
        assert "plug-ins in every process that needs them: draft_tau bb, tp3_pad aa" in rank.text()


@pytest.mark.parametrize(
    ("main", "scheduler", "said"),
    [
        ("tp3_pad:aa", "", r"plug-in tp3_pad is not installed in sglang::scheduler_TP0 \(pid "),
        ("", "tp3_pad:aa", "plug-in tp3_pad is not installed in "),
        ("tp3_pad:aa", "tp3_pad:ab", "plug-in tp3_pad is not the same in all processes: aa in "),
    ],
)
def test_without_proof_the_rank_does_not_load_anything(tmp_path: Path, main: str, scheduler: str, said: str) -> None:
    with engine(tmp_path, launch={"plugins": ["tp3_pad"]}, MAIN=main, PLUGINS=scheduler, WEDGE="load") as rank:
        rank.start()
        code, told = ended(rank)
        assert code == 75
        with pytest.raises(AssertionError, match=said):
            raise AssertionError(told)
        assert "READY=1" not in rank.said
