"""Parts of a JSON document that somebody else wrote, each with the type that is expected."""

import json


def parse(text: bytes | str) -> object:
    """Raises ValueError, also for nesting that Python's parser does not survive."""
    try:
        found: object = json.loads(text)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"is no JSON: {quote(text)}") from error
    return found


def at(document: object, *path: str | int) -> object:
    """What is at ``path``; None if there is nothing."""
    for step in path:
        if isinstance(document, dict) and isinstance(step, str):
            document = document.get(step)
        elif isinstance(document, list) and isinstance(step, int) and -len(document) <= step < len(document):
            document = document[step]
        else:
            return None
    return document


def text_at(document: object, *path: str | int) -> str:
    """A string; null and absent read as empty. Raises ValueError."""
    found = at(document, *path)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise ValueError(f"has {_name(path)} = {quote(found)}, expected a string")
    return found


def count_at(document: object, *path: str | int) -> int:
    """An integer from 0 on. Raises ValueError."""
    found = at(document, *path)
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError(f"has {_name(path)} = {quote(found)}, expected a count")
    return found


def positive_at(document: object, *path: str | int) -> int | None:
    """An integer above 0, or None for anything else: engines write -1, 0 or null for "no limit"."""
    found = at(document, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None


def list_at(document: object, *path: str | int) -> list[object]:
    """A list; null and absent read as empty. Raises ValueError."""
    found = at(document, *path)
    if found is None:
        return []
    if not isinstance(found, list):
        raise ValueError(f"has {_name(path)} = {quote(found)}, expected a list")
    return found


def quote(value: object, length: int = 60) -> str:
    """``value`` as it can stand in a sentence: in one line, cut if it is long."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    shown = repr(value)
    return shown if len(shown) <= length + 2 else f"{shown[:length]}..."


def _name(path: tuple[str | int, ...]) -> str:
    return ".".join(str(step) for step in path)
