"""What comes back from ``/v1/completions`` and ``/v1/chat/completions``, whole or as a stream."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from runtime.openai.document import at, count_at, list_at, parse, quote, text_at

NOT_A_NUMBER = "NaN happened"
"""What SGLang writes as ``matched_stop`` when a sampled token is outside of the vocabulary."""


class EngineError(Exception):
    """The engine itself says that the request failed, inside of an answer that began well."""


@dataclass(frozen=True)
class Usage:
    """Tokens, as the engine counts them. ``cached`` of the prompt's were not computed; None if it does not say."""

    prompt: int
    completion: int
    cached: int | None = None

    @classmethod
    def read(cls, document: object) -> "Usage":
        """The ``usage`` object. Raises ValueError."""
        usage = cls(
            count_at(document, "prompt_tokens"),
            count_at(document, "completion_tokens"),
            None
            if at(document, "prompt_tokens_details", "cached_tokens") is None
            else count_at(document, "prompt_tokens_details", "cached_tokens"),
        )
        if (total := count_at(document, "total_tokens")) != usage.prompt + usage.completion:
            raise ValueError(f"has {total} total_tokens, expected {usage.prompt} + {usage.completion}")
        return usage


@dataclass(frozen=True)
class Call:
    """A tool call; ``arguments`` is the JSON text that the model wrote."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Answer:
    """An answer that came as a whole. ``reasoning``: what the engine took for thoughts and kept out of ``text``."""

    text: str
    finish: str
    usage: Usage
    reasoning: str = ""
    calls: tuple[Call, ...] = ()

    @classmethod
    def read(cls, body: bytes) -> "Answer":
        """Raises ValueError, or EngineError."""
        document = parse(body)
        choices = list_at(document, "choices")
        if len(choices) != 1:
            raise ValueError(f"has {len(choices)} choices, expected one")
        finish = _finish(choices[0])
        if not finish:
            raise ValueError("has no finish_reason")
        message = at(choices[0], "message")
        usage = Usage.read(at(document, "usage"))
        if message is None:
            return cls(text_at(choices[0], "text"), finish, usage)
        calls = tuple(
            Call(text_at(call, "id"), text_at(call, "function", "name"), text_at(call, "function", "arguments"))
            for call in list_at(message, "tool_calls")
        )
        return cls(text_at(message, "content"), finish, usage, text_at(message, "reasoning_content"), calls)


@dataclass(frozen=True)
class Chunk:
    """One message of a stream that carried a choice, at ``at`` seconds of the client's clock.

    ``tokens``: completion tokens so far, None if the engine does not say. ``characters``: of new text.
    """

    at: float
    tokens: int | None
    characters: int


@dataclass(frozen=True)
class Streamed:
    """An answer that came in chunks. ``sent``: when the request was sent. ``usages``: how often a usage came at the
    end; it should be once."""

    sent: float
    chunks: tuple[Chunk, ...]
    text: str
    finish: str
    usage: Usage | None
    usages: int


def read_stream(lines: Iterable[bytes], sent: float, clock: Callable[[], float]) -> Streamed:
    """Follow server-sent events up to ``[DONE]``. Raises ValueError, or EngineError."""
    chunks: list[Chunk] = []
    texts: list[str] = []
    finish = ""
    usage: Usage | None = None
    usages = 0
    for line in lines:
        now = clock()
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            return Streamed(sent, tuple(chunks), "".join(texts), finish, usage, usages)
        document = parse(data)
        if (error := at(document, "error")) is not None:
            raise EngineError(text_at(error, "message") or quote(error))
        found = at(document, "usage")
        if found is not None:
            usage = Usage.read(found)
        choices = list_at(document, "choices")
        if not choices:
            usages += found is not None
            continue
        text = text_at(choices[0], "text") or text_at(choices[0], "delta", "content")
        texts.append(text)
        finish = _finish(choices[0]) or finish
        chunks.append(Chunk(now, None if found is None or usage is None else usage.completion, len(text)))
    raise ValueError(f"ended after {len(chunks)} chunks without [DONE]")


def _finish(choice: object) -> str:
    finish = text_at(choice, "finish_reason")
    if at(choice, "matched_stop") == NOT_A_NUMBER:
        raise EngineError(f"a token outside of the vocabulary was sampled ({NOT_A_NUMBER}): the logits are no numbers")
    if finish == "abort":
        raise EngineError("the engine aborted the request")
    return finish
