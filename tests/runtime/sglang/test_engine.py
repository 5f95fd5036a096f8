"""Whole launchers with the stand-in for SGLang: brought up, broken and ended."""

import os
import signal
import time
from pathlib import Path

import pytest

from runtime.sglang.effective import read_environ
from tests.runtime.sglang.bench import (
    engine,
    engines,
    free_port,
    in_background,
    post,
    scheduler,
    tree,
    until,
    until_ready,
)
from tests.runtime.triangle import KEY, Rank, Ranks, wait_until


def ended(rank: Rank) -> tuple[int, str]:
    """Exit status and last status text; nothing of the engine is left."""
    assert rank.process is not None
    before = [process.pid for process in tree(rank)]
    # The notify socket holds few datagrams, and systemd reads them at once.
    wait_until(lambda: rank.listen() and rank.process is not None and rank.process.poll() is not None, Ranks([rank]))
    code = rank.exit_code()
    assert [pid for pid in before if os.path.exists(f"/proc/{pid}")] == []
    return code, rank.statuses()[-1]


def test_three_ranks_come_up_serve_and_end_in_order(tmp_path: Path) -> None:
    with engines(tmp_path, 3) as ranks:
        ranks.start()
        ranks.until_ready()
        for rank in ranks:
            expected = ["init", "rendezvous", "formed", "load", "capture", "warmup", "READY", "ready"]
            assert rank.stages() == expected
        assert any(status == "load 3/3 weights" for status in ranks[0].statuses())
        assert ranks[1].statuses()[-1] == "ready waits for work, sockets (lab)"
        assert ranks[0].statuses()[-1].startswith("ready idle, canary 0.")
        for process in tree(ranks[0]):
            environ = read_environ(process.pid) or {}
            own = {name for name in environ if name.startswith("SPARKD_")}
            assert own == ({"SPARKD_PLUGIN_PROOF", "SPARKD_DRAIN"})
            assert KEY not in "".join(environ.values())
        started = time.monotonic()
        for rank in ranks:
            rank.signal(signal.SIGTERM)
        assert [rank.exit_code() for rank in ranks] == [0, 0, 0]
        # A worker's main process would wait five seconds more, for nothing.
        assert time.monotonic() - started < 4
        assert "STOPPING=1" in ranks[1].said
        assert "Connection closed by peer" not in ranks[1].text()


def test_a_worker_whose_group_rank_0_ends_does_not_linger(tmp_path: Path) -> None:
    with engines(tmp_path, 2) as ranks:
        ranks.start()
        ranks.until_ready()
        ranks[0].signal(signal.SIGTERM)
        started = time.monotonic()
        code, said = ended(ranks[1])
        assert time.monotonic() - started < 4
        assert code == 70
        assert said.startswith("failed ready: rank 0 has ended the group: scheduler (pid ")
        assert ranks[0].exit_code() == 0


def test_a_killed_scheduler_ends_all_and_only_its_own_rank_is_the_cause(tmp_path: Path) -> None:
    with engines(tmp_path, 3) as ranks:
        ranks.start()
        ranks.until_ready()
        pid = scheduler(ranks[1])
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        code, said = ended(ranks[1])
        assert code == 1
        assert said == f"failed ready: scheduler (pid {pid}) was killed by SIGKILL, perhaps by the kernel for memory"
        for rank in (ranks[0], ranks[2]):
            code, said = ended(rank)
            assert code == 70
            assert said.startswith(
                "failed ready: RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by"
            )
            assert f"(TP{rank.number}, scheduler.py:" in said
        # The engine itself takes longer, in the stand-in as in truth.
        assert time.monotonic() - killed < 5


def test_a_stopped_scheduler_is_found_by_its_own_launcher_first(tmp_path: Path) -> None:
    with engines(tmp_path, 2, launch={"hung_seconds": 3}) as ranks:
        ranks.start()
        ranks.until_ready()
        os.kill(scheduler(ranks[1]), signal.SIGSTOP)
        code, said = ended(ranks[1])
        assert code == 73
        assert "is stopped (by a signal such as SIGSTOP) for 3 s" in said
        assert said.startswith("failed ready: sglang::scheduler_TP1 (pid ")
        assert "stacks of sglang::scheduler_TP1 " in ranks[1].text()
        # Python's own word of where it was, once it goes on to its end.
        assert "Fatal Python error: Aborted" in ranks[1].text()
        assert ended(ranks[0])[0] == 70


