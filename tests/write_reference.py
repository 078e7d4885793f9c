"""Write the pages that are made from the program itself (`make reference`); `test_reference.py` holds them to it."""

from collections.abc import Callable
from pathlib import Path

import reference_commands
import reference_names

ROOT = Path(__file__).resolve().parents[1]
PAGES: dict[str, Callable[[], str]] = {
    "cli/docs/reference.md": reference_commands.reference,
    "shapleymix/docs/reference.md": reference_names.reference,
}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(made(), encoding="utf-8")
        print(name)
