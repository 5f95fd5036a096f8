"""What an idle daemon may cost: the figures that were measured once, and what was measured beside them.

Processors differ, and are shared while tests run: a fixed piece of work is measured at the same time, and the daemon's
share of the processor counted in pieces of that.
"""

from __future__ import annotations

import statistics
import time

from tests.lab import bench
from tests.lab.layout import NODES
from tests.lab.ring import Ring

PSS_MIB = 38.0
"""Of a daemon that serves and has been asked over its API."""
PIECES_AN_HOUR = 140.0
"""13 to 20 s where a piece takes 0.1 s. Beside other tests looks differ, 121 to 173: the lowest of a few counts."""
ROOM = 1.2
LOOKS = 6
_SECONDS = 15.0
_PIECE = """
import json, time
data = {str(n): {"node": "spark1", "ends": list(range(20)), "text": "x" * 40} for n in range(150)}
began = time.process_time()
for _ in range(150):
    data = json.loads(json.dumps(data))
print(time.process_time() - began)
"""


def pss(ring: Ring) -> float:
    """MiB, the median of the nodes. Each is asked once, so that it has what answering takes."""
    for node in NODES:
        ring.ask(node, "GET", "/v1/ring")
        ring.lab.exec(node, "curl", "-sf", "-o", "/dev/null", "http://127.0.0.1:7474/metrics")
    return statistics.median(bench.pss(ring, node) for node in NODES)


def pieces_an_hour(ring: Ring) -> tuple[float, float]:
    """CPU of a daemon in an hour, the median of the nodes: in pieces of work, and in seconds."""
    before = {node: bench.cpu(ring, node) for node in NODES}
    began = time.monotonic()
    pieces: list[float] = []
    while time.monotonic() < began + _SECONDS:
        pieces.append(float(ring.lab.exec(NODES[len(pieces) % len(NODES)], "python3", "-c", _PIECE).stdout))
        time.sleep(2.0)
    spent = time.monotonic() - began
    seconds = statistics.median((bench.cpu(ring, node) - before[node]) * 3600 / spent for node in NODES)
    return seconds / statistics.median(pieces), seconds
