"""Figures and the page: what results look like.

>>> from shapleymix_view import plot, report
>>> plot(mixture).save("mixture.png")
>>> report(fit, mixture).save("report.html")

Modules: `canvas` (one style, captions, saving), `figures`, `page` with `markup` (one self-contained file), `page_data`
(what its readers move), `web/` (its script and style).
"""

from __future__ import annotations

from shapleymix_view.canvas import Picture
from shapleymix_view.figures import plot
from shapleymix_view.page import Page, report

__all__ = ["Page", "Picture", "plot", "report"]
