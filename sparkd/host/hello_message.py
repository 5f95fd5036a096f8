"""The hello as a datagram: a JSON object, followed by the 32 bytes of its HMAC-SHA256.

    {"v":1,"cluster":NAME,"node":NAME,"id":32 hex digits,"port":DEVICE,"boot":BOOT ID,"mac":ADDRESS,
     "nonce":16 hex digits,"repeat":[up to four of the nonces that were heard there],"ask":0 or 1}

A reader of version 1 ignores keys that it does not know, so that more can be added. The key of the HMAC is
HMAC-SHA256(cluster key, "fabric hello"). What keeps a recorded hello from being believed is in hello_proof.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from sparkd.host.hello_proof import REPEATED

MAX_BYTES = 512
"""No datagram is longer; the longest that is ever sent has about 480 bytes."""
_MAC_BYTES = 32
_VERSION = 1
_NAME = re.compile(r"[!-~]{1,63}")
_PORT = re.compile(r"[!-~]{1,15}")  # IFNAMSIZ is 16, with the final zero
_ID = re.compile(r"[0-9a-f]{32}")
_BOOT = re.compile(r"[0-9a-f-]{1,36}")
_FIELDS = {"cluster": _NAME, "node": _NAME, "id": _ID, "port": _PORT, "boot": _BOOT}
_MAC_ADDRESS = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_NONCE = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True)
class Hello:
    """`port` is the device it is sent from, `mac` its address. `asks`: the sender hears nobody of its cluster there,
    and wants an answer at once. `nonce` and `repeated`: see hello_proof."""

    cluster: str
    node: str
    node_id: str
    port: str
    boot_id: str
    asks: bool = False
    mac: str = ""
    nonce: str = ""
    repeated: tuple[str, ...] = ()


class Seal:
    """Writes and reads hellos under a cluster's key."""

    def __init__(self, cluster_key: bytes) -> None:
        self._key = hmac.digest(cluster_key, b"fabric hello", "sha256")

    def write(self, hello: Hello) -> bytes:
        """Raises ValueError for a hello that no reader would accept."""
        document = {
            "v": _VERSION,
            "cluster": hello.cluster,
            "node": hello.node,
            "id": hello.node_id,
            "port": hello.port,
            "boot": hello.boot_id,
            "mac": hello.mac,
            "nonce": hello.nonce,
            "repeat": list(hello.repeated),
            "ask": int(hello.asks),
        }
        if _checked(document) != hello:
            raise ValueError(f"no reader would accept {hello}")
        text = json.dumps(document, separators=(",", ":")).encode("ascii")
        return text + self._mac(text)

    def read(self, data: bytes) -> tuple[Hello, bool] | None:
        """The hello and whether it carries the cluster's key; None for anything that is no hello."""
        if not _MAC_BYTES < len(data) <= MAX_BYTES:
            return None
        text, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            return None
        hello = _checked(document)
        return None if hello is None else (hello, hmac.compare_digest(mac, self._mac(text)))

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self._key, text, "sha256")


def _checked(document: object) -> Hello | None:
    """What a stranger wrote ends up in an operator's terminal: printable ASCII of bounded length, or nothing."""
    if not isinstance(document, Mapping) or document.get("v") != _VERSION:
        return None
    said = {}
    for name, pattern in _FIELDS.items():
        value = document.get(name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            return None
        said[name] = value
    asks = document.get("ask") == 1
    mac, nonce = (_matching(document.get(name), kind) for name, kind in (("mac", _MAC_ADDRESS), ("nonce", _NONCE)))
    told = document.get("repeat")
    repeated = tuple(_matching(one, _NONCE) for one in told[:REPEATED]) if isinstance(told, list) else ()
    named = (said["cluster"], said["node"], said["id"], said["port"], said["boot"])
    return Hello(*named, asks, mac, nonce, tuple(filter(None, repeated)))


def _matching(value: object, pattern: re.Pattern[str]) -> str:
    return value if isinstance(value, str) and pattern.fullmatch(value) else ""
