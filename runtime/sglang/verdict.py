"""What the engine's own end means: an exit status and one sentence. Pure."""

import re
import signal
from dataclasses import dataclass

from runtime.exits import ExitCode, RankFailure
from runtime.notify import Stage
from runtime.sglang.errors import Found, Kind

# Gloo, NCCL and the store of torch.distributed, when the other end is gone. Who went is in that one's own word.
_PEER_GONE = re.compile(
    r"Connection closed by peer|Connection reset by peer|Connection was likely closed|remote process exited"
    r"|ncclRemoteError|ncclSystemError|recv, got 0 bytes|Broken pipe|Socket closed|NetworkError|Read timeout \[",
    re.IGNORECASE,
)
_NOT_JOINED = re.compile(r"Timed out after|clients joined|connect\(\) timed out|failed to connect|Connection refused")
# What SGLang and transformers raise of what they were told, before there is any group.
_CONFIGURATION = frozenset(
    {
        "ArgumentError",
        "AssertionError",
        "FileNotFoundError",
        "GatedRepoError",
        "HFValidationError",
        "JSONDecodeError",
        "KeyError",
        "LocalEntryNotFoundError",
        "NotADirectoryError",
        "NotImplementedError",
        "OSError",
        "RepositoryNotFoundError",
        "StrictDataclassFieldValidationError",
        "TypeError",
        "ValidationError",
        "ValueError",
    }
)
_ERRNO = re.compile(r"\[Errno \d+\]")
_SIGKILL_HINT = ", perhaps by the kernel for memory"


@dataclass(frozen=True)
class End:
    """How the engine's main process ended: ``status`` is an exit status, or minus the signal that killed it.

    ``oom_kills``: how many processes of this control group the kernel has killed for memory since the start.
    """

    status: int
    stage: Stage
    error: Found | None
    oom_kills: int = 0


def verdict(end: End) -> RankFailure:
    """The failure that the launcher reports."""
    code, sentence = _judge(end)
    return RankFailure(code, f"{end.stage}: {sentence}")


def _judge(end: End) -> tuple[ExitCode, str]:
    error = end.error
    if end.oom_kills:
        many = "a process" if end.oom_kills == 1 else f"{end.oom_kills} processes"
        return ExitCode.OUT_OF_MEMORY, f"the kernel killed {many} of the engine because memory ran out"
    if error is None:
        return ExitCode.INTERNAL_ERROR, f"without a word of why the engine {describe_status(end.status)}"
    if error.kind is Kind.ARGUMENTS:
        return ExitCode.ENGINE_REFUSED, f"the engine refused its arguments: {error.text}"
    if error.kind is Kind.CRASH and error.code == 0:
        # A rank above 0 leaves in order only when rank 0 says so.
        return ExitCode.MEMBER_LOST, f"rank 0 has ended the group: {error.text} left with status 0"
    if error.kind is Kind.CRASH:
        return ExitCode.INTERNAL_ERROR, f"{error.text} {describe_status(error.code)}"
    sentence = error.sentence()
    if end.stage is Stage.INIT:
        names = {error.name, error.led_to.partition(":")[0]}
        # What the machine refuses may come right; what was configured does not.
        if names & _CONFIGURATION and not _ERRNO.search(f"{error.text} {error.led_to}"):
            return ExitCode.ENGINE_REFUSED, sentence
    elif end.stage is Stage.RENDEZVOUS:
        if _NOT_JOINED.search(sentence) or _PEER_GONE.search(sentence):
            return ExitCode.RENDEZVOUS_FAILED, sentence
    elif _PEER_GONE.search(sentence):
        return ExitCode.MEMBER_LOST, sentence
    return ExitCode.INTERNAL_ERROR, sentence


def describe_status(status: int) -> str:
    """``was killed by SIGKILL, perhaps by the kernel for memory`` or ``left with status 3``."""
    if status >= 0:
        return f"left with status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}{_SIGKILL_HINT if name == 'SIGKILL' else ''}"
