"""What the model of a fake engine says: right answers to what it is asked, and the kinds of wrong ones there are."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from itertools import cycle, islice
from typing import Any

PROSE = (
    "This is one of the things that people have known for a long time, and it is easy to see why. The parts of it "
    "work with each other, so that none has to carry more than its own share. When one of them gives way, another "
    "takes its place, and they go on as before. That is why it has changed so little over the years."
)
GARBAGE = "\ufffd\ufffd 的 geführt!! ющий \ufffd }}; ることが 的 的 \ufffd"


@dataclass
class Faults:
    """What is wrong with the engine. ``calls`` counts requests to a path, so that a fault can hit a certain one."""

    garbage_from: int = 0
    """Answers are garbage while at least so many requests run; 0: never."""
    garbage: str = GARBAGE
    swapped: bool = False
    changed_from: int = 0
    """From so many requests at once on, counts begin at another number."""
    wrong_sums: bool = False
    answer: str | None = None
    """Said whatever is asked."""
    thinking: bool = False
    json_text: str | None = None
    call: dict[str, str] | None = None
    markup: bool = False
    deaf: bool = False
    """What a tool returned is not used."""
    blind_from: int = 0
    """Nothing is found in prompts from so many tokens on."""
    chance: bool = False
    nan: bool = False
    body: bytes | None = None
    status: int = 200
    reset: bool = False
    reset_after: int | None = None
    hang: str = ""
    """The path that is never answered."""
    hang_after: int | None = None
    drip: bool = False
    """A byte now and then, for ever."""
    error_after: int | None = None
    unfinished: bool = False
    usages: int = 1
    wrong_usage: int = 0
    stream_text: str | None = None
    stops_after: int | None = None
    held: bool = False
    """A proxy hands a stream on once it has ended."""
    says_no: set[str] = field(default_factory=set)
    """Paths that are not known."""


def tokens(text: str) -> list[str]:
    """A token is a word with the space before it."""
    return re.findall(r"\s*\S+", text)


def chat(document: dict[str, Any], faults: Faults, running: int, length: int) -> dict[str, Any]:
    """The message that answers a conversation of ``length`` tokens while ``running`` requests run."""
    if faults.answer is not None:
        return {"content": faults.answer}
    if faults.thinking:
        return {"content": None, "reasoning_content": "Let me think about that."}
    messages = document["messages"]
    said = messages[-1]["content"]
    if "response_format" in document:
        return {"content": faults.json_text or json.dumps(_conforming())}
    if document.get("tools"):
        return _tool(document, faults, messages)
    if faults.garbage_from and running >= faults.garbage_from:
        return {"content": faults.garbage}
    if found := re.match(r"What is (\d+) \+ (\d+)\?", said):
        return {"content": str(int(found[1]) + int(found[2]) + faults.wrong_sums)}
    if found := re.match(r"Count from (\d+) to (\d+)", said):
        first = int(found[1]) + (7 if faults.changed_from and running >= faults.changed_from else 0)
        return {"content": " ".join(map(str, range(first, int(found[2]) + 1)))}
    if found := re.search(r"explain how (.*)\.$", said):
        topic = "something else works" if faults.swapped else found[1]
        return {"content": f"You ask how {topic}. {PROSE}"}
    if found := re.search(r"secret number is (\d+)", said):
        return {"content": "I see no number." if faults.blind_from and length >= faults.blind_from else found[1]}
    return {"content": PROSE}


def complete(prompt: str, count: int, seed: int) -> str:
    """``count`` tokens that depend on the prompt, and on ``seed``."""
    words = PROSE.split()
    start = (zlib.crc32(prompt.encode()) + seed) % len(words)
    return " ".join(islice(cycle(words), start, start + count))


def _conforming() -> dict[str, object]:
    return {"name": "Paris", "kind": "city", "letters": 5, "capital": True, "languages": ["French"]}


def _tool(document: dict[str, Any], faults: Faults, messages: list[dict[str, Any]]) -> dict[str, Any]:
    if faults.markup:
        return {"content": '<tool_call>{"name": "read_sensor"}</tool_call>'}
    if messages[-1]["role"] == "tool":
        # As the real one: a result belongs to a call that was made.
        assert messages[-1]["tool_call_id"] == messages[-2]["tool_calls"][0]["id"]
        value = json.loads(messages[-1]["content"])["value"]
        return {"content": "I cannot know that." if faults.deaf else f"It is {value} degrees in the server room."}
    name = document["tools"][0]["function"]["name"]
    function = faults.call or {"name": name, "arguments": '{"room": "server room", "quantity": "temperature"}'}
    return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
