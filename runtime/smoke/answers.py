"""Checks of single answers: sums, structured output, tool calls."""

import re

from runtime.openai.answers import Answer
from runtime.openai.client import Message
from runtime.openai.document import parse, quote
from runtime.smoke.schema import violation
from runtime.smoke.trial import Failed, Trial

SUMS = ((17, 25), (128, 256), (43, 58), (9, 8))
# Thoughts that cannot be switched off have to fit in as well.
ANSWER_TOKENS = 512
SCHEMA: dict[str, object] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "kind": {"type": "string", "enum": ["city", "river", "mountain"]},
        "letters": {"type": "integer"},
        "capital": {"type": "boolean"},
        "languages": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 4},
    },
    "required": ["name", "kind", "letters", "capital", "languages"],
    "additionalProperties": False,
}
TOOL = "read_sensor"
TOOL_ARGUMENTS: dict[str, object] = {
    "type": "object",
    "properties": {
        "room": {"type": "string", "description": "The room whose sensor is read"},
        "quantity": {"type": "string", "enum": ["temperature", "humidity"]},
    },
    "required": ["room", "quantity"],
    "additionalProperties": False,
}
# A number that nobody guesses.
READING = "31.7"


def arithmetic(trial: Trial) -> str:
    """The model adds small numbers: weights, attention and sampling are not broken from the ground up."""
    wrong: list[str] = []
    for number, (a, b) in enumerate(SUMS, 1):
        question = f"What is {a} + {b}? Answer with the number only."
        about = f"sum {number} of {len(SUMS)}, {a} + {b}"
        answer = trial.client.chat([_user(question)], trial.deadline, about, max_tokens=ANSWER_TOKENS)
        if not re.search(rf"(?<![\d.]){a + b}(?!\d|\.\d)", answer.text):
            wrong.append(f"{a} + {b} = {_said(answer)}, expected {a + b}")
    if wrong:
        raise Failed(f"{len(wrong)} of {len(SUMS)} sums are wrong: {'; '.join(wrong)}")
    return f"{len(SUMS)} of {len(SUMS)} sums are right"


def structured(trial: Trial) -> str:
    """An answer that is asked for by a JSON schema parses and conforms: the grammar backend works."""
    answer = trial.client.chat(
        [_user("Describe Paris as JSON: its name, kind, number of letters, whether it is a capital, languages.")],
        trial.deadline,
        "a JSON schema",
        max_tokens=ANSWER_TOKENS,
        response_format={"type": "json_schema", "json_schema": {"name": "place", "schema": SCHEMA, "strict": True}},
    )
    if answer.finish != "stop":
        raise Failed(f"the JSON did not end within {ANSWER_TOKENS} tokens: {_said(answer)}")
    try:
        value = parse(answer.text)
    except ValueError as error:
        raise Failed(f"the answer {error}, though a schema was given") from error
    if fault := violation(value, SCHEMA):
        raise Failed(f"the answer does not conform to its schema: {fault}")
    return f"the answer parses and conforms, {answer.usage.completion} tokens"


def tools(trial: Trial) -> str:
    """The model calls a tool with arguments that parse, and goes on with what the tool returned."""
    tool = {
        "type": "function",
        "function": {"name": TOOL, "description": "Read a sensor of the building", "parameters": TOOL_ARGUMENTS},
    }
    messages: list[Message] = [_user(f"Call {TOOL}: what is the temperature in the server room right now?")]
    asked = trial.client.chat(
        messages, trial.deadline, "tool call, first turn", max_tokens=ANSWER_TOKENS, tools=[tool], tool_choice="auto"
    )
    if len(asked.calls) != 1:
        hint = "" if asked.calls else "; if its text holds one, --tool-call-parser is missing or not this model's"
        raise Failed(f"the answer has {len(asked.calls)} tool calls, expected one: {_said(asked)}{hint}")
    call = asked.calls[0]
    if call.name != TOOL or not call.id:
        raise Failed(f"the model called {call.name!r} with id {call.id!r}, expected {TOOL!r} and an id")
    try:
        arguments = parse(call.arguments)
    except ValueError as error:
        raise Failed(f"what the model gave {TOOL} as arguments {error}") from error
    if fault := violation(arguments, TOOL_ARGUMENTS, "the arguments"):
        raise Failed(f"the call of {TOOL} does not conform to its schema: {fault}")
    function = {"name": call.name, "arguments": call.arguments}
    messages += [
        {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": call.id, "content": f'{{"value": {READING}, "unit": "degrees Celsius"}}'},
    ]
    told = trial.client.chat(messages, trial.deadline, "tool call, second turn", max_tokens=ANSWER_TOKENS, tools=[tool])
    if READING not in told.text.replace(",", "."):
        raise Failed(f"after the tool returned {READING} the model did not say so: {_said(told)}")
    return f"{TOOL}({call.arguments}) was called, and its {READING} used"


def _user(text: str) -> Message:
    return {"role": "user", "content": text}


def _said(answer: Answer) -> str:
    if not answer.text and answer.reasoning:
        return f"nothing but thoughts, {answer.usage.completion} tokens of them (ended by {answer.finish})"
    return quote(answer.text, 100)
