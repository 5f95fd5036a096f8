"""Prompts that no cache has seen: random from the first token on."""

from runtime.openai.client import Client
from runtime.openai.exchange import Deadline, Kind, RequestFailed
from runtime.openai.words import words

FEW, MANY = 16, 116
# Long answers in plain prose, which is what others measure with.
SUBJECTS = (
    "the history of bridges",
    "how a city gets its water",
    "a journey along a river",
    "the work of a lighthouse keeper",
    "how bread came to be baked",
    "life in a mountain village",
    "the first railways",
    "what gardens are for",
)


def prose(stream: int) -> str:
    """The beginning of an essay: six random words, so that none shares a prefix with another, then its title."""
    subject = SUBJECTS[stream % len(SUBJECTS)]
    return f"{words(6)}.\n\nThe following is a long essay in plain English about {subject}.\n\n"


class Lengths:
    """Prompts of a number of tokens, of random words; learns from the engine how many words make so many tokens.

    :raises RequestFailed: while it learns.
    """

    def __init__(self, client: Client, deadline: Deadline) -> None:
        few, many = (
            client.complete(words(count), deadline, f"{count} words, to count their tokens", max_tokens=1).usage.prompt
            for count in (FEW, MANY)
        )
        self._per_word = (many - few) / (MANY - FEW)
        self._fixed = few - FEW * self._per_word
        if self._per_word < 0.5:
            grown = f"{MANY} words are {many} tokens of prompt, {FEW} are {few}"
            raise RequestFailed(Kind.GARBLED, f"{grown}: the engine counts prompts wrongly, or cuts them")

    def prompt(self, tokens: int) -> str:
        """Random words that come to about so many tokens."""
        return words(max(1, round((tokens - self._fixed) / self._per_word)))
