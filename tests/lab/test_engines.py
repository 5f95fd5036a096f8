"""One ring per engine: up, answering, losing its processes one way and another, and down.

With SGLang a start takes a minute, so a test leaves the ring to the next one as it is: ready, on its way, or held.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from tests.lab.engines import PROBE, SGLANG, EngineRing
from tests.lab.layout import NODES
from tests.lab.quick import UNIT_D

pytestmark = pytest.mark.lab
Clock = Callable[[str], None]
real = pytest.mark.parametrize("engine_ring", [SGLANG], indirect=True, ids=["sglang"])
"""What the probe does not have, or has been asked elsewhere."""


def victims(*chosen: tuple[object, str, str]) -> pytest.MarkDecorator:
    """The test with each of these engines, and a node's process of it."""
    names = ("engine_ring", "node", "process")
    return pytest.mark.parametrize(
        names, chosen, indirect=["engine_ring"], ids=lambda each: getattr(each, "name", each)
    )


def test_it_comes_up_and_every_node_shows_it(engine_ring: EngineRing, clock: Clock) -> None:
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("from the order to ready")
    for node in NODES:
        seen = ring.get(node)
        assert (seen["epoch"], seen["engine"]["name"], seen["deaths"]) == (epoch, ring.kind.name, [])
        assert [(r["rank"], r["node"], r["state"], r["stage"]) for r in seen["ranks"]] == [
            (rank, name, "ready", "ready") for rank, name in enumerate(NODES)
        ]
        assert seen["serving"] is (ring.ask(node, "GET", "/readyz").status == 200) is True
        assert seen["engine"]["openai"] == ("http://127.0.0.1:8888/v1" if ring.kind is SGLANG else "")
        assert seen["engine"]["adapters"] == (["prefill_empty_cache", "serving_guards"] if ring.kind is SGLANG else [])


@real
def test_tokens_flow_and_are_the_same_again(engine_ring: EngineRing, clock: Clock) -> None:
    first, second = engine_ring.complete("The ring is"), engine_ring.complete("The ring is")
    clock("two completions")
    assert first["usage"]["completion_tokens"] == 16
    # The model has its weights, is split over three, and each part has read its own: it says one thing only.
    assert first["choices"][0]["text"] == second["choices"][0]["text"]
    assert re.fullmatch(r"[ -~]{16}", first["choices"][0]["text"])
    assert engine_ring.complete("The ring was")["choices"][0]["text"] != first["choices"][0]["text"]


@real
def test_sockets_are_never_shown_as_roce(engine_ring: EngineRing) -> None:
    for rank in engine_ring.get("spark2")["ranks"]:
        assert "sockets (lab)" in rank["text"]
        assert "IB" not in rank["text"]


@real
def test_every_stage_of_the_start_was_told(engine_ring: EngineRing) -> None:
    epoch = engine_ring.get("spark1")["epoch"]
    stages = [f"rank 0 (spark1): {stage}" for stage in ("init", "rendezvous", "formed", "load")]
    told = [engine_ring.said("spark1", "sparkd.service", words) for words in (*stages, f"epoch {epoch} is ready")]
    assert told == sorted(told)


@victims((PROBE, "spark2", "launcher"), (SGLANG, "spark2", "scheduler"), (SGLANG, "spark1", "engine"))
def test_rank_exited_whatever_was_killed(engine_ring: EngineRing, node: str, process: str, clock: Clock) -> None:
    """Field report rank-exited."""
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("until ready")
    ring.signal(node, process, "KILL")
    for other in NODES:
        ring.until(other, lambda seen: seen["epoch"] > epoch or seen["phase"] != "ready", 10)
    clock(f"until every node knew that the {process} of {node} was killed")
    after = ring.phase("ready", above=epoch)
    clock("until the ring was ready again")
    assert after["epoch"] == epoch + 1
    assert after["deaths"][-1]["node"] == node
    assert "SIGKILL" in after["deaths"][-1]["sentence"]
    if ring.kind is SGLANG:
        assert ring.complete("The ring is")["usage"]["completion_tokens"] == 16


