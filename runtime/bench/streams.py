"""From the stamps of streams to rates and times. Pure: everything is in its arguments."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.openai.answers import Streamed

# Over less than this part of the time, a rate is that of a moment.
WHOLE_SHARE = 0.5
# Prompts of decoded streams are short: where so much of the time of so many tokens passes before the first one, it was
# held back.
HELD_SHARE = 0.8
HELD_FROM_TOKENS = 32


@dataclass(frozen=True)
class Course:
    """How a stream went: (second, tokens so far) of each message that brought tokens; ``counted`` by the engine, or,
    if it does not count as it goes, taken from the messages' number and the usage at the end. ``waited``: seconds for
    which the client had no CPU meanwhile."""

    sent: float
    points: tuple[tuple[float, float], ...]
    prompt: int
    completion: int
    cached: int | None
    counted: bool
    waited: float = 0.0

    @classmethod
    def of(cls, streamed: Streamed) -> "Course":
        """Raises ValueError for a stream without usage or without tokens."""
        if streamed.usage is None:
            raise ValueError("the stream ended without its usage: nothing tells how many tokens it had")
        usage = streamed.usage
        points: list[tuple[float, float]] = []
        counted = any(chunk.tokens is not None for chunk in streamed.chunks)
        for chunk in streamed.chunks:
            # A role, a finish_reason or a usage that is told again brings no token.
            if counted and (chunk.tokens or 0) > (points[-1][1] if points else 0):
                points.append((chunk.at, float(chunk.tokens or 0)))
            elif not counted and chunk.characters:
                points.append((chunk.at, len(points) + 1.0))
        if not points or not usage.completion:
            raise ValueError(f"the stream brought no tokens in {len(streamed.chunks)} chunks")
        if not counted and len(points) > 1:
            # The first message is taken for one token, the others share what is left.
            each = (usage.completion - 1) / (len(points) - 1)
            points = [(at, 1 + each * index) for index, (at, _) in enumerate(points)]
        return cls(streamed.sent, tuple(points), usage.prompt, usage.completion, usage.cached, counted)

    @property
    def ttft(self) -> float:
        """Seconds from the request to the first message that brought tokens."""
        return self.points[0][0] - self.sent

    @property
    def tokens_per_message(self) -> float:
        return self.completion / len(self.points)

    def tokens_at(self, at: float) -> float:
        """Tokens that had come by then, with those of a message taken as spread over the time before it."""
        index = bisect_right(self.points, at, key=lambda point: point[0])
        if index == 0:
            return 0.0
        before, tokens = self.points[index - 1]
        if index == len(self.points):
            return tokens
        after, more = self.points[index]
        return tokens + (more - tokens) * (at - before) / (after - before)

    def gaps(self) -> list[tuple[float, int]]:
        """(seconds per token, tokens) of each message but the first, as the engine's histogram counts them."""
        found = []
        for (before, had), (after, has) in zip(self.points, self.points[1:], strict=False):
            tokens = has - had
            found.append(((after - before) / tokens, max(1, round(tokens))))
        return found


@dataclass(frozen=True)
class Rate:
    """Tokens per second of all streams while all of them decoded, and how many seconds that was.

    ``whole``: it was so for a good part of the time; otherwise the rate is that from the first stream's first token to
    the last one's last, in which not all decoded at all times. ``held``: nearly all tokens came at once at the end;
    then the rate is that from the request on, which is too low, instead of one that means nothing.
    """

    tokens_per_second: float
    seconds: float
    whole: bool
    held: bool = False


def rate(courses: Sequence[Course]) -> Rate:
    """The first token of a stream belongs to its prefill, so time and tokens count from it on.

    :raises ValueError: if no stream had two messages.
    """
    sent, firsts = min(course.sent for course in courses), [course.points[0][0] for course in courses]
    lasts = [course.points[-1][0] for course in courses]
    if not min(firsts) < max(lasts):
        raise ValueError("all tokens came in one message: no rate can be told from that; ask for more tokens")
    many = min(course.completion for course in courses) >= HELD_FROM_TOKENS
    if many and min(firsts) - sent > HELD_SHARE * (max(lasts) - sent):
        seconds = max(lasts) - sent
        return Rate(sum(course.completion for course in courses) / seconds, seconds, whole=False, held=True)
    start, end = max(firsts), min(lasts)
    whole = end - start > WHOLE_SHARE * (max(lasts) - min(firsts))
    if not whole:
        start, end = min(firsts), max(lasts)
    tokens = sum(
        course.tokens_at(end) - (course.tokens_at(start) if whole else course.points[0][1]) for course in courses
    )
    return Rate(tokens / (end - start), end - start, whole)
