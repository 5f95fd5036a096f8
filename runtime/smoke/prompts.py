"""Prompts of one token, around the sizes at which the engine changes its ways, and a long one."""

import secrets
from dataclasses import dataclass

from runtime.openai.document import quote
from runtime.openai.words import words
from runtime.smoke.trial import Failed, Trial

ANSWER_TOKENS = 256
TRIES = 3
# Where the engine does not say: DeepSeek V4's page, and the chunks that three Sparks use.
PAGE = 256
CHUNK = 1024


@dataclass(frozen=True)
class _Size:
    tokens: int
    words: int


class _Needle:
    """Asks for a number that is hidden among words; learns from each answer how many tokens a word has."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self.shortest = self.ask(0)
        longer = self.ask(100)
        self._per_word = (longer.tokens - self.shortest.tokens) / 100
        if self._per_word < 0.5:
            raise Failed(
                f"100 more words made the prompt {longer.tokens - self.shortest.tokens} tokens longer, expected 100 "
                "or more: the engine cuts prompts, or counts them wrongly"
            )

    def ask(self, count: int) -> _Size:
        number = str(10000 + secrets.randbelow(90000))
        hidden = f"The secret number is {number}."
        # Random words in front keep the prefix cache out of it.
        prompt = (
            f"{words(6)}. Among the following words a secret number is hidden. {words(count // 2)} {hidden} "
            f"{words(count - count // 2)} What is the secret number? Answer with the number only."
        )
        about = f"a needle among {count} words"
        answer = self._trial.client.chat(
            [{"role": "user", "content": prompt}], self._trial.deadline, about, max_tokens=ANSWER_TOKENS
        )
        if number not in answer.text.replace(",", ""):
            found = quote(answer.text, 60) if answer.text else f"nothing but thoughts (ended by {answer.finish})"
            raise Failed(f"in a prompt of {answer.usage.prompt} tokens the number {number} was not found: {found}")
        return _Size(answer.usage.prompt, count)

    def near(self, tokens: int) -> _Size:
        """A prompt of about so many tokens, whose number was found."""
        return self.ask(max(0, round((tokens - self.shortest.tokens) / self._per_word)))

    def around(self, boundary: int) -> tuple[int, int]:
        """Sizes of two prompts, one of ``boundary`` tokens at most and one of more, as close as words allow."""
        return self._beside(boundary, above=False), self._beside(boundary, above=True)

    def _beside(self, boundary: int, above: bool) -> int:
        aim = boundary + 1 if above else boundary
        for _ in range(TRIES):
            size = self.near(aim)
            if (size.tokens > boundary) == above:
                return size.tokens
            aim += (1 if above else -1) * (abs(size.tokens - boundary) + 1)
        raise Failed(
            f"no prompt came to {'more than' if above else 'at most'} {boundary} tokens in {TRIES} tries: "
            "prompts of equal length do not have equal numbers of tokens"
        )


def prompts(trial: Trial) -> str:
    """A prompt of one token is answered, and a number hidden in longer ones is found: in prompts that just fill and
    just overflow a page and a prefill chunk, and in a long one."""
    facts = trial.facts()
    single = trial.client.complete("a", trial.deadline, "a prompt of one token", max_tokens=4, ignore_eos=True)
    if single.usage.completion != 4:
        raise Failed(f"a prompt of {single.usage.prompt} tokens was answered with {single.usage.completion}, not 4")
    needle = _Needle(trial)
    # Room for the answer, and for a prompt that comes out a word too long.
    room = (facts.longest or trial.limits.long_prompt + 2 * ANSWER_TOKENS) - 2 * ANSWER_TOKENS
    passed: list[str] = []
    for name, size, guess in (("page", facts.page, PAGE), ("chunk", facts.chunked_prefill, CHUNK)):
        boundary = size or guess
        if needle.shortest.tokens < boundary < room:
            low, high = needle.around(boundary)
            passed.append(f"{low} and {high} ({name} of {boundary}{'' if size else ', a guess'})")
        else:
            passed.append(f"none around a {name} of {boundary}, which is not between the shortest and longest prompt")
    target = min(trial.limits.long_prompt, room)
    if target > needle.shortest.tokens:
        passed.append(f"{needle.near(target).tokens} (long)")
    return f"prompts of {single.usage.prompt}, {', '.join(passed)} tokens"
