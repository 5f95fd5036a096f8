"""The samples of Prometheus' text format, which an engine's ``/metrics`` is in. Pure."""

import re
from dataclasses import dataclass

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:\\.|[^"\\])*)"')


@dataclass(frozen=True)
class Sample:
    """``label_text``: as it stands between the braces."""

    name: str
    label_text: str
    value: float

    @property
    def labels(self) -> dict[str, str]:
        """Values as they are written, with escapes."""
        return dict(_LABEL.findall(self.label_text))


def read_sample(line: str) -> Sample | None:
    """None for a line that is none: a comment, an empty one, or one whose value is no number."""
    match = _SAMPLE.fullmatch(line.strip())
    if match is None:
        return None
    try:
        return Sample(match[1], match[2] or "", float(match[3]))
    except ValueError:
        return None
