"""`python -m runtime.manage`, installed as sparkd-engine."""

import sys

from runtime.manage.main import main

if __name__ == "__main__":
    sys.exit(main())
