"""`shapleymix optimize` with many languages: what it shows of them."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from typing import Any

import numpy as np
from shapleymix_cli.views.optimize import mixture_view, scales_view
from shapleymix_cli.views.tables import show

from shapleymix.laws.terms import PowerTerms
from shapleymix.mixing.optimization import optimize as run_optimize


def test_two_hundred_languages_are_readable() -> None:
    names, rng = tuple(f"l{place}" for place in range(200)), np.random.default_rng(0)
    terms = PowerTerms(np.zeros(200), rng.uniform(1, 3, 200), rng.uniform(0.02, 0.2, 200), 0.95 * np.eye(200) + 0.05)

    class Known:
        sources = targets = names

        def terms(self, N: float, D: float) -> PowerTerms:
            return terms

        def replicate_terms(self, N: float, D: float) -> None:
            return None

        def predict(self, p: Any, N: Any, D: Any, level: float = 0.9, **_: Any) -> Any:
            losses = terms.losses(np.asarray(p))
            nothing = np.zeros(losses.shape, dtype=bool)
            return SimpleNamespace(
                losses=losses, low=losses, high=losses, warnings=(), outside=nothing, above_untrained=nothing
            )

    free = run_optimize(Known(), 1e9, 1e10)
    capped = names[int(np.argmax(free.p))]
    found = run_optimize(Known(), 1e9, 1e10, caps={capped: 1e-4})
    short, whole = (list(map(str, view_lines(mixture_view(found, "any", verbose)))) for verbose in (False, True))
    assert len(short) < 100 < len(whole)
    assert any(line.startswith(f"{capped} ") for line in short), "a language at its cap is shown, however small"
    assert any("170 sources more" in line for line in short)
    largest = names[int(np.argmax(found.p))]
    assert any(line.startswith(f"{largest} ") for line in short)
    scales = view_lines(scales_view([found, free], "any", verbose=False))
    assert len(scales) < 40 < len(view_lines(scales_view([found, free], "any", verbose=True)))
    assert any("188 sources more" in line for line in scales)
    assert any(largest in line.split() for line in scales)


def view_lines(parts: Any) -> list[str]:
    with redirect_stdout(StringIO()) as screen:
        show(parts)
    return screen.getvalue().splitlines()
