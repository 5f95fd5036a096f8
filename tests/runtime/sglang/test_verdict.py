"""An engine's end as exit status and sentence."""

import pytest

from runtime.exits import ExitCode
from runtime.notify import Stage
from runtime.sglang.errors import Found, Kind
from runtime.sglang.verdict import End, verdict


def raised(name: str, text: str) -> Found:
    return Found(Kind.EXCEPTION, text, name)


GONE = raised("RuntimeError", "[pair.cc:553] Connection closed by peer [192.168.77.2]:4711")
LATE = raised("DistStoreError", "Timed out after 41 seconds waiting for clients. 2/3 clients joined.")


@pytest.mark.parametrize(
    ("end", "code", "part"),
    [
        (End(2, Stage.INIT, Found(Kind.ARGUMENTS, "unrecognized arguments: --x")), 65, "init: the engine refused its"),
        (End(1, Stage.INIT, raised("OSError", "Can't load '/x'")), 65, "init: OSError: Can't load '/x'"),
        (End(1, Stage.INIT, raised("OSError", "[Errno 28] No space left on device")), 1, "No space left"),
        (
            End(1, Stage.INIT, Found(Kind.EXCEPTION, "x", "LookupError", led_to="OSError: y")),
            65,
            "it led to OSError: y",
        ),
        (End(1, Stage.INIT, Found(Kind.EXCEPTION, "x", "A", led_to="OSError: [Errno 28] y")), 1, "[Errno 28]"),
        (End(1, Stage.INIT, raised("ImportError", "libcuda.so.1")), 1, "ImportError"),
        (End(1, Stage.LOAD, raised("ValueError", "does not fit")), 1, "load: ValueError: does not fit"),
        (End(-9, Stage.RENDEZVOUS, LATE), 69, "2/3 clients joined"),
        (End(-9, Stage.RENDEZVOUS, GONE), 69, "Connection closed by peer"),
        (End(-9, Stage.LOAD, GONE), 70, "load: RuntimeError"),
        (End(-9, Stage.READY, GONE), 70, "ready: RuntimeError"),
        (
            End(0, Stage.READY, Found(Kind.CRASH, "scheduler (pid 4)", code=-9)),
            1,
            "(pid 4) was killed by SIGKILL, perh",
        ),
        (End(0, Stage.READY, Found(Kind.CRASH, "scheduler (pid 4)", code=-11)), 1, "was killed by SIGSEGV"),
        (End(0, Stage.READY, Found(Kind.CRASH, "scheduler (pid 4)", code=0)), 70, "ready: rank 0 has ended the group"),
        (End(-9, Stage.LOAD, None), 1, "why the engine was killed by SIGKILL, perhaps by the kernel for memory"),
        (End(-9, Stage.LOAD, GONE, oom_kills=1), 77, "load: the kernel killed a process of the engine because memory"),
        (End(3, Stage.LOAD, None), 1, "without a word of why the engine left with status 3"),
        (End(-63, Stage.LOAD, None), 1, "was killed by signal 63"),
    ],
)
def test_an_end_is_told_by_what_came_first(end: End, code: int, part: str) -> None:
    failure = verdict(end)
    assert failure.code == ExitCode(code)
    assert part in failure.sentence
