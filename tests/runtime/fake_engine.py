"""An engine on a loopback port that speaks as much of the OpenAI API as smoke and bench use: real HTTP, real streams.

It keeps the state that matters: what runs, what the prefix cache holds, what was counted; and it refuses what SGLang
refuses. It has a model that knows its answers, and any fault that a test wants (``faults``).
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.runtime.fake_metrics import FakeMetrics
from tests.runtime.fake_model import Faults, chat, complete, tokens

TEMPLATE = ["<user>", "<assistant>"]
DRIP_SECONDS = 6.0


class Refusal(Exception):
    """400, with what SGLang calls the reason."""


class FakeEngine:
    """Use as a context manager. ``prefill`` and ``decode``: seconds per token; ``merged``: tokens in each message;
    ``late``: seconds until the counters know of a stream that has ended."""

    def __init__(
        self,
        faults: Faults | None = None,
        *,
        prefill: float = 0.0,
        decode: float = 0.0,
        merged: int = 1,
        running: int = 4,
        context: int = 4096,
        page: int = 64,
        chunk: int = 256,
        metrics: bool = True,
        continuous: bool = True,
        cache_report: bool = False,
        late: float = 0.0,
    ) -> None:
        self.faults = faults or Faults()
        self.prefill, self.decode, self.merged = prefill, decode, merged
        self.limit, self.context, self.page, self.chunk = running, context, page, chunk
        self.has_metrics, self.continuous, self.cache_report = metrics, continuous, cache_report
        self.late = late
        self.metrics = FakeMetrics()
        self.seen: Counter[str] = Counter()
        self.prompts: list[list[str]] = []
        self.peak = 0
        self.extra_tokens = 0
        self._running = 0
        self._changed = threading.Condition()
        self.closing = threading.Event()
        engine = self

        class Handler(_Handler):
            pass

        Handler.engine = engine

        class Server(ThreadingHTTPServer):
            daemon_threads = False
            # With the usual five, the sixth of several connections at once waits a second for its SYN to be sent again.
            request_queue_size = 128

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> FakeEngine:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextlib.contextmanager
    def slot(self) -> Iterator[int]:
        """One of the running requests, or a wait for it; gives how many run once the batch is together."""
        faults = self.faults
        together = max(faults.garbage_from, faults.changed_from)
        with self._changed:
            self._changed.wait_for(lambda: self._running < self.limit)
            self._running += 1
            self.peak = max(self.peak, self._running)
            self._changed.notify_all()
            if together:
                self._changed.wait_for(lambda: self._running >= together or self.closing.is_set(), 0.2)
            running = max(self._running, self.peak if together and self.peak >= together else 0)
        try:
            yield running
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def admit(self, prompt: list[str], most: int) -> int:
        """How many tokens of ``prompt`` are in the prefix cache; from now on all are. Raises Refusal."""
        if len(prompt) + most > self.context:
            raise Refusal(
                f"Requested token count exceeds the model's maximum context length of {self.context} tokens. "
                f"You requested a total of {len(prompt) + most} tokens."
            )
        with self._changed:
            cached = max((_common(prompt, other) for other in self.prompts), default=0)
            self.prompts.append(prompt)
        # The last token is always computed: its logits are what is asked for.
        return min(cached, len(prompt) - 1)

    def info(self) -> dict[str, Any]:
        return {
            "version": "0.5.23",
            "model_path": "/models/tiny",
            "launch_command": "launch_server --model-path /models/tiny --api-key hunter2 --enable-metrics",
            "max_running_requests": 2048,
            "chunked_prefill_size": self.chunk,
            "page_size": self.page,
            "context_length": None,
            "max_total_num_tokens": 100000,
            "speculative_algorithm": None,
            "internal_states": [{"effective_max_running_requests_per_dp": self.limit}],
        }


class _Handler(BaseHTTPRequestHandler):
    engine: FakeEngine
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    _held = b""

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def handle(self) -> None:
        # A client that gave up is no defect of the server.
        with contextlib.suppress(ConnectionError):
            super().handle()

    def do_GET(self) -> None:
        if self._trouble():
            return
        engine, path = self.engine, self.path
        model = {"id": "tiny", "object": "model", "max_model_len": engine.context}
        if path == "/metrics" and engine.has_metrics:
            self._send(200, engine.metrics.text().encode(), "text/plain")
        elif path == "/v1/models":
            self._send(200, json.dumps({"object": "list", "data": [model]}).encode())
        elif path == "/server_info":
            self._send(200, json.dumps(engine.info()).encode())
        elif path in ("/health", "/health_generate"):
            self._send(200, b"")
        else:
            self._send(404, b'{"detail":"Not Found"}')

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self._trouble():
            return
        document = json.loads(body)
        try:
            if self.path == "/v1/chat/completions":
                self._chat(document)
            elif self.path == "/v1/completions":
                self._complete(document)
            else:
                self._send(404, b'{"detail":"Not Found"}')
        except Refusal as refusal:
            error = {"object": "error", "message": str(refusal), "type": "BadRequestError", "code": 400}
            self._send(400, json.dumps(error).encode())

    def _trouble(self) -> bool:
        """Faults that come before any answer."""
        engine, faults = self.engine, self.engine.faults
        engine.seen[self.path] += 1
        if self.path in faults.says_no:
            self._send(404, b'{"detail":"Not Found"}')
        elif faults.hang == self.path:
            engine.closing.wait()
            self.close_connection = True
        elif faults.drip and self.command == "POST":
            self._drip()
        elif faults.reset and self.command == "POST":
            self._reset()
        elif faults.status != 200 and self.command == "POST":
            self._send(faults.status, b'{"object":"error","message":"CUDA error: an illegal memory access"}')
        elif faults.body is not None and self.command == "POST":
            self._send(200, faults.body)
        else:
            return False
        return True

    def _chat(self, document: dict[str, Any]) -> None:
        engine = self.engine
        prompt = TEMPLATE[:1] + [t for m in document["messages"] for t in tokens(m["content"])] + TEMPLATE[1:]
        most = document["max_tokens"]
        cached = engine.admit(prompt, most)
        with engine.slot() as running:
            time.sleep(engine.prefill * (len(prompt) - cached))
            message = chat(document, engine.faults, running, len(prompt))
        said = tokens(message["content"] or message.get("reasoning_content") or "a call")
        finish = "tool_calls" if "tool_calls" in message else "length" if len(said) > most else "stop"
        if message["content"] is not None:
            message["content"] = "".join(said[:most])
        choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
        self._answer(choice, len(prompt), min(most, len(said)), cached)

    def _complete(self, document: dict[str, Any]) -> None:
        engine, faults = self.engine, self.engine.faults
        prompt, most = tokens(document["prompt"]), document["max_tokens"]
        if not prompt or document.get("min_tokens", 0) > most:
            raise Refusal("min_new_tokens must be in [0, max_new_tokens]")
        began = time.monotonic()
        cached = engine.admit(prompt, most)
        count = min(most, faults.stops_after or most)
        if not document.get("ignore_eos"):
            count = min(count, 20)
        seed = engine.seen[self.path] if faults.chance else 0
        said = tokens(complete(document["prompt"], count, seed))
        finish = "length" if count == most else "stop"
        with engine.slot():
            time.sleep(engine.prefill * (len(prompt) - cached))
            if document.get("stream"):
                self._stream(document, said, len(prompt), cached, began, finish)
            else:
                time.sleep(engine.decode * (len(said) - 1))
                choice = {"index": 0, "text": "".join(said), "finish_reason": finish}
                self._answer(choice, len(prompt), len(said), cached)

    def _answer(self, choice: dict[str, Any], prompt: int, completion: int, cached: int) -> None:
        if self.engine.faults.nan:
            choice |= {"finish_reason": "stop", "matched_stop": "NaN happened"}
        self._finished(prompt, completion, cached)
        document = {"model": "tiny", "choices": [choice], "usage": self._usage(prompt, completion, cached)}
        self._send(200, json.dumps(document).encode())

    def _finished(self, prompt: int, completion: int, cached: int) -> None:
        metrics = self.engine.metrics
        metrics.count("prompt_tokens_total", prompt)
        metrics.count("generation_tokens_total", completion + self.engine.extra_tokens)
        if cached:
            metrics.count("cached_tokens_total", cached)

    def _usage(self, prompt: int, completion: int, cached: int) -> dict[str, Any]:
        usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
        return {**usage, "prompt_tokens_details": {"cached_tokens": cached} if self.engine.cache_report else None}

    def _stream(
        self, document: dict[str, Any], said: list[str], prompt: int, cached: int, began: float, finish: str
    ) -> None:
        engine, faults = self.engine, self.engine.faults
        options = document.get("stream_options") or {}
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        text = said if faults.stream_text is None else tokens(faults.stream_text)
        last = began
        done = 0
        for number, start in enumerate(range(0, len(said), engine.merged)):
            if faults.hang_after == number:
                engine.closing.wait()
            if faults.reset_after == number:
                self._reset()
            if faults.error_after == number:
                self._event({"error": {"message": "CUDA out of memory", "code": 500}})
            if number in (faults.reset_after, faults.hang_after, faults.error_after):
                return
            new = len(said[start : start + engine.merged])
            # The first token comes with the prefill.
            time.sleep(engine.decode * (new if number else new - 1))
            now = time.monotonic()
            engine.metrics.between(now - last, new) if number else engine.metrics.first(now - last)
            last = now
            done += new
            ends = finish if done == len(said) else None
            piece = "".join(text[start : start + engine.merged])
            chunk: dict[str, Any] = {"choices": [{"index": 0, "text": piece, "finish_reason": ends}]}
            if engine.continuous and options.get("continuous_usage_stats"):
                chunk["usage"] = {**self._usage(prompt, done, cached), "prompt_tokens_details": None}
            self._event(chunk)
        if options.get("include_usage"):
            for _ in range(faults.usages):
                self._event({"choices": [], "usage": self._usage(prompt, done + faults.wrong_usage, cached)})
        if not faults.unfinished:
            self._write(b"data: [DONE]\n\n")
        self._write(b"")
        # SGLang counts a request as finished after it has handed out its last token.
        engine.closing.wait(engine.late)
        self._finished(prompt, done, cached)

    def _event(self, document: dict[str, Any]) -> None:
        self._write(f"data: {json.dumps(document)}\n\n".encode())

    def _write(self, data: bytes) -> None:
        self._held += b"%x\r\n%s\r\n" % (len(data), data)
        if not self.engine.faults.held or not data:
            self.wfile.write(self._held)
            self._held = b""

    def _send(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _drip(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        # Long enough for any test; a client without a deadline shall fail it, not hang it.
        end = time.monotonic() + DRIP_SECONDS
        while time.monotonic() < end and not self.engine.closing.wait(0.02):
            self.wfile.write(b" ")

    def _reset(self) -> None:
        """The kernel answers with a reset instead of an end, as when the process dies."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True


def _common(one: list[str], other: list[str]) -> int:
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
