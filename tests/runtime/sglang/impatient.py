"""The launcher, with less patience for an engine that was told to stop."""

import os
from functools import partial

from runtime.launch import main
from runtime.sglang.engine import run_sglang

if __name__ == "__main__":
    os._exit(main(engines={"sglang": partial(run_sglang, stop_seconds=0.5)}))