@victims((PROBE, "spark3", "launcher"), (SGLANG, "spark3", "scheduler"))
def test_rank_hung_is_found_though_the_engine_does_not(
    engine_ring: EngineRing, node: str, process: str, clock: Clock
) -> None:
    """Field report rank-hung: the engine's own watchdog is a thread of what stands still."""
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("until ready")
    ring.signal(node, process, "STOP")
    ring.until("spark1", lambda seen: seen["epoch"] > epoch, 90)
    clock(f"until the {process} of {node}, which was stopped, was an incident")
    after = ring.phase("ready", above=epoch)
    clock("until the ring was ready again")
    assert after["epoch"] == epoch + 1
    kept = ring.incident(epoch, node)
    if ring.kind is PROBE:
        assert "(stopped)" in kept["files"]["processes.txt"]
    else:
        # Its launcher is not stopped: it looks at its processes while they are there, and then ends them.
        assert "sglang::scheduler_TP2" in kept["files"]["journal.txt"]
        assert after["deaths"][-1]["node"] == node
        assert re.search(r"sglang::scheduler_TP2 \(pid \d+\) is stopped", after["deaths"][-1]["sentence"])


@real
def test_rank_hung_is_found_when_it_is_the_server_of_rank_0(engine_ring: EngineRing, clock: Clock) -> None:
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("until ready")
    ring.signal("spark1", "engine", "STOP")
    after = ring.until("spark1", lambda seen: seen["epoch"] > epoch, 90)
    clock("until the server of spark1, which was stopped, was an incident")
    assert after["deaths"][-1]["node"] == "spark1"


@real
def test_a_launcher_that_is_stopped_is_found_by_systemd(engine_ring: EngineRing, clock: Clock) -> None:
    """Its engine serves on; its log would be read no more."""
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("until ready")
    ring.signal("spark2", "launcher", "STOP")
    after = ring.until("spark1", lambda seen: seen["epoch"] > epoch, 90)
    clock("until the launcher of spark2, which was stopped, was an incident")
    assert after["deaths"][-1]["node"] == "spark2"
    assert "no sign of life" in after["deaths"][-1]["sentence"]
    # The next test does not wait for what comes up now.


@pytest.fixture
def little_memory(engine_ring: EngineRing) -> Iterator[None]:
    """Half of what the rank of spark2 needs only to start."""
    drop_in = f"{UNIT_D}/small.conf"
    run = engine_ring.lab.exec
    run("spark2", "mkdir", "-p", UNIT_D)
    run("spark2", "tee", drop_in, input="[Service]\nMemoryMax=300M\n")
    run("spark2", "systemctl", "daemon-reload")
    yield
    run("spark2", "rm", drop_in)
    run("spark2", "systemctl", "daemon-reload")


@real
@pytest.mark.usefixtures("little_memory")
def test_oom_at_load_is_held(engine_ring: EngineRing, clock: Clock) -> None:
    """Field report oom-at-load. In the lab the kernel's word does not reach systemd, but it does the launcher."""
    engine_ring.free()
    held = engine_ring.until_held()
    clock("until the ring was held, spark2 having too little memory")
    assert held["deaths"][-1]["node"] == "spark2"
    assert "memory ran out" in held["reason"]


@real
def test_a_wrong_argument_is_refused_before_anything_starts(engine_ring: EngineRing) -> None:
    ring = engine_ring
    ring.free()
    with ring.site('[arguments]\nno-such-option = "1"\n'):
        ring.look()
        ring.until("spark1", lambda seen: {f["node"] for f in seen["findings"]} == set(NODES), 60)
        found = [finding for finding in ring.refusal() if finding["id"] == "engine-options"]
        assert {finding["node"] for finding in found} == set(NODES)
        assert all("no-such-option" in finding["subject"] for finding in found)
        assert all(ring.units(node) == [] for node in NODES)
    ring.look()
    ring.settled()


@real
def test_a_wrong_model_path_is_held_with_the_first_exception(engine_ring: EngineRing, clock: Clock) -> None:
    """Field report same-death-twice."""
    ring = engine_ring
    ring.free()
    with ring.site('[arguments]\nmodel-path = "/opt/sparkd/engine/models/absent"\n'):
        held = ring.until_held()
    clock("until the ring was held, its model not being there")
    assert "/opt/sparkd/engine/models/absent" in held["reason"]
    assert "init" in held["deaths"][-1]["sentence"]
    kept = ring.incident(held["deaths"][-1]["epoch"], held["deaths"][-1]["node"])
    assert "/opt/sparkd/engine/models/absent" in kept["incident"]["first"]


@real
def test_an_adapter_that_cannot_be_is_held_with_its_sentence(engine_ring: EngineRing, clock: Clock) -> None:
    ring = engine_ring
    ring.free()
    with ring.site('[adapters.tp3_pad]\npadding = "middle"\n'):
        held = ring.until_held()
    clock("until the ring was held, an adapter not being as asked")
    assert "adapters.tp3_pad.padding: found 'middle', expected one of spread, end" in held["reason"]


