"""What a check is given, and how it fails."""

from dataclasses import dataclass

from runtime.openai.client import Client
from runtime.openai.exchange import Deadline
from runtime.openai.facts import Facts, read_facts

BATCH = 4
BATCH_MAX = 64


class Failed(Exception):
    """What the check proves does not hold; the text says what was seen and what was expected."""


@dataclass(frozen=True)
class Limits:
    """``batch``: how many requests at once, 0 for as many as the engine runs. ``long_prompt``: tokens of the longest
    prompt; less where the engine takes less."""

    batch: int = 0
    long_prompt: int = 16384


@dataclass(frozen=True)
class Trial:
    """One run of one check. Every request of it takes its time from the same ``deadline``."""

    client: Client
    deadline: Deadline
    limits: Limits = Limits()

    def facts(self) -> Facts:
        """What the engine says of itself. Raises RequestFailed if it says nothing at all."""
        return read_facts(self.client, self.deadline)

    def batch(self) -> tuple[int, str]:
        """How many requests make a full batch, and where that number is from."""
        if self.limits.batch:
            return self.limits.batch, "as asked"
        facts = self.facts()
        if facts.running_requests is None:
            return BATCH, f"the engine does not say how many it runs{facts.why_not and f' ({facts.why_not})'}"
        if facts.running_requests > BATCH_MAX:
            return BATCH_MAX, f"the engine runs {facts.running_requests}"
        return facts.running_requests, "as many as the engine runs"
