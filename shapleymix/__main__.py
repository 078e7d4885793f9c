"""`python -m shapleymix`: the command, where its script is on no path."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("shapleymix_cli", run_name="__main__", alter_sys=True)
