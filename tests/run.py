"""All tests, in two halves side by side: `make test`.

The lab's tests mostly wait, the others mostly compute. The half without the probe's lab is shown as it runs; what the
other one said follows when both have ended. A failure in either fails the run. With arguments: one pytest with them.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from types import FrameType

_PYTEST = (sys.executable, "-m", "pytest")


def main(arguments: Sequence[str]) -> int:
    if arguments:
        return subprocess.run([*_PYTEST, *arguments], check=False).returncode
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen([*_PYTEST, "--half=lab"], stdout=said, stderr=subprocess.STDOUT) as lab,
        subprocess.Popen([*_PYTEST, "--half=rest"]) as rest,
    ):

        def forward(number: int, _: FrameType | None) -> None:
            # Of a terminal's Ctrl-C both have heard already, and take a second one for impatience.
            if number != signal.SIGINT:
                for child in (lab, rest):
                    child.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, forward)
        statuses = rest.wait(), lab.wait()
        said.seek(0)
        shutil.copyfileobj(said, sys.stdout.buffer)
        sys.stdout.flush()
    return next((status for status in statuses if status), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
