"""What is said no to."""

from __future__ import annotations

from sparkd.core.model import Finding


class Refusal(Exception):
    """An operator's request that is not carried out. `code` is the stable word that HTTP and exit codes follow."""

    def __init__(
        self,
        code: str,
        sentence: str,
        findings: tuple[Finding, ...] = (),
        *,
        epoch: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        """`epoch`: the one in force, where another was expected. `retry_after`: seconds."""
        super().__init__(sentence)
        self.code = code
        self.sentence = sentence
        self.findings = findings
        self.epoch = epoch
        self.retry_after = retry_after
