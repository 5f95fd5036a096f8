"""How a command ends: exit codes by kind, and the one exception that carries them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any


class Exit(enum.IntEnum):
    OK = 0
    ERROR = 1
    USAGE = 2
    REFUSED = 3
    DENIED = 4
    UNREACHABLE = 5
    TIMEOUT = 6
    CONFIG = 7
    DOUBT = 8
    INTERRUPTED = 130


MEANINGS = {
    Exit.OK: "done; with --wait: the ring is as asked",
    Exit.ERROR: "it did not work, the ring went another way than asked, or (doctor) a start would be refused",
    Exit.USAGE: "wrong usage of the command",
    Exit.REFUSED: "refused by the ring, or (plan --discover) the cables are not one ring; the findings say why",
    Exit.DENIED: "not allowed: no token or a wrong one, no permission, not root",
    Exit.UNREACHABLE: "sparkd does not answer, here or on the conductor",
    Exit.TIMEOUT: "--timeout has passed",
    Exit.CONFIG: "a configuration, description, bundle or profile is missing or faulty",
    Exit.DOUBT: "nothing refuses a start, but something is to be mended or cannot be told (doctor, profile check)",
    Exit.INTERRUPTED: "interrupted",
}


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
