"""`sparkd-engine model serve`: this host's copy for its peers."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path
from typing import Any

from runtime.checkpoint.remote import peer_context
from runtime.checkpoint.serve import PORT, Server
from runtime.manage.model import TLS
from runtime.trouble import Trouble


def add(commands: Any) -> None:
    text = "offer this host's verified files to the other nodes, until it is ended"
    made = commands.add_parser("serve", help=text, description=text[0].upper() + text[1:] + ".")
    made.add_argument("checkpoint", type=Path, metavar="DIR", help="the directory of the checkpoint")
    made.add_argument(
        "--listen", action="append", required=True, metavar="ADDRESS[:PORT]",
        help=f"an address of this host on the fabric, port {PORT} unless given; may be repeated",
    )  # fmt: skip
    made.add_argument("--tls", type=Path, default=TLS, metavar="DIR", help="the cluster's certificates (%(default)s)")
    made.set_defaults(run=_serve)


def _serve(options: argparse.Namespace) -> int:
    context = peer_context(options.tls, server=True)
    servers: list[Server] = []
    try:
        for text in options.listen:
            address, port = _address(text)
            servers.append(Server(options.checkpoint, address, port, context))
        threads = [threading.Thread(target=server.serve_forever, daemon=True) for server in servers]
        for thread, text in zip(threads, options.listen, strict=True):
            thread.start()
            print(f"serving {options.checkpoint} on {text}, manifest {servers[0].manifest.digest[:16]}", flush=True)
        for thread in threads:
            thread.join()
    finally:
        for server in servers:
            server.server_close()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or "]" in port:
        host, port = text, str(PORT)
    if not port.isdigit() or not 0 <= int(port) < 65536:
        raise Trouble(f"--listen {text}: expected ADDRESS or ADDRESS:PORT")
    return host.strip("[]"), int(port)
