"""ib_write_bw without RDMA: both sides meet on the TCP port and refuse what the real one refuses.

FAKE_PERFTEST: "" for a good measurement, "no-device", "mute-server", "megabytes", "dies", or "busy FILE": slow for the
first two measurements of a device, which are noted in the file.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys

TABLE = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : {device}
 GID index       : {gid}
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
 65536      {count}           0.00               {rate:.2f}   \t\t   0.186941
---------------------------------------------------------------------------------------
"""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-d", dest="device", required=True)
    parser.add_argument("-x", dest="gid", type=int, required=True)
    parser.add_argument("-D", dest="seconds", type=int, required=True)
    parser.add_argument("-p", dest="port", type=int, required=True)
    parser.add_argument("--report_gbits", action="store_true")
    parser.add_argument("-F", action="store_true")
    parser.add_argument("server", nargs="?", default="")
    options = parser.parse_args()
    mode = os.environ.get("FAKE_PERFTEST", "")
    if mode == "no-device":
        print(f" IB device {options.device} not found\n Unable to find the Infiniband/RoCE device", file=sys.stderr)
        return 1
    if not options.server:
        with socket.create_server(("0.0.0.0", options.port)) as listener:
            if mode == "mute-server":
                return 3
            connection, _ = listener.accept()
            with connection:
                return 0 if connection.recv(64) == b"done" else 1
    try:
        connection = socket.create_connection((options.server, options.port))
    except OSError as error:
        print(f" Couldn't connect to {options.server}:{options.port}: {error}", file=sys.stderr)
        return 1
    with connection:
        if mode == "dies":
            print(" Completion with error at client", file=sys.stderr)
            return 1
        # The rate tells which device it was asked for, and the count the direction.
        unit = "Gb/sec" if options.report_gbits and mode != "megabytes" else "MB/sec"
        rate = 90.0 + int(options.device[-1])
        if mode.startswith("busy "):
            with open(mode.removeprefix("busy "), "a+") as notes:
                notes.write(f"{options.device}\n")
                notes.seek(0)
                rate = 5.0 if notes.read().split().count(options.device) <= 2 else rate
        print(TABLE.format(device=options.device, gid=options.gid, unit=unit, count=190 * options.seconds, rate=rate))
        connection.sendall(b"done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
