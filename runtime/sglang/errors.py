"""The first error in SGLang's log: which exception came first, from which process, and from which line of code. Pure.

Several processes write into one pipe, and a record of more than 4 KiB is not written in one piece, so that the lines of
two tracebacks can be mixed. The first line that names an exception is still that of the first to fail. Where two
tracebacks are open at once it cannot be told whose lines of code are whose, and none is named.
"""

import enum
import re
from dataclasses import dataclass, replace

from runtime.sglang.stages import split_prefix

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'\s+File "(?:[^"]*/)?(?P<file>[^"/]+)", line (?P<line>\d+), in (?P<name>\S+)')
# As the traceback module prints it: a qualified name at the line's start, then a colon and the message, or nothing.
_EXCEPTION = re.compile(r"(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z_]\w*[a-z]\w*(?<!Warning))(?:: (?P<text>.*))?")
_CHAINED = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
# The interpreter says so of what it goes on without.
_HARMLESS = ("Exception ignored in", "Task exception was never retrieved")
# What SGLang's processes say before they have their main process end all of them.
_LAST_WORDS = re.compile(r"\w+ hit an exception: ")
_ARGPARSE = re.compile(r"[\w .\-]+: error: (?P<text>.+)")
_NATIVE = re.compile(r"(?P<name>Fatal Python error): (?P<text>.+)|terminate called after throwing .*'(?P<what>[^']+)'")
_CRASHED = re.compile(
    r"(?:Subprocess (?P<name>\S+) \(pid=(?P<pid>\d+)\) crashed with exit code (?P<code>-?\d+)"
    r"|Scheduler or DataParallelController (?P<pid2>\d+) terminated with (?P<code2>-?\d+))"
)
_DIED = re.compile(r"Rank \d+ scheduler died during initialization \(exit code: (?P<code>-?\d+)\)")
_TEXT_MAX = 300


class Kind(enum.Enum):
    """What kind of first error it is."""

    ARGUMENTS = enum.auto()
    EXCEPTION = enum.auto()
    CRASH = enum.auto()


@dataclass(frozen=True)
class Found:
    """``name``: the exception's; ``origin``: process and line of code.

    ``code``: exit status of a process, or minus the signal that killed it.
    ``fatal``: one of SGLang's processes has ended by it, so that the engine cannot go on.
    """

    kind: Kind
    text: str
    name: str = ""
    origin: str = ""
    code: int = 0
    led_to: str = ""
    fatal: bool = False

    def sentence(self) -> str:
        """In one line."""
        text = f"{self.name}: {self.text}" if self.name and self.text else self.name or self.text
        led = f"; it led to {self.led_to}" if self.led_to else ""
        return f"{text}{f' ({self.origin})' if self.origin else ''}{led}"


class FirstError:
    """Fed with every line; ``found`` is the first error since the engine last got on.

    A traceback that SGLang itself logs and goes on from looks like any other: its records name no level. So an error is
    set aside when the engine reaches a further stage, and only told if nothing came after it; it is forgotten when the
    engine serves; and it gives way to one that has ended a process.
    """

    def __init__(self) -> None:
        self._found: Found | None = None
        self._aside: Found | None = None
        self._open = 0
        self._mixed = False
        self._harmless = False
        self._chained = False
        self._process = ""
        self._frame = ""
        self._fatal = False

    @property
    def found(self) -> Found | None:
        return self._found or self._aside

    @property
    def fatal(self) -> bool:
        """The engine will end by this, if it has not ended yet."""
        return self._found is not None and self._found.fatal

    def got_on(self) -> None:
        """The engine went on to a further stage."""
        self._aside = self._found or self._aside
        self._found = None

    def forget(self) -> None:
        """The engine serves: whatever was said before has not ended it."""
        self._found = self._aside = None

    def feed(self, line: str, starting: bool) -> None:
        """``starting``: the engine is still reading its arguments."""
        split = split_prefix(line)
        message = split[1] if split is not None else line
        if message.startswith(_HARMLESS):
            self._harmless = True
        elif message.endswith(_TRACEBACK) and (split is not None or message == _TRACEBACK):
            self._fatal = self._fatal or _LAST_WORDS.match(message) is not None
            self._opened(split[0] if split is not None else "")
        elif message in _CHAINED:
            self._chained = True
        elif match := _FRAME.match(line):
            self._frame = f"{match['file']}:{match['line']} in {match['name']}"
        elif split is not None:
            self._record(message)
        elif self._open and (match := _EXCEPTION.fullmatch(line)):
            self._closed(match["name"].rpartition(".")[2], match["text"] or "")
        elif match := _NATIVE.match(line):
            self._keep(Found(Kind.EXCEPTION, match["text"] or "", match["name"] or match["what"]))
        elif starting and (match := _ARGPARSE.fullmatch(line)):
            self._keep(Found(Kind.ARGUMENTS, match["text"][:_TEXT_MAX]))

    def _opened(self, process: str) -> None:
        self._open += 1
        self._mixed = self._open > 1
        self._frame = ""
        self._process = process or self._process

    def _record(self, message: str) -> None:
        if match := _CRASHED.match(message):
            code = int(match["code"] or match["code2"])
            name, pid = match["name"] or "scheduler", match["pid"] or match["pid2"]
            self._keep(Found(Kind.CRASH, f"{name} (pid {pid})", code=code, fatal=True))

    def _closed(self, name: str, text: str) -> None:
        self._open -= 1
        origin = ", ".join(part for part in (self._process, "" if self._mixed else self._frame) if part)
        harmless, chained, fatal = self._harmless, self._chained, self._fatal
        self._harmless = self._chained = self._fatal = False
        self._frame = ""
        if self._open == 0:
            self._mixed = False
            self._process = ""
        if harmless:
            return
        text = text[:_TEXT_MAX]
        if match := _DIED.match(text):
            self._keep(Found(Kind.CRASH, "the scheduler", code=int(match["code"]), fatal=True))
        elif chained and self._found is not None and not self._found.led_to:
            first = self._found
            led_to = f"{name}: {text}"[:_TEXT_MAX]
            self._found = replace(first, led_to=led_to, fatal=first.fatal or fatal)
        else:
            self._keep(Found(Kind.EXCEPTION, text, name, origin, fatal=fatal))

    def _keep(self, found: Found) -> None:
        if self._found is None or (found.fatal and not self._found.fatal):
            self._found = found
