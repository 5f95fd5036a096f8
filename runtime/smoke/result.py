"""What came of the checks."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Check:
    """One check: whether what it proves holds, how many seconds it took, and what was seen, in one sentence."""

    name: str
    ok: bool
    seconds: float
    sentence: str

    def __str__(self) -> str:
        return f"{self.name} {'passed' if self.ok else 'failed'}: {self.sentence}"


@dataclass(frozen=True)
class SmokeResult:
    """All checks that were asked for, in that order; ``ok`` if each passed."""

    ok: bool
    results: tuple[Check, ...]

    @classmethod
    def of(cls, results: tuple[Check, ...]) -> "SmokeResult":
        return cls(all(check.ok for check in results), results)

    @property
    def sentence(self) -> str:
        """The whole in one line: the first failure and the number of the others, or how many passed."""
        if not self.results:
            return "no check was asked for"
        failed = [check for check in self.results if not check.ok]
        seconds = sum(check.seconds for check in self.results)
        if not failed:
            return f"{len(self.results)} of {len(self.results)} checks passed in {seconds:.1f} s"
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return f"{failed[0]}{more}"

    def to_json(self) -> str:
        """One line: ``{"ok": BOOL, "sentence": TEXT, "results": [{"name", "ok", "seconds", "sentence"}, ...]}``."""
        results = [{**asdict(check), "seconds": round(check.seconds, 3)} for check in self.results]
        return json.dumps({"ok": self.ok, "sentence": self.sentence, "results": results})
