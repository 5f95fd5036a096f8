"""What was measured of the rails, and how the measuring itself stands."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RailFact:
    """One rail, measured from its end at `device`; `node` and `remote` are its far end.

    `gbps`: 10**9 bit/s, the lower of both directions, None if only `mtu_passed` is known. `method`: rdma or tcp.
    `mtu_passed`: whether packets of 8972 bytes pass both ways, None if no datagrams do. `error`: why it counts as not
    measured. `boot_id` and `carrier_changes`: of this host and device when it was measured. `at`: seconds of the
    kernel's monotonic clock.
    """

    device: str
    node: str
    remote: str
    gbps: float | None = None
    method: str = ""
    mtu_passed: bool | None = None
    error: str = ""
    boot_id: str = ""
    carrier_changes: int = 0
    at: float = 0.0


@dataclass(frozen=True)
class MeasureUnit:
    """A `sparkd-measure@EPOCH.service` that is alive; `text` is what it does now."""

    epoch: int
    text: str = ""
    stopping: bool = False

    @property
    def name(self) -> str:
        return f"sparkd-measure@{self.epoch}.service"


@dataclass(frozen=True)
class RailFacts:
    """`measured`: everything that is on record, valid or not.

    `tries`: how often measuring was started since there was last nothing left; `rested`: seconds since it last ended.
    """

    measured: tuple[RailFact, ...] = ()
    running: MeasureUnit | None = None
    tries: int = 0
    rested: float = 0.0


@dataclass(frozen=True)
class RailPolicy:
    """`[fabric]` of sparkd.toml. `seconds` per rail and direction; thresholds in Gb/s, 0 for none.

    `slow_ratio`: a node is slow when its best rail has at most this part of the others' median; 0: never.
    """

    seconds: float = 1.0
    min_gbps: float = 30.0
    min_tcp_gbps: float = 16.0
    slow_ratio: float = 0.5
