"""`python -m sparkd.cli`, installed as sparkctl."""

import sys

from sparkd.cli import main

if __name__ == "__main__":
    sys.exit(main())
