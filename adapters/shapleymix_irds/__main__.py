"""`python -m shapleymix_irds`: the same as `shapleymix-irds`."""

from __future__ import annotations

import sys

from shapleymix_irds.commands import main

if __name__ == "__main__":
    sys.exit(main())
