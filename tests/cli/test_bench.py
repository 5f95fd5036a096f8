"""bench: where the engine's API is, and what is handed on to the benchmark."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from sparkd.cli.bench import address
from sparkd.cli.failure import Failure
from tests.cli.fakes import FakeRing
from tests.cli.test_show import COMMAND


def serving(**changes: Any) -> dict[str, Any]:
    ring = FakeRing(phase="ready", want="up", summary="all serve").look()
    return {**ring, "engine": {"name": "sglang", "api": "127.0.0.1:8888", "profile": "tiny"}, **changes}


def test_the_engine_s_address() -> None:
    assert address(serving()) == "http://127.0.0.1:8888"
    assert address(serving(phase="degraded")) == "http://127.0.0.1:8888"


@pytest.mark.parametrize(
    ("changes", "code", "text", "hint"),
    [
        ({"engine": {"name": "probe", "api": "x"}}, 1, "the probe has no OpenAI API to measure", "sparkctl status"),
        ({"node": "spark2"}, 1, "the engine's API is on spark1 alone, and this is spark2", "on spark1: sparkctl bench"),
        ({"phase": "starting"}, 3, "the ring does not serve: all serve", "sparkctl up --wait"),
    ],
)
def test_where_there_is_nothing_to_measure(changes: dict[str, Any], code: int, text: str, hint: str) -> None:
    with pytest.raises(Failure) as caught:
        address(serving(**changes))
    assert (caught.value.exit_code, caught.value.text) == (code, text)
    assert caught.value.hint.startswith(hint)


@pytest.fixture
def deaf() -> Iterator[str]:
    """An engine that refuses everything; its ADDRESS:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(503)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Keep the test's stderr to the benchmark."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_benchmark_is_run_and_its_failure_is_ours(deaf: str, ring: FakeRing, tmp_path: Path) -> None:
    ring.phase, ring.engine = "ready", {"name": "sglang", "api": deaf, "profile": ""}
    options = ("--streams", "1", "--prefill", "16", "--tokens", "4", "--rounds", "1", "--timeout", "5")
    command = [*COMMAND, "bench", *options, "--json", "--socket", str(tmp_path / "api.sock")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "503" in done.stdout + done.stderr
    assert ring.asked == ["GET /v1/ring"]
