"""What sparkctl says when there is nobody to talk to, or somebody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparkd.cli.client import Client, parse_url, read_token
from sparkd.cli.failure import Exit, Failure
from tests.cli.fakes import FakeRing, serve
from tests.config.etc import unprivileged

NOT_RUNNING = "systemctl start sparkd; if it fails: sparkd --check-config; journalctl -u sparkd -n 20"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "sparkd.toml"
    path.touch()
    return path


def failure(client: Client) -> Failure:
    with pytest.raises(Failure) as caught:
        client.get("/v1/ring")
    return caught.value


@contextmanager
def answering(path: Path, data: bytes | None) -> Iterator[None]:
    """A listener that gives one caller these bytes, or none and keeps the connection."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def once() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                if data is None:
                    connection.recv(1)  # until the caller leaves
                else:
                    connection.sendall(data)

        thread = threading.Thread(target=once)
        thread.start()
        yield
        thread.join()


def test_not_running(tmp_path: Path, config: Path) -> None:
    found = failure(Client(tmp_path / "api.sock", config=config))
    assert (found.exit_code, found.text) == (Exit.UNREACHABLE, "sparkd is not running on this machine")
    assert found.hint == NOT_RUNNING


def test_a_socket_that_nobody_listens_on(tmp_path: Path, config: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(tmp_path / "api.sock"))
    assert failure(Client(tmp_path / "api.sock", config=config)).hint == NOT_RUNNING


def test_nobody_on_tcp(config: Path) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        found = failure(Client(tcp=("127.0.0.1", port), config=config))
    assert found.exit_code == Exit.UNREACHABLE
    assert found.text == f"nothing listens on http://127.0.0.1:{port}; is sparkd running on this machine?"


def test_not_configured(tmp_path: Path) -> None:
    found = failure(Client(tmp_path / "api.sock", config=tmp_path / "sparkd.toml"))
    assert found.exit_code == Exit.CONFIG
    assert found.text == f"sparkd is not configured on this machine: there is no {tmp_path}/sparkd.toml"
    assert "sparkctl cluster create" in found.hint


def test_no_permission(tmp_path: Path, config: Path) -> None:
    with serve(FakeRing(), tmp_path / "api.sock"):
        (tmp_path / "api.sock").chmod(0o600)
        with unprivileged():
            found = failure(Client(tmp_path / "api.sock", config=config))
    assert found.exit_code == Exit.DENIED
    assert found.hint.startswith("run as root or join group sparkd")


def test_no_answer_in_time(tmp_path: Path, config: Path) -> None:
    with answering(tmp_path / "api.sock", None):
        found = failure(Client(tmp_path / "api.sock", config=config, timeout=0.1))
    assert (found.exit_code, found.text) == (Exit.UNREACHABLE, "sparkd does not answer within 0.1 s")


@pytest.mark.parametrize(
    ("data", "exit_code"),
    [
        (b"", Exit.UNREACHABLE),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Exit.UNREACHABLE),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Exit.ERROR),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", Exit.ERROR),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{}", Exit.UNREACHABLE),
        (b'HTTP/1.1 500 X\r\nContent-Length: 20\r\n\r\n{"detail": "it broke', Exit.ERROR),
    ],
)
def test_answers_of_something_else(tmp_path: Path, config: Path, data: bytes, exit_code: Exit) -> None:
    with answering(tmp_path / "api.sock", data):
        assert failure(Client(tmp_path / "api.sock", config=config)).exit_code == exit_code


def test_a_daemon_that_has_only_just_started_is_asked_again(tmp_path: Path) -> None:
    ring = FakeRing(starting=2)
    with serve(ring, tmp_path / "api.sock"):
        assert Client(tmp_path / "api.sock").get("/v1/ring")["phase"] == "down"
        ring.starting = 1000
        found = failure(Client(tmp_path / "api.sock", patience=0))
    assert (found.exit_code, found.text) == (Exit.UNREACHABLE, "sparkd has only just started")


def test_urls() -> None:
    assert parse_url("http://127.0.0.1:7474") == parse_url("http://127.0.0.1:7474/") == ("127.0.0.1", 7474)
    assert parse_url("http://localhost:1") == ("localhost", 1)


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1:7474",
        "http://192.168.77.1:7474",
        "http://127.0.0.1.example.org:7474",
        "http://127.0.0.1",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:7474/v1/ring",
        "http://me@127.0.0.1:7474",
        "127.0.0.1:7474",
        "http://[::1",
    ],
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(Failure) as caught:
        parse_url(url)
    assert caught.value.exit_code == Exit.USAGE


def test_token_files(tmp_path: Path) -> None:
    file = tmp_path / "token"
    with pytest.raises(Failure, match="cannot read the token") as caught:
        read_token(file)
    assert caught.value.exit_code == Exit.CONFIG
    file.write_text("one two\n")
    with pytest.raises(Failure, match="holds no token"):
        read_token(file)
    file.write_text("one\n")
    assert read_token(file) == "one"
