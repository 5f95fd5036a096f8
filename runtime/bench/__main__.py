"""Measure a running engine: ``python -m runtime.bench http://127.0.0.1:8888``. What to know: ``--help``."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import runtime.bench
from runtime.bench.against import against
from runtime.bench.measure import Settings
from runtime.bench.plot import plot
from runtime.bench.report import Report
from runtime.bench.run import run
from runtime.bench.table import table


def main(argv: Sequence[str] | None = None) -> int:
    """0 if everything was measured, 1 if something failed, 2 for arguments that make no sense."""
    usual = Settings()
    parser = argparse.ArgumentParser(
        prog="python -m runtime.bench",
        description="Measures decode and prefill of an engine that nobody else uses, over its OpenAI API.",
        epilog=runtime.bench.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="the engine, such as http://127.0.0.1:8888")
    parser.add_argument("--model", default="", help="the model's name; the one that is served, if left out")
    parser.add_argument("--streams", type=_counts, default=usual.streams, help="numbers of streams (1,2,4,8)")
    parser.add_argument("--prefill", type=_counts, default=usual.prefill, help="tokens of prompts (512,2048,8192)")
    parser.add_argument("--tokens", type=_count, default=usual.tokens, help="tokens of each decoded stream (256)")
    parser.add_argument("--rounds", type=_count, default=usual.rounds, help="rounds after the warm-up (3)")
    parser.add_argument("--timeout", type=float, default=usual.timeout, help="seconds for each round (600)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the report there; - for standard output")
    parser.add_argument("--plot", metavar="FILE.svg", type=Path, help="draw it there")
    parser.add_argument("--against", metavar="OLD.json", type=Path, help="compare it with an older report")
    arguments = parser.parse_args(argv)
    settings = Settings(arguments.streams, arguments.prefill, arguments.tokens, arguments.rounds, arguments.timeout)
    try:
        # A report that cannot be read is better known before the measurement than after it.
        old = None if arguments.against is None else read(arguments.against)
        report = run(arguments.url, arguments.model, settings, lambda text: print(text, file=sys.stderr, flush=True))
    except ValueError as error:
        parser.error(str(error))
    to_stdout = arguments.json is not None and str(arguments.json) == "-"
    if to_stdout:
        print(report.to_json())
    elif arguments.json is not None:
        arguments.json.write_text(report.to_json() + "\n", "utf-8")
    if arguments.plot is not None:
        arguments.plot.write_text(plot(report, old), "utf-8")
    out = sys.stderr if to_stdout else sys.stdout
    print(table(report), file=out)
    if old is not None:
        print(f"\n{against(report, old)}", file=out)
    return 1 if report.failed else 0


def read(path: Path) -> Report:
    """The report in a file. Raises ValueError that names the file."""
    try:
        return Report.read(path.read_text("utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"{path} {error}") from error


def _counts(text: str) -> tuple[int, ...]:
    return tuple(_count(part) for part in text.split(",") if part)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 1 on")
    return count


if __name__ == "__main__":
    sys.exit(main())
