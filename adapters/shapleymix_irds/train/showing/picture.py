"""A matrix as a picture and as a text, for TensorBoard and Weights & Biases."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from shapleymix_irds.train.showing.heat import DARK, LIGHT, MOST_CELLS, colour, ink
from shapleymix_irds.train.showing.measured import Measured

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageFont import FreeTypeFont, ImageFont

CELL, LEAST = 76, 4  # pixels of a cell's side: at most, where its number stands in it, and at least
SIDE = 1200  # pixels of all cells' side, about, where there are many
EDGE = 110  # pixels of the labels beside and above
LABELLED = 11  # pixels of a cell from which on it has a label
LETTERS = 12  # of a label
ROWS = 20  # transfers that a text lists


def picture(measured: Measured) -> NDArray[np.uint8]:
    """The matrix (height, width, 3), rows the sources; with labels and numbers where cells have room for them."""
    from PIL import Image, ImageDraw

    count = len(measured.languages)
    side = min(CELL, max(LEAST, SIDE // count))
    whole = EDGE + side * count + 8
    canvas = Image.new("RGB", (whole, whole), LIGHT)
    draw = ImageDraw.Draw(canvas)
    shades = measured.shades
    for i, j in np.ndindex(count, count):
        left, top, ground = EDGE + side * j, EDGE + side * i, colour(float(shades[i, j]))
        draw.rectangle((left, top, left + side - 1, top + side - 1), fill=ground)
        if side == CELL:
            place = (left + side // 2, top + side // 2)
            draw.text(
                place, measured.number(float(measured.values[i, j])), fill=ink(ground), font=_font(16), anchor="mm"
            )
    if side >= LABELLED:
        canvas.paste(_labels(measured.languages, side, EDGE - 6, "rm"), (0, EDGE))
        above = _labels(measured.languages, side, 6, "lm")
        canvas.paste(above.transpose(Image.Transpose.ROTATE_90), (EDGE, 0))
    draw.text((6, 6), "row: source\ncolumn: target", fill=DARK, font=_font(13))
    return np.asarray(canvas)


def _labels(names: tuple[str, ...], side: int, place: int, anchor: str) -> Image:
    """Names of rows of cells, one above the other, with their ends or beginnings at a place."""
    from PIL import Image, ImageDraw

    strip = Image.new("RGB", (EDGE, side * len(names)), LIGHT)
    draw = ImageDraw.Draw(strip)
    for row, name in enumerate(names):
        at = (place, side * row + side // 2)
        draw.text(at, name[:LETTERS], fill=DARK, font=_font(min(16, side)), anchor=anchor)
    return strip


def _font(size: int) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def markdown(measured: Measured) -> str:
    """The numbers with their standard errors: all, or the largest transfers where there are many."""
    names = measured.languages
    if len(names) <= MOST_CELLS:
        head = ["source", *names]
        rows = [
            [name, *(f"{measured.number(v)}{measured.error(e)}" for v, e in zip(values, errors, strict=True))]
            for name, values, errors in zip(names, measured.values, measured.stderr, strict=True)
        ]
        rows.append(["efficiency", *(f"{ratio:.2g}" for ratio in measured.efficiency)])
    else:
        head = ["source", "target", "value"]
        rows = [
            [one.source, one.target, f"{measured.number(one.value)}{measured.error(one.stderr)}"]
            for one in measured.largest(ROWS)
        ]
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{measured.heading}\n\n{table}\n\n{measured.cost}"