def test_a_scheduler_that_does_not_answer_is_found_by_the_canary(tmp_path: Path) -> None:
    with engine(tmp_path, launch={"hung_seconds": 1.5}) as rank:
        until_ready(rank)
        os.kill(scheduler(rank), signal.SIGUSR1)
        code, said = ended(rank)
        assert code == 73
        assert "although asked" in said
        assert "no answer in time" in said
        assert "in silence" not in said
        assert "thread " in rank.text()


def test_a_long_generation_is_never_taken_for_a_hang(tmp_path: Path) -> None:
    with engine(tmp_path, launch={"hung_seconds": 1}, STEP="0.02") as rank:
        until_ready(rank)
        # Twice as long as a hang may last, and every canary waits behind it.
        generation = in_background(rank, 110)
        generation.join()
        assert rank.process is not None
        assert rank.process.poll() is None
        text = rank.statuses()[-1]
        assert text.startswith("ready ")
        rank.signal(signal.SIGTERM)
        assert rank.exit_code() == 0


@pytest.mark.parametrize(
    ("extra", "fake", "code", "said"),
    [
        (("--bogus", "1"), {}, 65, "failed init: the engine refused its arguments: unrecognized arguments: --bogus 1"),
        (("--load-format", "x"), {}, 65, "argument --load-format: invalid choice: 'x'"),
        (("--model-path", "/nowhere"), {}, 65, "it led to OSError: Can't load the configuration of '/nowhere'."),
        (
            (),
            {"CRASH": "load"},
            1,
            "failed load: ValueError: weights do not fit: 64 heads over 3 ranks (TP0, scheduler.p",
        ),
        ((), {"CHANGE": "FAKE_ALONE=no"}, 75, "FAKE_ALONE: expected '1' in the environment of "),
    ],
)
def test_the_first_error_ends_the_start_with_its_stage(
    tmp_path: Path, extra: tuple[str, ...], fake: dict[str, str], code: int, said: str
) -> None:
    with engine(tmp_path, 0, extra, None, STEP="0.1", **fake) as rank:
        rank.start()
        assert ended(rank)[0] == code
        assert said in rank.statuses()[-1]


def test_the_journal_gets_the_engines_lines_as_they_are_each_with_a_priority(tmp_path: Path) -> None:
    with engine(tmp_path, CRASH="load") as rank:
        # As in a unit: standard error is the stream that the variable names.
        rank.log.touch()
        status = rank.log.stat()
        rank.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
        rank.start()
        assert ended(rank)[0] == 1
        lines = rank.text().splitlines()
        assert [line for line in lines if not line.startswith(("<3>", "<4>", "<6>"))] == []
        assert "<3>ValueError: weights do not fit: 64 heads over 3 ranks" in lines
        assert any(line.startswith('<6>  File "') for line in lines)


def test_a_taken_port_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    import socket

    with engine(tmp_path) as rank:
        host, _, port = rank.environ["SPARKD_API"].partition(":")
        with socket.create_server((host, int(port))):
            rank.start()
            assert ended(rank)[0] == 64
        assert f"SPARKD_API: cannot listen on {host}:{port}: Address already in use; pid {os.getpid()}" in rank.said[-1]
        assert "server_args" not in rank.text()


@pytest.mark.parametrize(
    ("wedge", "spin", "launch", "code", "said"),
    [
        ("rendezvous", "1", {"init_stuck_seconds": 1}, 71, "failed rendezvous: the group has not formed"),
        ("load", "", {"stall_seconds": 1}, 72, "failed load: for 1 s the engine logged nothing, read nothing"),
        ("load", "1", {"stall_seconds": 1, "load_cap_seconds": 3}, 72, "failed load: not ready within 3 s"),
    ],
)
def test_a_start_that_does_not_get_on_is_given_up_with_its_stacks(
    tmp_path: Path, wedge: str, spin: str, launch: dict[str, object], code: int, said: str
) -> None:
    with engine(tmp_path, 0, (), launch, WEDGE=wedge, SPIN=spin) as rank:
        rank.start()
        found, status = ended(rank)
        assert (found, status[: len(said)]) == (code, said)
        assert "stacks of sglang::schedul" in rank.text()
        assert "in wedge" in rank.text()


@pytest.mark.parametrize("number", [0, 1])
def test_a_log_that_nobody_knows_hides_stages_and_nothing_else(tmp_path: Path, number: int) -> None:
    with engine(tmp_path, number, FORMAT="1") as rank:
        until_ready(rank)
        assert rank.stages() == ["init", "READY", "ready"]


