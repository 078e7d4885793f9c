"""`python -m shapleymix_cli`, and the console script: an interruption is quiet from the first import on."""

from __future__ import annotations

import io
import sys


def main() -> None:
    """Run the command line."""
    sys.stdout = sys.stdout or io.TextIOWrapper(io.BytesIO())  # closed by the shell (`>&-`): nobody reads the answer
    try:
        from shapleymix_cli.main import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
