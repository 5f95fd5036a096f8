"""The launcher's own decisions: bad environments, unknown engines, how an engine's end becomes an exit status."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from runtime.environment import RankEnvironment
from runtime.exits import ExitCode, RankFailure
from runtime.launch import main
from runtime.log import configure, goes_to_journal, log
from runtime.notify import Progress, Stage
from tests.runtime.test_environment import GOOD


class FakeSystemd:
    """The service manager's end of the notify socket."""

    def __init__(self, path: Path) -> None:
        self.environ = {"NOTIFY_SOCKET": str(path)}
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)

    def status(self) -> str:
        """The last status text, as the unit would show it."""
        text = ""
        while True:
            try:
                for line in self._socket.recv(65536).decode().split("\n"):
                    text = line.removeprefix("STATUS=") if line.startswith("STATUS=") else text
            except BlockingIOError:
                return text

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[FakeSystemd]:
    manager = FakeSystemd(tmp_path / "notify")
    yield manager
    manager.close()


def test_an_empty_environment_names_everything(systemd: FakeSystemd, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(systemd.environ) == 64
    status = systemd.status()
    assert status.startswith("failed SPARKD_ENGINE: expected the name of an engine, not set; SPARKD_EPOCH: ")
    lines = capfd.readouterr().err
    for variable in set(GOOD) - {"SPARKD_API"}:
        assert f"{variable}: expected" in lines


def test_an_unknown_engine_names_the_known_ones(systemd: FakeSystemd) -> None:
    engines = {"probe": _serve, "other": _serve}
    assert main({**GOOD, **systemd.environ, "SPARKD_ENGINE": "vllm"}, engines) == 64
    assert systemd.status() == "failed SPARKD_ENGINE: expected one of other, probe, got 'vllm'"


def _serve(environment: RankEnvironment, progress: Progress) -> ExitCode:
    progress.report(Stage.LOAD, f"epoch {environment.epoch}", (1, 48))
    return ExitCode.OK


def _lose(environment: RankEnvironment, progress: Progress) -> ExitCode:
    raise RankFailure(ExitCode.MEMBER_LOST, f"{environment.name(1)} lost")


def _break(environment: RankEnvironment, progress: Progress) -> ExitCode:
    raise ZeroDivisionError("a defect")


def test_the_engine_gets_the_environment_and_the_progress_channel(systemd: FakeSystemd) -> None:
    assert main({**GOOD, **systemd.environ}, {"probe": _serve}) == 0
    assert systemd.status() == "load 1/48 epoch 7"


def test_the_first_error_becomes_status_log_and_exit_code(
    systemd: FakeSystemd, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main({**GOOD, **systemd.environ}, {"probe": _lose}) == 70
    assert systemd.status() == "failed rank 1 (spark2) lost"
    assert capfd.readouterr().err.splitlines()[-1] == "error: rank 0 (spark1): rank 1 (spark2) lost"


def test_a_defect_is_told_apart_and_leaves_its_traceback(
    systemd: FakeSystemd, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main({**GOOD, **systemd.environ}, {"probe": _break}) == 1
    assert systemd.status() == "failed ZeroDivisionError: a defect"
    assert "in _break" in capfd.readouterr().err


def test_the_journal_gets_priorities_on_every_line(capfd: pytest.CaptureFixture[str]) -> None:
    configure("rank 0 (spark1)", journal=True)
    log.info("one")
    log.error("two\nlines")
    assert capfd.readouterr().err == "<6>rank 0 (spark1): one\n<3>rank 0 (spark1): two\n<3>rank 0 (spark1): lines\n"


def test_the_journal_is_recognised_by_its_stream(tmp_path: Path) -> None:
    with (tmp_path / "stream").open("w") as stream:
        status = os.fstat(stream.fileno())
        ours = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert goes_to_journal(ours, stream.fileno())
        # Somebody redirected the output: the variable is inherited, the stream is not.
        assert not goes_to_journal({"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino + 1}"}, stream.fileno())
        assert not goes_to_journal({}, stream.fileno())
    assert not goes_to_journal(ours, 987654)
