"""From lines of SGLang's log to the stages of a rank. Pure.

The formats are those of SGLang 0.5.23. A line that is not known says nothing about the stage: the worst that another
version's log can do is to leave the stage where it is.
"""

import enum
import re
from dataclasses import dataclass

from runtime.notify import Stage

_PREFIX = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d{3})?(?P<process>(?: [A-Z_]+\d+)*)\] ")
# tqdm's bars over the files of a checkpoint. Only rank 0 of the whole group draws them.
_SHARDS = re.compile(
    r"(?:Loading (?:safetensors|pt|np_cache) checkpoint shards|Multi-thread loading (?:pt checkpoint )?shards"
    r"|Loading safetensors using [A-Za-z ]+): +\d{1,3}%(?: Completed )?\|[^|]*?\|? *(?P<done>\d+)/(?P<total>\d+) \["
)
_GRAPHS = re.compile(
    r"Capturing (?P<what>batches|prefill shape) \([^)]*\): +\d{1,3}%\|[^|]*\| *(?P<done>\d+)/(?P<total>\d+) \["
)
_CAPTURE = re.compile(r"Capture (?P<what>[A-Za-z -]+? (?:CUDA|CPU) graph) (?P<edge>begin|end)\. ")
_KV = re.compile(r"(?:\S+ )?KV Cache (?:is allocated|VA upper bound)\. .*?#tokens: (?P<tokens>\d+), ")


class Landmark(enum.Enum):
    """What two lines say besides a stage: rank 0 answers requests; a rank above 0 has handed over to its scheduler."""

    SERVING = enum.auto()
    WAITING = enum.auto()


@dataclass(frozen=True)
class Step:
    """What one line says."""

    stage: Stage
    text: str = ""
    count: tuple[int, int] | None = None
    landmark: Landmark | None = None


# Fixed beginnings of messages.
_SAID = (
    ("Init parallel begin.", Step(Stage.RENDEZVOUS, "the engine forms its group")),
    ("Init parallel ends. elapsed=", Step(Stage.FORMED, "the engine's group")),
    ("Load weight begin. avail mem=", Step(Stage.LOAD, "weights")),
    ("Load weight end. elapsed=", Step(Stage.LOAD, "weights are loaded")),
    ("Memory pool end. avail mem=", Step(Stage.LOAD, "KV cache is allocated")),
    ("max_total_num_tokens=", Step(Stage.WARMUP, "the scheduler is ready")),
    (
        "The server is fired up and ready to roll!",
        Step(Stage.WARMUP, "the server answers", landmark=Landmark.SERVING),
    ),
    # Logged only once the rank's schedulers have reported that they are ready; next the process waits for their end.
    (
        "Dummy health check server started in background thread at ",
        Step(Stage.WARMUP, "the engine waits for work", landmark=Landmark.WAITING),
    ),
)


def split_prefix(line: str) -> tuple[str, str] | None:
    """Process ("TP0", or "" for the engine's main process) and message of a line of SGLang's log; None for another."""
    match = _PREFIX.match(line)
    return (match["process"].strip(), line[match.end() :]) if match is not None else None


def read(line: str) -> Step | None:
    """What ``line`` says of the stage; None if it says nothing."""
    split = split_prefix(line)
    if split is None:
        return _bar(line)
    message = split[1]
    for beginning, step in _SAID:
        if message.startswith(beginning):
            return step
    if match := _KV.match(message):
        return Step(Stage.LOAD, f"KV cache for {match['tokens']} tokens")
    if match := _CAPTURE.match(message):
        done = " is done" if match["edge"] == "end" else ""
        return Step(Stage.CAPTURE, f"{match['what']}{done}")
    return None


def _bar(line: str) -> Step | None:
    for pattern, stage in ((_SHARDS, Stage.LOAD), (_GRAPHS, Stage.CAPTURE)):
        if match := pattern.match(line):
            done, total = int(match["done"]), int(match["total"])
            if not 0 <= done <= total or total == 0:
                return None
            return Step(stage, "weights" if stage is Stage.LOAD else match["what"], (done, total))
    return None


def is_bar(text: str) -> bool:
    """True for a progress bar that is whole, though no line break has followed it yet."""
    return text.endswith("]") and _bar(text) is not None


_ORDER = (Stage.INIT, Stage.RENDEZVOUS, Stage.FORMED, Stage.LOAD, Stage.CAPTURE, Stage.WARMUP)


class Stages:
    """Where the engine stands. It never goes back: a draft model is loaded after the target's graphs are captured."""

    def __init__(self) -> None:
        self.now = Step(Stage.INIT, "starting the engine")
        self.landmarks: set[Landmark] = set()

    def feed(self, line: str) -> Step | None:
        """The new step if ``line`` changes anything."""
        step = read(line)
        if step is None:
            return None
        if step.landmark is not None:
            self.landmarks.add(step.landmark)
        if _ORDER.index(step.stage) < _ORDER.index(self.now.stage) or step == self.now:
            return None
        self.now = step
        return step

    def reached(self, stage: Stage) -> bool:
        """True from ``stage`` on."""
        return _ORDER.index(self.now.stage) >= _ORDER.index(stage)
