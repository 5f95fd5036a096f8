"""What a rank will find on its host: its limit of locked memory, and NCCL settings that others left behind."""

from __future__ import annotations

from sparkd.core.checks.outcome import Outcome, Seen, judged, no_spark, not_applicable, unknown
from sparkd.core.hardware import ConfLine
from sparkd.core.model import Finding

UNIT = "sparkd-rank@.service"
# Each of them freezes a 4-byte warm-up all-reduce.
RESIDUE = ("NCCL_IB_USE_INLINE", "NCCL_IB_PREPOST_RECEIVE_WORK_REQUESTS")


def memlock_low(node: str, subject: str, observed: str, fix: str) -> Finding:
    return Finding("memlock-low", node, "refuse", subject, observed, "unlimited: RDMA pins nearly all of a rank", fix)


def nccl_conf_residue(node: str, line: ConfLine) -> Finding:
    return Finding(
        "nccl-conf-residue",
        node,
        "warn",
        f"{line.path}:{line.line}",
        f"{line.key}={line.value}",
        f"{line.key} unset or 0: it freezes small all-reduces",
        f"take line {line.line} out of {line.path}; sparkd's ranks override it with 0, other programs do not",
    )


def check_memlock(seen: Seen) -> Outcome:
    if (answer := no_spark(seen)) is not None:
        return answer
    rank = seen.hardware.rank
    if rank is None:
        return unknown(seen.hardware.why("rank"))
    findings = []
    if rank.memlock and rank.memlock != "unlimited":
        restart = f"see LimitMEMLOCK in systemctl cat {UNIT}, then sparkctl down and up"
        findings.append(memlock_low(seen.node, f"rank with pid {rank.pid}", f"{rank.memlock} bytes", restart))
    if rank.unit_file and rank.unit_memlock not in {"infinity", ""}:
        mend = f"take LimitMEMLOCK out of {rank.unit_file}, then systemctl daemon-reload"
        findings.append(memlock_low(seen.node, UNIT, f"{rank.unit_file}: LimitMEMLOCK={rank.unit_memlock}", mend))
    elif rank.unit_file and not rank.unit_memlock:
        mend = f"set LimitMEMLOCK=infinity in {rank.unit_file}, then systemctl daemon-reload"
        findings.append(memlock_low(seen.node, UNIT, f"{rank.unit_file}: no LimitMEMLOCK", mend))
    if not findings and not rank.memlock and not rank.unit_file:
        return not_applicable(f"no rank runs and {UNIT} is not installed")
    told = f"pid {rank.pid} has {rank.memlock}" if rank.memlock else f"{rank.unit_file} asks for infinity"
    return judged(findings, told)


def check_nccl_conf(seen: Seen) -> Outcome:
    rank = seen.hardware.rank
    if rank is None:
        return unknown(seen.hardware.why("rank"))
    return judged(
        [nccl_conf_residue(seen.node, line) for line in rank.nccl_conf if line.key in RESIDUE and line.value != "0"],
        "no nccl.conf with such settings",
        [f"{path} cannot be read" for path in rank.nccl_unreadable],
    )
