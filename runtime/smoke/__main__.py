"""Ask a running engine whether it makes sense: ``python -m runtime.smoke http://127.0.0.1:8888 [CHECK ...]``."""

import argparse
import sys
import textwrap
from collections.abc import Sequence

from runtime.smoke.result import SmokeResult
from runtime.smoke.runner import CHECKS, run
from runtime.smoke.trial import Limits

WIDTH = 100


def main(argv: Sequence[str] | None = None) -> int:
    """0 if every check passed, 1 if one failed, 2 for arguments that make no sense."""
    proves = "\n".join(f"  {name:<11} {' '.join((proof.__doc__ or '').split())}" for name, proof in CHECKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m runtime.smoke",
        description="Checks whether an engine's answers make sense, over its OpenAI API.",
        epilog=f"checks, and what each proves:\n{proves}\n\nA model with random weights can pass the first four.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("url", metavar="URL", help="the engine, such as http://127.0.0.1:8888")
    parser.add_argument("names", metavar="CHECK", nargs="*", help="what to check; all, if left out")
    parser.add_argument("--model", default="", help="the model's name; the one that is served, if left out")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds for each check (60)")
    parser.add_argument(
        "--batch", type=int, default=0, help="requests at once; as many as the engine runs, if left out"
    )
    parser.add_argument("--long-prompt", type=int, default=16384, help="tokens of the longest prompt (16384)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    # Options may stand between the address and the checks.
    arguments = parser.parse_intermixed_args(argv)

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    try:
        result = run(
            arguments.url,
            arguments.names or list(CHECKS),
            model=arguments.model,
            timeout=arguments.timeout,
            # The table comes last; meanwhile somebody at a terminal wants to know what takes so long.
            report=tell if sys.stderr.isatty() and not arguments.json else lambda _: None,
            limits=Limits(arguments.batch, arguments.long_prompt),
        )
    except ValueError as error:
        parser.error(str(error))
    print(result.to_json() if arguments.json else table(result))
    return 0 if result.ok else 1


def table(result: SmokeResult) -> str:
    """A line for each check, with its sentence broken where it is too long for one."""
    lines = []
    for check in result.results:
        first, *rest = textwrap.wrap(check.sentence, WIDTH) or [""]
        lines.append(f"{check.name:<11} {'ok' if check.ok else 'FAILED':<7} {check.seconds:6.1f} s  {first}")
        lines += [" " * 30 + line for line in rest]
    passed = sum(check.ok for check in result.results)
    return "\n".join([*lines, f"{passed} of {len(result.results)} checks passed"])


if __name__ == "__main__":
    sys.exit(main())
