"""Ask an engine. Everything it refuses, breaks off or garbles is one exception with one sentence."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from runtime.openai.answers import Answer, EngineError, Streamed, read_stream
from runtime.openai.document import list_at, parse, quote, text_at
from runtime.openai.exchange import Clock, Deadline, Kind, Reply, RequestFailed, Server, exchange

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
Message = Mapping[str, object]
Read = TypeVar("Read")


class Client:
    """Requests for ``model``. Each one has a connection of its own, and may run in any thread."""

    def __init__(self, server: Server, model: str, clock: Clock = time.monotonic) -> None:
        self.server = server
        self.model = model
        self.clock = clock

    def complete(self, prompt: str, deadline: Deadline, about: str = "", **options: object) -> Answer:
        """A completion of ``prompt`` as it is, without a chat template. Raises RequestFailed."""
        document = {"model": self.model, "prompt": prompt, "temperature": 0, **options}
        return self._ask(COMPLETIONS, document, deadline, about, lambda reply: Answer.read(reply.body()))

    def chat(self, messages: Sequence[Message], deadline: Deadline, about: str = "", **options: object) -> Answer:
        """The next message of a conversation, without thinking before it. Raises RequestFailed."""
        document = {
            "model": self.model,
            "messages": list(messages),
            "temperature": 0,
            # Chat templates call it by either name; one that knows neither has nothing to switch off.
            "chat_template_kwargs": {"thinking": False, "enable_thinking": False},
            **options,
        }
        return self._ask(CHAT, document, deadline, about, lambda reply: Answer.read(reply.body()))

    def stream(
        self, prompt: str, deadline: Deadline, about: str = "", continuous: bool = False, **options: object
    ) -> Streamed:
        """As :meth:`complete`, in chunks. ``continuous``: each chunk says how many tokens there are so far.

        :raises RequestFailed: also if the stream ends without its end.
        """
        # Without include_usage a stream says nothing of tokens at all.
        asked = {"include_usage": True, **({"continuous_usage_stats": True} if continuous else {})}
        document = {
            "model": self.model,
            "prompt": prompt,
            "temperature": 0,
            "stream": True,
            "stream_options": asked,
            **options,
        }
        sent = self.clock()
        return self._ask(
            COMPLETIONS, document, deadline, about, lambda reply: read_stream(reply.lines(), sent, self.clock)
        )

    def get(self, path: str, deadline: Deadline) -> tuple[int, bytes]:
        """Status and body. Raises RequestFailed."""
        with exchange(self.server, "GET", path, deadline) as reply:
            return reply.status, reply.body()

    def _ask(self, path: str, document: object, deadline: Deadline, about: str, read: Callable[[Reply], Read]) -> Read:
        what = f"POST {path}" + (f" ({about})" if about else "")
        with exchange(self.server, "POST", path, deadline, document, about) as reply:
            if reply.status != 200:
                said = _message(reply.body())
                raise RequestFailed(Kind.REFUSED, f"{what} was answered with {reply.status} {reply.reason}: {said}")
            try:
                answer = read(reply)
            except EngineError as error:
                raise RequestFailed(Kind.REFUSED, f"{what} failed in the engine: {error}") from error
            except ValueError as error:
                raise RequestFailed(Kind.GARBLED, f"{what}: the answer {error}") from error
        # Lists and configuration come from an engine that hangs, too; tokens do not.
        deadline.answered += 1
        return answer


def served_model(server: Server, deadline: Deadline) -> str:
    """The name of the model that the engine serves. Raises RequestFailed."""
    status, body = Client(server, "").get("/v1/models", deadline)
    if status != 200:
        raise RequestFailed(Kind.REFUSED, f"GET /v1/models was answered with {status}, expected a list of models")
    try:
        name = text_at(list_at(parse(body), "data"), 0, "id")
    except ValueError as error:
        raise RequestFailed(Kind.GARBLED, f"GET /v1/models: the answer {error}") from error
    if not name:
        raise RequestFailed(Kind.GARBLED, "GET /v1/models: the engine lists no model")
    return name


def _message(body: bytes) -> str:
    """What an error's body says, whichever of the usual shapes it has."""
    try:
        document = parse(body)
        return quote(text_at(document, "message") or text_at(document, "error", "message") or document, 200)
    except ValueError:
        return quote(body, 200) if body else "no body"
