"""Checks that any model passes, even one with random weights: what they read is not looked at for sense."""

from runtime.openai.document import list_at, parse, quote, text_at
from runtime.openai.exchange import Kind, RequestFailed
from runtime.smoke.readable import agreement
from runtime.smoke.trial import Failed, Trial

PROMPT = "Three nodes form a ring. Each of them"
TOKENS = 32
TIMES = 3


def health(trial: Trial) -> str:
    """The engine calls itself healthy after it has generated a token, and lists the model that is asked for."""
    path = "/health_generate"
    status, _ = trial.client.get(path, trial.deadline)
    if status == 404:
        path = "/health"
        status, _ = trial.client.get(path, trial.deadline)
    if status != 200:
        raise Failed(f"GET {path} was answered with {status}, expected 200")
    status, body = trial.client.get("/v1/models", trial.deadline)
    try:
        names = [text_at(model, "id") for model in list_at(parse(body), "data")] if status == 200 else []
    except ValueError as error:
        raise RequestFailed(Kind.GARBLED, f"GET /v1/models: the answer {error}") from error
    if trial.client.model not in names:
        raise Failed(f"GET /v1/models ({status}) lists {', '.join(names) or 'nothing'}, not {trial.client.model}")
    return f"{path} says 200, and {trial.client.model} is served"


def completion(trial: Trial) -> str:
    """As many tokens come back as were asked for, and usage and finish_reason say so."""
    answer = trial.client.complete(
        PROMPT, trial.deadline, f"{TOKENS} tokens", max_tokens=TOKENS, min_tokens=TOKENS, ignore_eos=True
    )
    if answer.usage.completion != TOKENS or answer.finish != "length":
        raise Failed(
            f"{answer.usage.completion} tokens came back (finish_reason {answer.finish}), "
            f"expected {TOKENS} (finish_reason length)"
        )
    if not answer.usage.prompt or not answer.text:
        raise Failed(f"usage counts {answer.usage.prompt} tokens of prompt, and the text is {quote(answer.text)}")
    return f"{TOKENS} tokens for a prompt of {answer.usage.prompt}"


def repeat(trial: Trial) -> str:
    """One prompt at temperature 0 gives the same text each time: nothing in the engine depends on chance."""
    texts = [
        trial.client.complete(
            PROMPT, trial.deadline, f"time {number} of {TIMES}", max_tokens=TOKENS, ignore_eos=True
        ).text
        for number in range(1, TIMES + 1)
    ]
    for number, text in enumerate(texts[1:], 2):
        if text != texts[0]:
            at = agreement(text, texts[0])
            # The first one fills the prefix cache, the others are computed with what it holds.
            first = ", only the first, which found no prefix in the cache," if len(set(texts[1:])) == 1 else ""
            raise Failed(
                f"answer {number} of {TIMES}{first} differs from the first at character {at}: "
                f"{quote(text[at:], 20)} instead of {quote(texts[0][at:], 20)}"
            )
    return f"{TIMES} times the same {len(texts[0])} characters"


def stream(trial: Trial) -> str:
    """A streamed answer is the text that comes unstreamed, and its usage arrives once and is the same."""
    whole = trial.client.complete(PROMPT, trial.deadline, "unstreamed", max_tokens=TOKENS, ignore_eos=True)
    streamed = trial.client.stream(PROMPT, trial.deadline, "streamed", max_tokens=TOKENS, ignore_eos=True)
    if streamed.text != whole.text:
        at = agreement(streamed.text, whole.text)
        raise Failed(
            f"the stream differs from the unstreamed answer at character {at}: "
            f"{quote(streamed.text[at:], 20)} instead of {quote(whole.text[at:], 20)}"
        )
    if streamed.usages != 1:
        raise Failed(f"the stream told its usage {streamed.usages} times at its end, expected once")
    if streamed.usage != whole.usage and (
        streamed.usage is None or streamed.usage.completion != whole.usage.completion
    ):
        raise Failed(f"the stream's usage is {streamed.usage}, unstreamed it is {whole.usage}")
    if streamed.finish != whole.finish:
        raise Failed(f"the stream ended by {streamed.finish or 'nothing'}, the unstreamed answer by {whole.finish}")
    return f"{len(whole.text)} characters in {len(streamed.chunks)} chunks, {whole.usage.completion} tokens"
