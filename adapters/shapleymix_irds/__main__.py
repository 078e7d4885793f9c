"""`python -m shapleymix_irds`: the same as `shapleymix-irds`."""

from __future__ import annotations

from shapleymix_irds.commands import run

if __name__ == "__main__":
    run()
