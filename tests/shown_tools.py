"""What the pages show: their blocks of code, the calls in them, and the output that is shown below a call."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import write_reference

ROOT = Path(__file__).resolve().parents[1]
GLOBS = ("README.md", "cli/docs/*.md", "shapleymix/docs/*.md", "fixtures/README.md")
FOUND = [path for pattern in GLOBS for path in sorted(ROOT.glob(pattern))]
PAGES = [path for path in FOUND if str(path.relative_to(ROOT)) not in write_reference.PAGES]
"""What users read; references are made from the program, and what the adapter's pages show is of trainings."""

NUMBER = re.compile(r"[-+]?\d[\d,]*\.?(\d*)(?:e([-+]?\d+))?")
CLOSE, NOTHING = 1e-3, 1e-9
"""Numbers agree to one in a thousand, or to one unit of the last digit that is shown; below `NOTHING` is rounding.

That is more than processors differ: where OpenBLAS takes the kernels of an old one (OPENBLAS_CORETYPE=Prescott), or
NumPy its plainest loops, no digit of the demo that is shown moves.
"""
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LEFT_OUT = "..."
"""A line that stands for lines which a page leaves out."""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, its text, and where it begins."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Shown:
    """A call with the output that a page shows for it."""

    place: str
    call: str
    text: str

    @property
    def words(self) -> list[str]:
        """What follows `shapleymix`, without where standard output goes."""
        return shlex.split(self.call.partition(" > ")[0])[1:]

    def of(self, out: str, err: str) -> str:
        """Which of the two outputs is shown: what `>` leaves on the terminal, or the message of a failure."""
        return err if " > " in self.call or not out else out


def blocks() -> Iterator[Block]:
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        for match in FENCE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(str(path.relative_to(ROOT)), line, match[1], match[2])


def calls(block: Block) -> list[str]:
    """The commands of a console block; all lines are, unless some begin with a prompt."""
    lines = block.text.replace("\\\n", " ").splitlines()
    prompted = [line[2:] for line in lines if line.startswith("$ ")]
    return [line.split("  #")[0].strip() for line in prompted or lines if line.strip()]


def shown() -> list[Shown]:
    """Every call whose output a page shows."""
    found = []
    for block in blocks():
        for part in re.split(r"^\$ ", block.text, flags=re.M)[1:] if block.language == "console" else []:
            call, _, text = part.partition("\n")
            found.append(Shown(block.place, call, text))
    return found


def demo() -> list[str]:
    """The calls of `make demo`, as the pages write them."""
    script = (ROOT / "fixtures/demo.sh").read_text(encoding="utf-8").replace("\\\n", " ").replace("$out", "demo-output")
    lines = [" ".join(line.removeprefix("run ").replace('"', "").split()) for line in script.splitlines()]
    return [line for line in lines if line.startswith("shapleymix ")]


def of_the_demo(one: Shown) -> bool:
    """Whether a call is one of the demo's, or reads what the demo wrote."""
    return "demo-output/" in one.call


def shape(line: str) -> list[str]:
    """The words of a line, whatever its numbers."""
    return [NUMBER.sub("#", word) for word in line.split()]


def agree(one: str, other: str) -> bool:
    """Whether the numbers of a shown line are those of the printed one."""
    pairs = zip(NUMBER.finditer(one), NUMBER.finditer(other), strict=True)
    return all(
        _close(number, *(float(each[0].replace(",", "")) for each in (number, with_it))) for number, with_it in pairs
    )


def _close(written: re.Match[str], one: float, other: float) -> bool:
    unit = 10.0 ** (int(written[2] or 0) - len(written[1]))
    return abs(one - other) <= max(1.001 * unit, CLOSE * abs(one)) or max(abs(one), abs(other)) < NOTHING


def paired(shown_text: str, printed: str) -> list[tuple[str, str]]:
    """Each shown line with the printed one that it stands for.

    Lines that a page leaves out are passed over; what comes before, between and after them is there word for word.
    """
    parts = [[]] if not shown_text.strip() else _parts(shown_text)
    lines = [line for line in printed.splitlines() if line.strip()]
    pairs: list[tuple[str, str]] = []
    start = 0
    for number, part in enumerate(parts):
        shapes = [shape(line) for line in part]
        last = number == len(parts) - 1
        begins = range(start, len(lines) + 1) if number else [0]
        places = [len(lines) - len(part)] if last and number else begins
        place = next((at for at in places if at >= start and [*map(shape, lines[at : at + len(part)])] == shapes), None)
        assert place is not None, "not printed:\n" + "\n".join(part) + "\n\nbut:\n" + "\n".join(lines[start:])
        pairs += zip(part, lines[place : place + len(part)], strict=True)
        start = place + len(part)
    assert start == len(lines), "not shown:\n" + "\n".join(lines[start:])
    return pairs


def _parts(text: str) -> list[list[str]]:
    """The lines between those that are left out."""
    parts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == LEFT_OUT:
            parts.append([])
        elif line.strip():
            parts[-1].append(line)
    return parts


def check(shown_text: str, printed: str) -> None:
    """The same words in the same lines, and numbers that agree."""
    differ = [(one, other) for one, other in paired(shown_text, printed) if not agree(one, other)]
    assert not differ, "\n".join(f"shown:   {one}\nprinted: {other}" for one, other in differ)
