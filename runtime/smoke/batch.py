"""A full batch at once."""

from collections.abc import Callable
from functools import partial

from runtime.openai.answers import Answer
from runtime.openai.document import quote
from runtime.openai.together import together
from runtime.smoke.readable import agreement, corrupt, unreadable
from runtime.smoke.trial import Failed, Trial

TOKENS = 96
# What to explain, and a word that no answer about it lacks: one that does belongs to another request.
TOPICS = (
    ("a bicycle stays upright", "bicycle"),
    ("bread dough rises", "dough"),
    ("a volcano erupts", "volcano"),
    ("a lighthouse helps ships", "lighthouse"),
    ("bees make honey", "honey"),
    ("a bridge carries its load", "bridge"),
    ("rain forms in clouds", "rain"),
    ("a piano makes sound", "piano"),
    ("a refrigerator keeps food cold", "refrigerator"),
    ("trees grow in spring", "tree"),
    ("a compass points north", "compass"),
    ("glass is made", "glass"),
    ("a sailing boat moves", "boat"),
    ("the moon causes tides", "moon"),
    ("a clock keeps time", "clock"),
    ("cheese is made", "cheese"),
)
COUNTING = "Count from 1 to 40 in digits, with single spaces between them and nothing else."
# Kernels round differently at other batch sizes, so late differences are no fault; with an answer as forced as a
# count, an early one is.
AGREEMENT = 0.5


def batch(trial: Trial) -> str:
    """Every answer of a full batch is readable and its own, and one prompt reads the same in it as alone."""
    size, origin = trial.batch()
    alone = _ask(trial, COUNTING, "the count alone")
    if fault := corrupt(alone.text):
        raise Failed(f"the answer to a request that ran alone {fault}: {quote(alone.text)}")
    jobs: list[Callable[[], Answer]] = [partial(_ask, trial, COUNTING, f"1 of {size} at once, the count")]
    topics = [(*TOPICS[index % len(TOPICS)], index // len(TOPICS)) for index in range(size - 1)]
    for number, (topic, _, lap) in enumerate(topics, 2):
        # Equal prompts would be one request to a prefix cache.
        prompt = f"In {('three', 'four', 'five', 'six')[lap % 4]} plain English sentences, explain how {topic}."
        jobs.append(partial(_ask, trial, prompt, f"{number} of {size} at once, {topic}"))
    counted, *told = together(jobs)
    faults = [
        f"the answer on how {topic} {fault}: {quote(answer.text)}"
        for (topic, word, _), answer in zip(topics, told, strict=True)
        if (fault := unreadable(answer.text) or ("" if word in answer.text.lower() else f"does not mention {word}"))
    ]
    if fault := corrupt(counted.text):
        faults.insert(0, f"the count {fault}: {quote(counted.text)}")
    if faults:
        raise Failed(f"{len(faults)} of {size} answers at once are not readable ({origin}): {'; '.join(faults[:3])}")
    equal, length = agreement(alone.text, counted.text), len(alone.text)
    if equal < AGREEMENT * length:
        seen = f"{quote(counted.text[equal:], 20)} instead of {quote(alone.text[equal:], 20)}"
        raise Failed(
            f"one prompt reads differently alone and among {size} ({origin}) from character {equal} of {length} on, "
            f"{seen}; expected the first {AGREEMENT:.0%} to be equal"
        )
    same = f"one of them equals its like alone for {equal} of {length} characters"
    return f"{size} readable answers at once ({origin}); {same}"


def _ask(trial: Trial, prompt: str, about: str) -> Answer:
    messages = [{"role": "user", "content": prompt}]
    return trial.client.chat(messages, trial.deadline, about, max_tokens=TOKENS)
