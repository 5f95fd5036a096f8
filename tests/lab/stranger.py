"""A machine of another cluster at the end of a cable: it says hello as its sparkd would, until it is killed.

Arguments: the devices to say it on. It runs with this machine's own Python, in the namespace of the machine outside.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from sparkd.host.hello_message import Hello, Seal

GROUP, PORT = "ff02::5eed", 7476


def main(devices: list[str]) -> None:
    sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    seal = Seal(b"the key of another cluster")
    while True:
        for device in devices:
            hello = Hello("other", "spark9", "9" * 32, device, "00000000-0000-0000-0000-000000000009")
            # The kernel tries out a new address for a second or two, and gives none to a port without light.
            with contextlib.suppress(OSError):
                sender.sendto(seal.write(hello), (GROUP, PORT, 0, socket.if_nametoindex(device)))
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
