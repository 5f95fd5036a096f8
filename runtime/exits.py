"""How a rank ends: exit codes (sysexits numbers where one fits) and the error that carries one."""

import enum


class ExitCode(enum.IntEnum):
    """Exit status of a rank's main process; the daemon tells the kinds of failure apart by it."""

    OK = 0
    INTERNAL_ERROR = 1
    BAD_ENVIRONMENT = 64
    RENDEZVOUS_FAILED = 69
    MEMBER_LOST = 70
    RAIL_FAILED = 74


class RankFailure(Exception):
    """The rank cannot go on: ``sentence`` is the first error in one line, ``code`` the exit status."""

    def __init__(self, code: ExitCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
