"""One request at a time, against real sockets."""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from runtime.environment import Endpoint
from runtime.sglang.client import ANSWER_MAX, Answer, Request, parse


@contextlib.contextmanager
def server(answer: Callable[[socket.socket], None]) -> Iterator[Endpoint]:
    """Takes one connection, reads the request's head and lets ``answer`` do the rest."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(65536)
                    answer(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield Endpoint("127.0.0.1", listener.getsockname()[1])
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def ask(endpoint: Endpoint, seconds: float = 5, body: object = None, bearer: str | None = None) -> Answer:
    request = Request(endpoint, "/metrics", time.monotonic() + seconds, body, bearer)
    poll = select.poll()
    poll.register(request, request.events)
    while (answer := request.step(time.monotonic())) is None:
        poll.modify(request, request.events)
        poll.poll(20)
    assert request.fileno() == -1
    return answer


def sends(*pieces: bytes) -> Callable[[socket.socket], None]:
    def answer(connection: socket.socket) -> None:
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.01)

    return answer


@pytest.mark.parametrize(
    "pieces",
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b"he", b"llo and more"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Enc", b"oding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nl", b"lo\r\n0\r\n\r\n"),
        (b"HTTP/1.0 200 OK\r\n\r\nhel", b"lo"),
    ],
)
def test_an_answer_is_whole_however_its_length_is_told(pieces: tuple[bytes, ...]) -> None:
    with server(sends(*pieces)) as endpoint:
        assert ask(endpoint) == Answer(200, b"hello")


def test_a_body_and_a_key_are_sent() -> None:
    got = []

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                got.append(connection.recv(65536))
                answer(connection)

        thread = threading.Thread(target=run)
        thread.start()
        answered = ask(Endpoint("127.0.0.1", listener.getsockname()[1]), body={"a": 1}, bearer="sesame")
        thread.join()
    assert answered.describe() == "HTTP 401"
    assert got[0].startswith(b"POST /metrics HTTP/1.1\r\n")
    assert b"Authorization: Bearer sesame\r\n" in got[0]
    assert got[0].endswith(b'\r\n\r\n{"a": 1}')


def test_nobody_there_says_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        assert ask(Endpoint("127.0.0.1", taken.getsockname()[1])) == Answer(0, error="Connection refused")


def test_a_server_that_is_silent_or_breaks_off_is_no_answer() -> None:
    with server(lambda connection: time.sleep(0.4)) as endpoint:
        assert ask(endpoint, seconds=0.1) == Answer(0, error="no answer in time")
    with server(sends(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")) as endpoint:
        assert ask(endpoint).error == "the connection was closed before the answer"


def test_an_endless_answer_is_not_kept() -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        with contextlib.suppress(OSError):
            connection.sendall(b"x" * (ANSWER_MAX + 65536))

    with server(answer) as endpoint:
        assert ask(endpoint).error.startswith("an answer of more than")


@pytest.mark.parametrize(
    "data", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"]
)
def test_what_is_no_answer_is_none(data: bytes) -> None:
    assert parse(data, ended=False) is None


def test_a_body_that_is_no_object_reads_as_none() -> None:
    assert Answer(200, b"[1]").object() == {}
    assert Answer(200, b"{").object() == {}
    assert Answer(200, b'{"a": 1}').object() == {"a": 1}
