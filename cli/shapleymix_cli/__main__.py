"""`python -m shapleymix_cli`, and the console script: an interruption is quiet from the first import on."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        from shapleymix_cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
