"""`sparkd`: the daemon, or a check of its configuration."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sparkd import __version__

DEFAULT_CONFIG = Path("/etc/sparkd/sparkd.toml")


def main() -> int:
    parser = argparse.ArgumentParser(prog="sparkd", description="Brings a ring of DGX Sparks up and keeps it up.")
    parser.add_argument("--config", type=Path, default=DEFAULT_CONFIG, help="default: %(default)s")
    parser.add_argument("--check-config", action="store_true", help="check the configuration and leave")
    parser.add_argument("--version", action="version", version=f"sparkd {__version__}")
    arguments = parser.parse_args()
    # Only now, so that --help and --version do not load what a daemon needs.
    from sparkd import daemon

    return daemon.check(arguments.config) if arguments.check_config else daemon.serve(arguments.config)


if __name__ == "__main__":
    sys.exit(main())
