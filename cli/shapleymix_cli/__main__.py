"""`python -m shapleymix_cli`."""

from __future__ import annotations

from shapleymix_cli.main import main

main()
