"""``python -m promptkit`` is the command ``promptkit``."""

import sys

from promptkit._cli import main

if __name__ == "__main__":
    sys.exit(main())