@real
def test_a_port_that_is_taken_is_named(engine_ring: EngineRing, clock: Clock) -> None:
    """The host is examined every minute: this is what the rank finds at the last moment."""
    ring = engine_ring
    ring.free()
    serve = ["python3", "-m", "http.server", "--bind", "192.168.77.1", "20000"]
    ring.lab.exec("spark1", "systemd-run", "--quiet", "--unit=other-engine", *serve)
    try:
        held = ring.until_held()
        clock("until the ring was held, a port being taken")
    finally:
        ring.lab.exec("spark1", "systemctl", "stop", "other-engine")
    assert held["deaths"][-1]["node"] == "spark1"
    assert "192.168.77.1:20000" in held["reason"]


@pytest.fixture
def full_disk(engine_ring: EngineRing) -> Iterator[None]:
    """Nothing more can be written where the engine of spark3 may write: all that is temporary."""
    engine_ring.free()
    run = engine_ring.lab.exec
    for place in ("/tmp", "/var/tmp"):
        run("spark3", "mount", "-t", "tmpfs", "-o", "size=64k,mode=1777", "full", place)
        run("spark3", "sh", "-c", f"head -c 1M /dev/zero >{place}/full || true")
    yield
    run("spark3", "umount", "-l", "/tmp", "/var/tmp")


@real
@pytest.mark.usefixtures("full_disk")
def test_a_full_disk_is_named(engine_ring: EngineRing, clock: Clock) -> None:
    held = engine_ring.until_held()
    clock("until the ring was held, a disk being full")
    assert held["deaths"][-1]["node"] == "spark3"
    assert "No usable temporary directory found in ['/tmp', '/var/tmp'" in held["reason"]


@real
def test_init_stuck_without_a_rank_and_then_it_comes_up(engine_ring: EngineRing, clock: Clock) -> None:
    """Field report init-stuck: the engine itself would wait for the absent one for ten minutes."""
    ring = engine_ring
    ring.free()
    with ring.site("[launch]\ninit_stuck_seconds = 15\n"):
        epoch = int(ring.ask("spark1", "POST", "/v1/ring/start").body["epoch"])
        absent = ring.signal("spark2", "engine", "STOP")
        seen = ring.until("spark1", lambda seen: seen["epoch"] > epoch, 180)
        clock("until the start was given up, a rank being absent")
        assert ring.lab.exec("spark2", "kill", "-0", str(absent), check=False).returncode != 0
    assert "rendezvous" in seen["deaths"][-1]["sentence"] or "stopped" in seen["deaths"][-1]["sentence"]
    ring.phase("ready", above=epoch)
    clock("until the ring was ready again")


def test_down_lets_what_runs_end_and_leaves_nothing(engine_ring: EngineRing, clock: Clock) -> None:
    ring = engine_ring
    epoch = ring.again()["epoch"]
    clock("until ready")
    stream = ring.stream(600) if ring.kind is SGLANG else None
    answer = ring.ask("spark3", "POST", "/v1/ring/stop?drain=300")
    assert (answer.status, answer.body["want"]) == (202, "down")
    if stream is not None:
        seen = ring.until("spark2", lambda seen: (seen["drain"] or {}).get("running") == 1, 30)
        assert (seen["phase"], seen["epoch"]) == ("draining", epoch)
        clock("until rank 0 took no new requests, and one was running")
        assert "waits for 1 request on rank 0 (spark1), " in seen["summary"]
        assert all(ring.ask(node, "GET", "/readyz").status == 503 for node in NODES)
        refused = ring.try_to_complete()
        assert refused.startswith("HTTP/1.1 503")
        assert "retry-after: 60" in refused.lower()
        ring.lab.exec("spark1", "systemctl", "restart", "sparkd")
        assert stream.wait(240) == 0
        clock("until the stream that was running had ended")
        said = ring.lab.exec("spark1", "cat", "/tmp/stream").stdout
        # All of it: an engine that is ended breaks the stream off.
        assert '"finish_reason":"length"' in said and said.rstrip().endswith("data: [DONE]")
    stopped = ring.phase("down", above=epoch)
    clock("until the ring was down")
    assert stopped["reason"] == "stop asked for; no request was running any more"
    for node in NODES:
        assert ring.units(node) == []
        assert ring.lab.exec(node, "pgrep", "-u", "sparkd-rank", check=False).stdout == ""
        assert ring.lab.exec(node, "ss", "-Hltn", "sport = :8888 or sport = :20000").stdout == ""
