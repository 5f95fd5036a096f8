"""sparkctl, the operator's command. The daemon never imports it."""

from sparkd.cli.command import main

__all__ = ["main"]
