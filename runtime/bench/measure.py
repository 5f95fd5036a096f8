"""The measuring itself: rounds of requests at once, with readings of the engine's counters around them."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from runtime.bench.histograms import Metrics, Percentiles
from runtime.bench.prompts import Lengths, prose
from runtime.bench.report import Decode, Prefill, Spread
from runtime.bench.scrape import BETWEEN_TOKENS, FIRST_TOKEN, GENERATED, Scraper, between, cached, difference
from runtime.bench.streams import Course, rate
from runtime.bench.waiting import waited
from runtime.openai.client import Client
from runtime.openai.exchange import Deadline, Kind, RequestFailed
from runtime.openai.facts import Facts
from runtime.openai.together import together

# Both count the same tokens, so means that differ by more than this are not of the same times.
AGREEMENT = 1.25
# A token or two at the front may be shared by chance, and by tokenizers that begin each prompt with the same one.
CACHED_PER_PROMPT = 4
FOREIGN_SHARE = 0.02
WAIT_SHARE = 0.1


@dataclass(frozen=True)
class Settings:
    """``tokens``: of each decoded stream. ``timeout``: seconds that one round has."""

    streams: tuple[int, ...] = (1, 2, 4, 8)
    prefill: tuple[int, ...] = (512, 2048, 8192)
    tokens: int = 256
    rounds: int = 3
    timeout: float = 600.0


class Measure:
    """Measures one case after the other. ``report`` is told what is being done."""

    def __init__(self, client: Client, facts: Facts, settings: Settings, report: Callable[[str], None]) -> None:
        self._client = client
        self._facts = facts
        self._settings = settings
        self._report = report
        self._lengths: Lengths | None = None
        self.scraper = Scraper(client)

    def decode(self, streams: int) -> Decode:
        """``streams`` at once, each of as many tokens. Raises RequestFailed."""
        tokens = self._settings.tokens
        rounds, before, after = self._rounds(
            f"decode, {streams} streams", lambda: [prose(number) for number in range(streams)], tokens
        )
        courses = [course for one in rounds for course in one]
        notes = self._notes(courses, tokens, before, after)
        limit = self._facts.running_requests
        if limit is not None and streams > limit:
            notes.append(f"the engine runs {limit} requests at once, so not all {streams} streams decoded together")
        try:
            rates = [rate(one) for one in rounds]
            gaps = between(before, after, BETWEEN_TOKENS)
            first = between(before, after, FIRST_TOKEN)
        except ValueError as error:
            raise RequestFailed(Kind.GARBLED, f"decode, {streams} streams: {error}") from error
        if not all(found.whole or found.held for found in rates):
            notes.append("at no time did all streams decode, so ramps are in the rate")
        if held := sum(found.held for found in rates):
            notes.append(
                f"in {held} of {len(rates)} rounds nearly all tokens came at once at the end: a busy client or a proxy "
                "held them back, and those rates are counted from the request on, which is too low"
            )
        engine = None if gaps is None else Percentiles.of_histogram(gaps)
        client = Percentiles.of_weighted([gap for course in courses for gap in course.gaps()])
        notes += _disagreement(engine, client, streams)
        return Decode(
            streams,
            tokens,
            Spread.of([found.tokens_per_second for found in rates]),
            Spread.of([course.ttft for course in courses]),
            sum(course.completion for course in courses) / sum(len(course.points) for course in courses),
            engine,
            client,
            None if first is None else Percentiles.of_histogram(first),
            cached(before, after, [course.cached for course in courses]),
            tuple(notes),
        )

    def prefill(self, tokens: int) -> Prefill:
        """One prompt at a time, of about so many tokens, answered with one. Raises RequestFailed."""
        if self._lengths is None:
            self._lengths = Lengths(self._client, Deadline(self._settings.timeout))
        lengths = self._lengths
        rounds, before, after = self._rounds(f"prefill, {tokens} tokens", lambda: [lengths.prompt(tokens)], 1)
        courses = [course for one in rounds for course in one]
        try:
            first = between(before, after, FIRST_TOKEN)
        except ValueError as error:
            raise RequestFailed(Kind.GARBLED, f"prefill, {tokens} tokens: {error}") from error
        return Prefill(
            tokens,
            round(sum(course.prompt for course in courses) / len(courses)),
            Spread.of([course.prompt / course.ttft for course in courses]),
            Spread.of([course.ttft for course in courses]),
            None if first is None else Percentiles.of_histogram(first),
            cached(before, after, [course.cached for course in courses]),
            tuple(self._notes(courses, 1, before, after)),
        )

    def _rounds(
        self, name: str, prompts: Callable[[], list[str]], tokens: int
    ) -> tuple[list[list[Course]], Metrics | None, Metrics | None]:
        """A warm-up round that is thrown away, then those that count, with the metrics before and after them."""
        count = self._settings.rounds
        first = self.scraper.read(Deadline(self._settings.timeout))
        self._report(f"{name}: warm-up")
        warm = sum(course.completion for course in self._round(name, prompts(), tokens))
        # What is counted late of the warm-up would be taken for part of the rounds.
        before = self.scraper.settle(first, warm, Deadline(self._settings.timeout))
        rounds = []
        for number in range(1, count + 1):
            self._report(f"{name}: round {number} of {count}")
            rounds.append(self._round(name, prompts(), tokens))
        made = sum(course.completion for one in rounds for course in one)
        after = self.scraper.settle(before, made, Deadline(self._settings.timeout))
        return rounds, before, after

    def _round(self, name: str, prompts: list[str], tokens: int) -> list[Course]:
        deadline = Deadline(self._settings.timeout)
        jobs = [
            partial(self._stream, prompt, tokens, deadline, f"{name}, number {number}")
            for number, prompt in enumerate(prompts, 1)
        ]
        try:
            return together(jobs)
        except ValueError as error:
            raise RequestFailed(Kind.GARBLED, f"{name}: {error}") from error

    def _stream(self, prompt: str, tokens: int, deadline: Deadline, about: str) -> Course:
        before = waited()
        streamed = self._client.stream(
            prompt, deadline, about, continuous=True, max_tokens=tokens, min_tokens=tokens, ignore_eos=True
        )
        after = waited()
        course = Course.of(streamed)
        return course if before is None or after is None else replace(course, waited=after - before)

    def _notes(self, courses: list[Course], tokens: int, before: Metrics | None, after: Metrics | None) -> list[str]:
        notes = []
        short = [course.completion for course in courses if course.completion != tokens]
        if short:
            notes.append(
                f"{len(short)} of {len(courses)} streams ended after {min(short)} tokens or more, not {tokens}"
            )
        if not all(course.counted for course in courses) and tokens > 1:
            notes.append("the engine does not count tokens as it streams: each message is taken for equally many")
        worst = max(course.waited / (course.points[-1][0] - course.sent) for course in courses)
        if worst > WAIT_SHARE:
            notes.append(
                f"this client waited for a CPU in up to {worst:.0%} of a stream's time: its times are too long"
            )
        hits = cached(before, after, [course.cached for course in courses])
        if hits is not None and hits > CACHED_PER_PROMPT * len(courses):
            total = sum(course.prompt for course in courses)
            notes.append(
                f"{hits} of {total} tokens of prompts came from the prefix cache: prefill looks faster than it is"
            )
        made = sum(course.completion for course in courses)
        if before is not None and after is not None and GENERATED in after.values:
            counted = difference(before, after, GENERATED)
            if abs(counted - made) > FOREIGN_SHARE * made:
                notes.append(
                    f"the engine generated {counted:.0f} tokens meanwhile, {made} of them for this: "
                    "others are at work, and are in its percentiles"
                )
        return notes


def _disagreement(engine: Percentiles | None, client: Percentiles | None, streams: int) -> list[str]:
    """Say if the client did not see tokens as they were made."""
    if engine is None or client is None or engine.mean <= 0:
        return []
    if 1 / AGREEMENT <= client.mean / engine.mean <= AGREEMENT:
        return []
    return [
        f"the engine made a token every {1000 * engine.mean:.3g} ms and stream, the client saw one every "
        f"{1000 * client.mean:.3g} ms: something held them up on the way; by the engine's mean the rate is "
        f"{streams / engine.mean:.1f} tokens/s"
    ]
