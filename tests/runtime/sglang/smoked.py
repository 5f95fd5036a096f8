"""The launcher with a runtime.smoke that the test has put on the path as own_smoke."""

import importlib
import os
import sys

from runtime.launch import main

if __name__ == "__main__":
    sys.modules["runtime.smoke"] = importlib.import_module("own_smoke")
    os._exit(main())
