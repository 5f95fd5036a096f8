"""How a rank ends: exit codes (sysexits numbers where one fits) and the error that carries one."""

import enum


class ExitCode(enum.IntEnum):
    """Exit status of a rank's main process; the daemon tells the kinds of failure apart by it."""

    OK = 0
    INTERNAL_ERROR = 1
    BAD_ENVIRONMENT = 64
    ENGINE_REFUSED = 65
    RENDEZVOUS_FAILED = 69
    MEMBER_LOST = 70
    INIT_STUCK = 71
    LOAD_STALLED = 72
    HUNG = 73
    RAIL_FAILED = 74
    NOT_AS_ASKED = 75
    SMOKE_FAILED = 76
    OUT_OF_MEMORY = 77


class RankFailure(Exception):
    """The rank cannot go on: ``sentence`` is the first error in one line, ``code`` the exit status."""

    def __init__(self, code: ExitCode, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
