"""How a command ends: exit codes by kind, and the one exception that carries them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any


class Exit(enum.IntEnum):
    """The one table of how commands end. `meaning` is what --help says, and sparkctl(1) in more words."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Exit:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "done; with --wait: the ring is as asked"
    ERROR = 1, "it did not work, the ring went another way than asked, or (doctor) a start would be refused"
    USAGE = 2, "wrong usage of the command"
    REFUSED = 3, "refused by the ring, or (plan --discover) the cables are not one ring; the findings say why"
    DENIED = 4, "not allowed: no token or a wrong one, no permission, not root"
    UNREACHABLE = 5, "sparkd does not answer, here or on the conductor"
    TIMEOUT = 6, "--timeout has passed"
    CONFIG = 7, "a configuration, description, bundle or profile is missing or faulty"
    DOUBT = 8, "nothing refuses a start, but something is to be mended or cannot be told (doctor, profile check)"
    INTERRUPTED = 130, "interrupted"


MEANINGS = {code: code.meaning for code in Exit}

_BY_STATUS = {
    401: Exit.DENIED,
    403: Exit.DENIED,
    409: Exit.REFUSED,
    412: Exit.REFUSED,
    429: Exit.DENIED,
    503: Exit.UNREACHABLE,
}


def exit_of(status: int) -> Exit:
    """How a command ends that the API has answered with this HTTP status, of 400 or above."""
    return _BY_STATUS.get(status, Exit.ERROR)


class Failure(Exception):
    """A command cannot go on. The text is a sentence, or one line per problem.

    hint: what to do about it. findings: as in the API.
    """

    def __init__(self, exit_code: Exit, text: str, hint: str = "", findings: Sequence[Any] = ()) -> None:
        super().__init__(text)
        self.exit_code = exit_code
        self.text = text
        self.hint = hint
        self.findings = tuple(findings)

    def document(self) -> dict[str, Any]:
        """What a program gets in place of the answer that it has asked for with --json."""
        error = {"exit": int(self.exit_code), "kind": self.exit_code.name.lower(), "text": self.text}
        return {"error": {**error, "hint": self.hint, "findings": list(self.findings)}}
