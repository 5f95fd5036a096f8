"""Whether a value conforms to a JSON schema, for the few keywords that the checks use."""

from collections.abc import Mapping

from runtime.openai.document import quote

TYPES: Mapping[str, type] = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list}
KEYWORDS = {"type", "properties", "required", "additionalProperties", "enum", "items", "minItems", "maxItems"}


def violation(value: object, schema: Mapping[str, object], name: str = "the value") -> str:
    """The first thing that does not conform, as a sentence's part; empty if all does.

    :raises NotImplementedError: for a keyword that is not known here, so that none goes unchecked.
    """
    if unknown := set(schema) - KEYWORDS - {"description"}:
        raise NotImplementedError(f"keywords of JSON schema: {', '.join(sorted(unknown))}")
    kind = str(schema["type"])
    # To Python, true is an integer.
    if not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        return f"{name} is {quote(value)}, expected {kind}"
    allowed = schema.get("enum")
    if isinstance(allowed, list) and value not in allowed:
        return f"{name} is {quote(value)}, expected one of {', '.join(map(repr, allowed))}"
    if isinstance(value, dict):
        return _object_violation(value, schema, name)
    if isinstance(value, list):
        return _array_violation(value, schema, name)
    return ""


def _object_violation(value: Mapping[str, object], schema: Mapping[str, object], name: str) -> str:
    properties = schema.get("properties")
    known = properties if isinstance(properties, dict) else {}
    required = schema.get("required")
    for key in required if isinstance(required, list) else []:
        if key not in value:
            return f"{name} has no {key!r}"
    for key, item in value.items():
        if key not in known:
            if schema.get("additionalProperties") is False:
                return f"{name} has {key!r}, which the schema does not know"
        elif fault := violation(item, known[key], repr(key)):
            return fault
    return ""


def _array_violation(value: list[object], schema: Mapping[str, object], name: str) -> str:
    low, high, items = schema.get("minItems"), schema.get("maxItems"), schema.get("items")
    if isinstance(low, int) and len(value) < low:
        return f"{name} has {len(value)} items, expected at least {low}"
    if isinstance(high, int) and len(value) > high:
        return f"{name} has {len(value)} items, expected at most {high}"
    if isinstance(items, dict):
        for index, item in enumerate(value):
            if fault := violation(item, items, f"item {index} of {name}"):
                return fault
    return ""
