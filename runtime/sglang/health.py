"""Is rank 0's engine alive? It is while its token counters move; when they rest, a request for one token tells. Pure.

SGLang's own ``/health_generate`` is only asked while the engine starts, and where metrics are switched off: then it is
the one question that a busy engine answers without being given more to do.
"""

import enum
from dataclasses import dataclass

from runtime.exits import ExitCode, RankFailure
from runtime.sglang.client import Answer
from runtime.sglang.config import EngineConfig, Limits
from runtime.sglang.tokens import Tokens, read_tokens

STARTING_SECONDS = 5.0
RETRY_SECONDS = 2.0
METRICS_SECONDS = 5.0
GRACE_SECONDS = 5.0


class Ask(enum.Enum):
    """A question to the engine's HTTP server, and whether its answer costs a token."""

    HEALTH = enum.auto()
    METRICS = enum.auto()
    CHAT = enum.auto()
    GENERATE = enum.auto()


@dataclass(frozen=True)
class Question:
    """What to send: a GET if ``body`` is None."""

    path: str
    body: dict[str, object] | None = None


def question(ask: Ask, config: EngineConfig) -> Question:
    """How ``ask`` is put."""
    match ask:
        case Ask.HEALTH:
            return Question("/health_generate")
        case Ask.METRICS:
            return Question("/metrics")
        case Ask.CHAT:
            said = [{"role": "user", "content": "1"}]
            body = {"model": served_model(config), "messages": said, "max_tokens": 1, "temperature": 0}
            return Question("/v1/chat/completions", body)
        case Ask.GENERATE:
            return Question("/generate", {"text": "1", "sampling_params": {"max_new_tokens": 1, "temperature": 0}})


def served_model(config: EngineConfig) -> str:
    """The model's name in the OpenAI API."""
    return config.argument("--served-model-name") or config.argument("--model-path", "--model") or "default"


def gave_a_token(ask: Ask, answer: Answer) -> bool:
    """True if the answer proves that a token was made, or for HEALTH, that the engine says so."""
    if answer.status != 200:
        return False
    if ask is Ask.HEALTH:
        return True
    part = answer.object().get("usage" if ask is Ask.CHAT else "meta_info")
    count = part.get("completion_tokens") if isinstance(part, dict) else None
    return isinstance(count, int) and count >= 1


