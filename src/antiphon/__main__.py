"""`python -m antiphon` is the command `antiphon`."""

from __future__ import annotations

import sys

from antiphon.cli import main

if __name__ == "__main__":
    sys.exit(main())
