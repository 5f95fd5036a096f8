"""up, down, clear: what is asked, what is told, and how each ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sparkd.cli import main
from sparkd.cli.client import Client
from sparkd.cli.failure import Exit, Failure
from tests.cli.conftest import Ctl
from tests.cli.fakes import FINDING, TOKEN, FakeRing, serve

WAIT = ("--wait", "--timeout", "20")


def test_up_without_waiting(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("up") == (0, "epoch 8: accepted\n", "")
    assert ring.asked == ["POST /v1/ring/start"]


def test_up_waits_and_tells_each_sentence_once(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [
        {"phase": "gated", "summary": "waiting for spark3 to adopt epoch 8"},
        {},
        {"phase": "starting", "summary": "rank 1 (spark2): warmup 3/6"},
        {"phase": "ready", "summary": "all ranks serve"},
    ]
    ended = ctl("up", *WAIT)
    assert ended.code == 0
    assert [line.partition(" s  ")[2] or line for line in ended.out.splitlines()] == [
        "epoch 8: accepted",
        "waiting for spark3 to adopt epoch 8",
        "rank 1 (spark2): warmup 3/6",
        "all ranks serve",
    ]


def test_what_a_node_says_of_an_older_epoch_is_no_verdict(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [
        {"epoch": 7, "phase": "held", "want": "down"},
        {"epoch": 7, "phase": "ready", "want": "up"},
        {"epoch": 9, "phase": "ready", "want": "up", "summary": "all ranks serve"},
    ]
    ended = ctl("up", *WAIT)
    assert ended.code == 0
    assert "waiting for this node to hear of epoch 8" in ended.out
    assert ended.out.count("all ranks serve") == 1


def test_a_start_that_is_planned_anew_for_other_cables_is_followed(ring: FakeRing, ctl: Ctl) -> None:
    """The ports had not heard their cables yet when the start was accepted."""
    ring.story = [
        {"phase": "gated", "summary": "the cables are no ring as far as they are heard"},
        {"epoch": 9, "by": "recovery", "reason": "the cables are now spark1.0~spark3.1", "summary": "configuring"},
        {"phase": "ready", "summary": "all ranks serve"},
    ]
    ended = ctl("up", *WAIT)
    assert ended.code == 0
    assert [line.partition(" s  ")[2] or line for line in ended.out.splitlines()] == [
        "epoch 8: accepted",
        "the cables are no ring as far as they are heard",
        "now epoch 9: the cables are now spark1.0~spark3.1",
        "configuring",
        "all ranks serve",
    ]


def test_refusal_lists_each_finding(ring: FakeRing, ctl: Ctl) -> None:
    ring.findings = [FINDING, {**FINDING, "node": "spark3", "subject": "enp1s0f1np1 (port 1)"}]
    code, out, err = ctl("up", *WAIT)
    assert (code, out) == (3, "")
    assert err.splitlines() == [
        "sparkctl: 1 check does not pass",
        "  refuse  spark2: cable-missing, enp1s0f0np0 (port 0)",
        "          found     no carrier",
        "          expected  a cable to port 1 of spark3",
        "          fix       plug the cable in",
        "  refuse  spark3: cable-missing, enp1s0f1np1 (port 1)",
        "          found     no carrier",
        "          expected  a cable to port 1 of spark3",
        "          fix       plug the cable in",
    ]


def test_held_and_clear(ring: FakeRing, ctl: Ctl) -> None:
    ring.held = True
    assert ctl("up") == (3, "", "sparkctl: the ring is held\nhint: sparkctl clear\n")
    assert ctl("clear").code == 0
    assert ctl("up").code == 0


def test_a_ring_that_gives_up_ends_the_waiting(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [{"phase": "starting"}, {"phase": "held", "want": "down", "reason": "the same death twice"}]
    code, _, err = ctl("up", *WAIT)
    assert code == 1
    assert err == "sparkctl: the ring is held: the same death twice\nhint: sparkctl status; sparkctl clear\n"


def test_a_stop_by_someone_else_ends_the_waiting(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [{"phase": "stopping", "want": "down", "epoch": 9, "by": "operator on spark2", "reason": "enough"}]
    assert ctl("up", *WAIT)[::2] == (1, "sparkctl: stopped by operator on spark2: enough\n")


def test_timeout(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [{"phase": "gated", "summary": "waiting for spark3"}]
    code, _, err = ctl("up", "--wait", "--timeout", "0.3")
    assert (code, err.splitlines()[0]) == (6, "sparkctl: not there after 0.3 s; last: waiting for spark3")


def test_down_waits_until_no_rank_is_left(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase, ring.want = "ready", "up"
    ring.story = [{"phase": "stopping"}, {"phase": "down", "summary": "down: stop asked for"}]
    code, out, _ = ctl("down", *WAIT)
    assert code == 0
    assert out.endswith(" s  down: stop asked for\n")
    assert ring.asked == ["POST /v1/ring/stop", "GET /v1/ring", "GET /v1/ring"]


def test_down_of_a_held_ring(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase = "held"
    assert ctl("down", *WAIT).code == 0


def test_down_is_overtaken_by_a_start(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [{"phase": "gated", "want": "up", "epoch": 9, "by": "operator on spark3", "reason": "asked"}]
    assert ctl("down", *WAIT)[::2] == (1, "sparkctl: started again by operator on spark3: asked\n")


def test_a_node_that_has_not_heard_of_the_drain_yet_is_not_taken_to_have_started_again(
    ring: FakeRing, ctl: Ctl
) -> None:
    """It is an order within the epoch: by its number alone the node has heard."""
    not_yet = {"phase": "ready", "want": "up", "epoch": 8, "summary": "all ranks serve"}
    draining = {"phase": "draining", "want": "down", "summary": "3 requests"}
    ring.story = [not_yet, {}, draining, {"phase": "down", "epoch": 9, "summary": "down: no request ran any more"}]
    code, out, err = ctl("down", "--drain", "60", *WAIT)
    assert (code, err) == (0, "")
    assert "waiting for this node to hear of epoch 8" in out
    assert out.endswith(" s  down: no request ran any more\n")


def test_a_node_that_has_not_heard_that_the_drain_is_taken_back_is_not_taken_to_be_stopped(
    ring: FakeRing, ctl: Ctl
) -> None:
    ring.story = [{"phase": "draining", "want": "down", "epoch": 8}, {}, {"phase": "ready", "want": "up"}]
    assert ctl("up", *WAIT).code == 0


def test_a_drain_that_is_taken_back_before_this_node_has_heard_of_it_ends_the_waiting(
    ring: FakeRing, ctl: Ctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparkd.cli.ring.HEARING", 0.3)
    ring.story = [{"phase": "ready", "want": "up", "epoch": 8, "by": "operator on spark3", "reason": "asked"}]
    ended = ctl("down", "--drain", "60", *WAIT)
    assert (ended.code, ended.err) == (1, "sparkctl: started again by operator on spark3: asked\n")


def test_a_restart_of_the_daemon_does_not_end_the_waiting(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("up").code == 0
    ring.phase, ring.drop = "ready", 1
    ring.story = [{}]
    assert ctl("status").code == 5
    ring.drop = 0
    ring.story = [{"phase": "starting"}, {"phase": "ready", "summary": "all ranks serve"}]
    ring.story[0] |= {"drop": 2, "starting": 2}
    code, out, _ = ctl("up", *WAIT)
    assert code == 0
    assert "trying again" in out
    assert out.endswith(" s  all ranks serve\n")


def test_the_conductor_does_not_answer(ring: FakeRing, ctl: Ctl) -> None:
    ring.conductor_silent = True
    assert ctl("up") == (5, "", "sparkctl: spark1 does not answer\nhint: look at sparkd on spark1\n")


@pytest.mark.parametrize(
    ("token", "code", "sentence"),
    [
        (TOKEN, 0, ""),
        ("another-token-altogether", 4, "sparkctl: the token is not the one of this machine\n"),
    ],
)
def test_tokens_over_tcp(
    token: str, code: int, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    with serve(FakeRing()) as port:
        where = ["--url", f"http://127.0.0.1:{port}", "--token-file", str(file)]
        assert main(["status", *where]) == 0
        assert main(["up", *where]) == code
    assert capsys.readouterr().err == sentence


def test_looking_over_tcp_takes_no_token() -> None:
    with serve(FakeRing()) as port:
        client = Client(tcp=("127.0.0.1", port))
        assert client.get("/v1/ring")["phase"] == "down"
        with pytest.raises(Failure, match="a change needs a token") as caught:
            client.post("/v1/ring/start")
    assert caught.value.exit_code == Exit.DENIED


def test_over_tcp_without_a_token_the_option_is_named() -> None:
    with serve(FakeRing()) as port, pytest.raises(Failure) as caught:
        Client(tcp=("127.0.0.1", port)).post("/v1/ring/stop")
    assert caught.value.hint.startswith("--token-file FILE, with a token of `sparkctl token create`")


def test_the_sentence_of_the_answer_is_not_told_again(ring: FakeRing, ctl: Ctl) -> None:
    ring.accepted = "epoch 8 waits: for spark3, 12 s"
    ring.story = [
        {"phase": "gated", "summary": "epoch 8 waits: for spark3, 11 s"},
        {"phase": "ready", "summary": "epoch 8 is ready: all 3 ranks serve"},
    ]
    lines = ctl("up", *WAIT).out.splitlines()
    assert [line.partition(" s  ")[2] or line for line in lines] == [
        "epoch 8 waits: for spark3, 12 s",
        "epoch 8 is ready: all 3 ranks serve",
    ]


def test_hold_carries_its_reason_and_resume_ends_it(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("hold", "--reason", "new fan & cable").code == 0
    assert ctl("hold").code == 0
    assert ctl("resume").code == 0
    assert ctl("down", "--force").code == 0
    assert ctl("down", "--drain", "90").code == 0
    assert ctl("down", "--force", "--drain", "0.5").code == 0
    paths = ["hold?reason=new+fan+%26+cable", "hold", "resume", "stop?force=true", "stop?drain=90"]
    paths.append("stop?force=true&drain=0.5")
    assert ring.asked == [f"POST /v1/ring/{path}" for path in paths]


@pytest.mark.parametrize(("command", "way_out"), [("up", "sparkctl resume"), ("down", "sparkctl down --force")])
def test_whoever_waits_is_told_when_maintenance_begins(ring: FakeRing, ctl: Ctl, command: str, way_out: str) -> None:
    want = "up" if command == "up" else "down"
    ring.story = [{"epoch": 8, "phase": "maintenance", "want": want, "summary": "maintenance since 1 s, by x"}]
    ended = ctl(command, *WAIT)
    assert ended.code == Exit.ERROR
    assert "maintenance since 1 s, by x" in ended.err
    assert f"hint: {way_out}" in ended.err


def test_restart_stops_and_starts_again(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase, ring.want, ring.epoch = "ready", "up", 7
    ring.story = [{}, {"phase": "stopping"}, {"phase": "down"}, {"phase": "starting"}, {"phase": "ready"}]
    code, out, err = ctl("restart", *WAIT)
    assert (code, err) == (0, "")
    assert [line.split(" ", 1)[1] for line in ring.asked] == [
        "/v1/ring",
        "/v1/ring/stop",
        "/v1/ring",
        "/v1/ring",
        "/v1/ring/start",
        "/v1/ring",
        "/v1/ring",
    ]
    assert out.startswith("epoch 8: accepted\n")
    assert "\nepoch 9: accepted\n" in out


def test_a_ring_that_drains_is_stopped_by_restart_and_not_only_taken_back(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase, ring.want, ring.drain = "draining", "down", {"by": "x", "seconds": 60.0, "left": 9.0, "running": 3}
    ring.story = [{}, {"phase": "down", "drain": None}]
    assert ctl("restart").code == 0
    assert ring.asked == ["GET /v1/ring", "POST /v1/ring/stop", "GET /v1/ring", "POST /v1/ring/start"]


def test_a_ring_that_could_not_start_again_is_not_stopped(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase, ring.want, ring.findings = "degraded", "up", [FINDING]
    code, out, err = ctl("restart", "--timeout", "5")
    assert (code, out) == (3, "")
    assert err.startswith("sparkctl: not restarted: a start would be refused now, so the ring is left as it is\n")
    assert "cable-missing" in err
    assert ring.asked == ["GET /v1/ring"]


def test_a_restart_that_does_not_get_down_says_that_nothing_is_started(ring: FakeRing, ctl: Ctl) -> None:
    ring.phase, ring.want = "ready", "up"
    ring.story = [{}, {"phase": "stopping", "summary": "rank 1 is stopping"}]
    code, _, err = ctl("restart", "--timeout", "0.3")
    assert code == 6
    assert err == (
        "sparkctl: not started again: not there after 0.3 s; last: rank 1 is stopping\n"
        "hint: once it is down: sparkctl up\n"
    )
    assert "POST /v1/ring/start" not in ring.asked


def test_a_ring_that_is_down_is_started_by_restart(ring: FakeRing, ctl: Ctl) -> None:
    assert ctl("restart").code == 0
    assert ring.asked == ["GET /v1/ring", "POST /v1/ring/start"]


@pytest.mark.parametrize("command", ["up", "down", "restart", "clear", "hold", "resume"])
def test_for_programs_a_change_is_one_document(command: str, ring: FakeRing, ctl: Ctl) -> None:
    code, out, err = ctl(command, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out) == {
        "operation": "/v1/operations/8",
        "epoch": 8,
        "want": "up" if command in ("up", "restart") else "down",
        "summary": "accepted",
    }


def test_for_programs_waiting_is_one_document_and_told_beside_it(ring: FakeRing, ctl: Ctl) -> None:
    ring.story = [{"phase": "starting", "summary": "warmup"}, {"phase": "ready", "summary": "all serve"}]
    code, out, err = ctl("up", "--json", *WAIT)
    assert code == 0
    assert json.loads(out)["ring"]["phase"] == "ready"
    assert "warmup" in err


def test_for_programs_a_refusal_is_one_document(ring: FakeRing, ctl: Ctl) -> None:
    ring.findings = [FINDING]
    code, out, err = ctl("up", "--json")
    assert code == 3
    error = json.loads(out)["error"]
    assert (error["exit"], error["kind"], error["text"]) == (3, "refused", "1 check does not pass")
    assert error["findings"] == [FINDING]
    assert err.startswith("sparkctl: 1 check does not pass\n")


def test_what_is_so_already_is_told_once(ring: FakeRing, ctl: Ctl) -> None:
    ring.accepted = "already wanted up: epoch 8 is ready: all 3 ranks serve"
    assert ctl("up").out == "already wanted up: epoch 8 is ready: all 3 ranks serve\n"