class Opening:
    """Before ready: waits until the engine answers, then demands a first completion through the OpenAI API."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next = 0.0
        self._answers = False
        self._asking = False
        self._chat = True
        self._since: float | None = None
        self._why = ""
        self.done = False

    def due(self, serving: bool, now: float) -> Ask | None:
        """What to ask now. ``serving``: the log says that requests are answered."""
        if self.done or self._asking or (now < self._next and not (serving and not self._answers)):
            return None
        self._answers = self._answers or serving
        self._asking = True
        if not self._answers:
            return Ask.HEALTH
        if self._since is None:
            self._since = now
        return Ask.CHAT if self._chat else Ask.GENERATE

    def answered(self, ask: Ask, answer: Answer, now: float) -> None:
        self._asking = False
        if ask is Ask.HEALTH:
            self._answers = answer.status == 200
            self._next = now if self._answers else now + min(STARTING_SECONDS, self._limits.canary_idle_seconds / 2)
            return
        self.done = gave_a_token(ask, answer)
        self._why = answer.describe()
        self._next = now + RETRY_SECONDS
        if ask is Ask.CHAT and 400 <= answer.status < 500:
            # A model without a chat template: its completions prove as much.
            self._chat = False
            self._next = now

    def expired(self, now: float) -> RankFailure | None:
        """The first completion does not come."""
        if self.done or self._since is None or now - self._since < self._limits.hung_seconds:
            return None
        return RankFailure(
            ExitCode.HUNG,
            f"warmup: the engine says it is ready, but gave no token within {now - self._since:.0f} s: "
            f"{self._why or 'no answer'}",
        )


class Vitals:
    """After ready. ``metrics``: the engine was started with ``--enable-metrics``.

    The silence counts from when the first question without an answer was put, not from the last sign of life, and a
    little longer than may be: a member that stands still is found first by its own launcher, which knows what it has.
    """

    def __init__(self, limits: Limits, metrics: bool, now: float) -> None:
        self._limits = limits
        self._metrics = metrics
        self._pause = min(METRICS_SECONDS, limits.canary_idle_seconds / 2, limits.hung_seconds / 6)
        self._grace = min(GRACE_SECONDS, limits.hung_seconds / 4)
        self._sample_at = now
        self._canary_at = now + limits.canary_idle_seconds
        self._asking: set[Ask] = set()
        self._tokens: Tokens | None = None
        self._tokens_at = now
        self._rate = 0.0
        self._alive_at = now
        self._canary_done_at = now
        self._silent_since: float | None = None
        self._unanswered = 0
        self._why = "no answer"
        self.draining = False

    def due(self, now: float) -> Ask | None:
        """What to ask now; both kinds of question may be under way at a time."""
        if self._metrics and Ask.METRICS not in self._asking and now >= self._sample_at:
            self._asking.add(Ask.METRICS)
            return Ask.METRICS
        # An engine that drains refuses whatever else makes a token.
        canary = Ask.GENERATE if self._metrics and not self.draining else Ask.HEALTH
        if self._asking & {Ask.GENERATE, Ask.HEALTH} or now < self._canary_at:
            return None
        self._asking.add(canary)
        if self._silent_since is None:
            self._silent_since = now
        return canary

    @property
    def requests(self) -> int | None:
        """Running and queued, as last told by the metrics."""
        return None if self._tokens is None else self._tokens.running + self._tokens.queued

    @property
    def silent(self) -> bool:
        """A canary has not been answered: tokens do not flow, as far as is known."""
        return self._silent_since is not None and self._unanswered > 0

    @property
    def alive_at(self) -> float:
        """When the last token was seen."""
        return self._alive_at

    def answered(self, ask: Ask, answer: Answer, now: float) -> None:
        self._asking.discard(ask)
        if ask is Ask.METRICS:
            self._sample_at = now + self._pause
            tokens = read_tokens(answer.body.decode("utf-8", "replace")) if answer.status == 200 else None
            if tokens is not None:
                self._sampled(tokens, now)
        elif gave_a_token(ask, answer):
            self._canary_done_at = now
            self._lives(now)
        else:
            self._unanswered += 1
            self._why = answer.describe()
            self._canary_at = now + min(1.0, self._limits.canary_idle_seconds)

    def _sampled(self, tokens: Tokens, now: float) -> None:
        before, passed = self._tokens, now - self._tokens_at
        if before is not None and passed > 0:
            # A canary's one token is made by the prefill: what is decoded is other people's.
            self._rate = max(0.0, tokens.decoded - before.decoded) / passed
            if tokens.total > before.total:
                self._lives(now)
        self._tokens, self._tokens_at = tokens, now

    def _lives(self, now: float) -> None:
        self._alive_at = now
        self._canary_at = now + self._limits.canary_idle_seconds
        self._silent_since = None
        self._unanswered = 0

    def hung(self, now: float) -> RankFailure | None:
        """Neither the counters nor a canary have told of a token for too long."""
        if self._silent_since is None or now - self._silent_since < self._limits.hung_seconds + self._grace:
            return None
        running = f", {self._tokens.running} requests running" if self._tokens is not None else ""
        return RankFailure(
            ExitCode.HUNG,
            f"ready: no token for {now - self._alive_at:.0f} s although asked, "
            f"{self._unanswered} canaries without one (the last: {self._why}){running}",
        )

    def text(self, now: float) -> str:
        """For the status."""
        if self.silent:
            return f"no token for {now - self._alive_at:.0f} s, canary: {self._why}"
        tokens = self._tokens
        if tokens is not None and (tokens.running or self._rate > 0):
            return f"{self._rate:.1f} tokens/s, {tokens.running} running, {tokens.queued} queued"
        return f"idle, canary {now - self._canary_done_at:.1f} s ago"