def test_not_ready_without_a_completion(tmp_path: Path) -> None:
    with engine(tmp_path, launch={"hung_seconds": 1}, NO_TEMPLATE="1") as rank:
        until_ready(rank)
        assert b'"completion_tokens": 2' in post(rank, "/generate", {"sampling_params": {"max_new_tokens": 2}})


def test_without_metrics_the_canary_is_sglangs_own(tmp_path: Path) -> None:
    with engine(tmp_path, launch={"hung_seconds": 1.5}) as rank:
        rank.environ["SPARKD_ENGINE_CONFIG"] = rank.environ["SPARKD_ENGINE_CONFIG"].replace(', "--enable-metrics"', "")
        until_ready(rank)
        os.kill(scheduler(rank), signal.SIGUSR1)
        assert ended(rank)[0] == 73


@pytest.mark.parametrize(
    ("net", "stage", "said"),
    [
        ("", "warmup", "failed no line of NCCL says that rank 1 (spark2) is reached via NET/IB"),
        # Said before anything is loaded, which takes minutes.
        ("NET/Socket", "rendezvous", "failed NCCL reaches rank 1 (spark2) via NET/Socket, expected NET/IB"),
    ],
)
def test_on_roce_the_rank_is_not_ready_without_proof(tmp_path: Path, net: str, stage: str, said: str) -> None:
    with engine(tmp_path, launch={"transport": "ib"}, NET=net, WEDGE="load" if net else "") as rank:
        rank.start()
        assert ended(rank)[0] == 75
        assert ("warmup" in rank.stages()) is (stage == "warmup")
        assert rank.statuses()[-1].startswith(said)
        assert "READY=1" not in rank.said


def test_a_worker_that_waits_in_vain_for_rank_0_to_end_it_is_ended(tmp_path: Path) -> None:
    with engine(tmp_path, 1) as rank:
        rank.start("tests.runtime.sglang.impatient")
        until_ready(rank)
        rank.signal(signal.SIGTERM)
        assert ended(rank)[0] == 0
        assert "killing what is left after 0.5 s: " in rank.text()


def test_a_stop_while_loading_takes_no_time(tmp_path: Path) -> None:
    with engine(tmp_path, WEDGE="load") as rank:
        rank.start()
        until(rank, "load")
        started = time.monotonic()
        rank.signal(signal.SIGTERM)
        assert ended(rank)[0] == 0
        assert time.monotonic() - started < 2


def test_nothing_outlives_a_launcher_that_is_killed(tmp_path: Path) -> None:
    with engine(tmp_path) as rank:
        until_ready(rank)
        pids = [process.pid for process in tree(rank)]
        assert len(pids) >= 2
        rank.signal(signal.SIGKILL)
        rank.exit_code()
        wait_until(lambda: not [pid for pid in pids if os.path.exists(f"/proc/{pid}")], Ranks([rank]))


def test_a_rank_that_nobody_answers_is_told_by_its_worker(tmp_path: Path) -> None:
    with engines(tmp_path, 2, launch={"init_stuck_seconds": 2}) as ranks:
        # Nobody listens there, so that the worker waits for rank 0 as long as the group may take to form.
        ranks[1].environ["SPARKD_RENDEZVOUS"] = f"{ranks.net}.100:{free_port(f'{ranks.net}.100')}"
        ranks[1].start()
        assert ended(ranks[1])[0] == 71


def test_a_bad_configuration_starts_nothing(tmp_path: Path) -> None:
    with engine(tmp_path) as rank:
        del rank.environ["SPARKD_ENGINE_CONFIG"]
        rank.start()
        assert rank.exit_code() == 64
        assert rank.statuses()[-1].startswith("failed SPARKD_ENGINE_CONFIG: expected the resolved profile")


def test_a_launcher_gives_signs_of_life_from_the_start(tmp_path: Path) -> None:
    with engine(tmp_path, WEDGE="load") as rank:
        rank.environ["WATCHDOG_USEC"] = "4000000"
        rank.start()
        until(rank, "load")
        before = len(rank.listen())
        wait_until(lambda: rank.listen()[before:].count("WATCHDOG=1") >= 2, Ranks([rank]))
        assert "READY=1" not in rank.said
        # Its engine is not told of it, and would speak for the launcher.
        assert all("WATCHDOG_USEC" not in (read_environ(process.pid) or {}) for process in tree(rank))
