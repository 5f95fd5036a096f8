"""Does the engine answer sense? Short checks against its OpenAI API, each with a deadline and one sentence.

A group that has formed, loaded and counts tokens may still write garbage: with weights that were split wrongly, from
some batch size on, beyond some prompt length. These checks ask the questions whose answers would show it.

    result = runtime.smoke.run("http://127.0.0.1:8888", ["arithmetic", "batch"], model="", timeout=60, report=print)
"""

from runtime.smoke.result import Check, SmokeResult
from runtime.smoke.runner import CHECKS, run
from runtime.smoke.trial import Limits

__all__ = ["CHECKS", "Check", "Limits", "SmokeResult", "run"]
