"""A plug-in of SGLang's: while the ring is drained, its server refuses new requests, and tells how many still run.

SGLang itself, told to end by SIGTERM, waits for its requests and goes on to take new ones, so that a busy server never
ends. A proxy in front of it would have each token pass through one more process; the kernel could only close the port,
upon which clients see a broken connection instead of a status that says when to try again. So the server's application
is wrapped where the process hands it to uvicorn. It costs a look at one byte for each request.

It is loaded through SGLang's entry points, in the engine's Python, without anything else of sparkd. The launcher shares
a page of memory with it: the word to refuse, and the count of what runs.
"""

import hashlib
import importlib
import json
import mmap
import os
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, cast

NAME = "sparkd-drain"
VARIABLE, PROOF = "SPARKD_DRAIN", "SPARKD_PLUGIN_PROOF"
SIZE = 16
# What OpenAI's client waits at most before it tries again.
RETRY_SECONDS = 60
SENTENCE = "the ring is about to stop: it finishes the requests that run and takes no new ones"
_READING = frozenset({"GET", "HEAD", "OPTIONS", "DELETE"})
# What a load balancer asks before it sends requests. Not /health_generate, by which the launcher sees the engine live.
_READINESS = frozenset({"/health", "/ready", "/ping"})
# What helps requests that run to come to their end.
_ENDING = ("/abort_request", "/continue_generation", "/cancel")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Board:
    """The shared page. ``shut`` is written by the launcher alone, and ``running`` by the server alone."""

    def __init__(self, descriptor: int) -> None:
        self._memory = mmap.mmap(descriptor, SIZE)

    @property
    def shut(self) -> bool:
        return self._memory[0] != 0

    @shut.setter
    def shut(self, shut: bool) -> None:
        self._memory[0] = shut

    @property
    def running(self) -> int:
        return int.from_bytes(self._memory[8:16], sys.byteorder)

    @running.setter
    def running(self, count: int) -> None:
        self._memory[8:16] = count.to_bytes(8, sys.byteorder)

    def close(self) -> None:
        self._memory.close()


class Door:
    """The application ``app`` behind a door, which ``board`` shuts."""

    def __init__(self, app: App, board: Board) -> None:
        self._app = app
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        path = scope.get("path", "").removeprefix(scope.get("root_path", ""))
        reads = kind == "http" and scope["method"] in _READING
        if kind not in ("http", "websocket") or (reads and path not in _READINESS) or path.endswith(_ENDING):
            await self._app(scope, receive, send)
        elif self._board.shut:
            await _refuse(scope, receive, send)
        elif reads:
            await self._app(scope, receive, send)
        else:
            await self._count(scope, receive, send)

    async def _count(self, scope: Scope, receive: Receive, send: Send) -> None:
        over = False

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal over
            await send(message)
            # The application stays for two seconds more, to see whether the client has got it all.
            if not over and message["type"] == "http.response.body" and not message.get("more_body"):
                over = True
                self._board.running -= 1

        self._board.running += 1
        try:
            await self._app(scope, receive, sent)
        finally:
            if not over:
                self._board.running -= 1


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    prefix = ""
    if scope["type"] == "websocket":
        await receive()
        if "websocket.http.response" not in scope.get("extensions", {}):
            await send({"type": "websocket.close", "code": 1013, "reason": "try again later"})
            return
        prefix = "websocket."
    # OpenAI's shape and Anthropic's at once; the outer message is where SGLang has it.
    error = {"message": SENTENCE, "type": "overloaded_error", "param": None, "code": "draining"}
    body = json.dumps({"object": "error", "type": "error", "message": SENTENCE, "error": error}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(RETRY_SECONDS).encode()),
        # A load balancer that keeps connections has to come to know.
        (b"connection", b"close"),
    ]
    await send({"type": f"{prefix}http.response.start", "status": 503, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": body})


def install() -> None:
    """SGLang calls it in each of its processes; only the one that the launcher has started has a server."""
    path = os.environ.get(VARIABLE, "")
    if path.split("/")[1:3] != ["proc", str(os.getppid())]:
        return
    descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        board = Board(descriptor)
    finally:
        os.close(descriptor)
    hooks = importlib.import_module("sglang.srt.plugins.hook_registry")
    importlib.import_module("uvicorn")

    def before(*arguments: Any, **named: Any) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """uvicorn.Config(app, ...): the server of the engine's API, and no other that the process may have."""
        server = sys.modules.get("sglang.srt.entrypoints.http_server")
        app: Any = (*arguments[1:2], named.get("app"))[0]
        if server is None or app is None or app is not getattr(server, "app", None):
            return None
        door = Door(cast(App, app), board)
        _prove()
        if len(arguments) > 1:
            return (arguments[0], door, *arguments[2:]), named
        return arguments, {**named, "app": door}

    hooks.HookRegistry.register("uvicorn.Config.__init__", before, hooks.HookType.BEFORE)


def _prove() -> None:
    """Tell the launcher that the door is in its place."""
    with open(__file__, "rb") as file:
        digest = hashlib.sha256(file.read()).hexdigest()[:12]
    line = f"ADAPTER={NAME} {digest} {os.getpid()}\n".encode()
    descriptor = os.open(os.environ[PROOF], os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)
