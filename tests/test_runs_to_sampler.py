"""The example that goes from runs to a sampler: it runs, and draws tokens in the shares of its mixture."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest


@pytest.fixture(scope="module")
def example() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(f"{Path(__file__).parents[1]}/fixtures/runs_to_sampler.py"))


def test_the_shares_that_are_drawn_are_those_of_the_mixture(
    example: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main()
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert [row[0] for row in rows] == ["en", "de", "fr", "zh", "ja"]
    ratios, drawn = (np.array([float(row[place]) for row in rows]) for place in (1, 2))
    assert ratios.sum() == pytest.approx(1, abs=3e-4)
    documents = example.D / 350  # about so many are drawn
    assert (np.abs(drawn - ratios) < 5 * np.sqrt(ratios / documents)).all()


def test_documents_by_their_number_alone_would_make_another_mixture(example: SimpleNamespace) -> None:
    """What the mean lengths are for: drawn by the ratios, languages with longer documents get more."""
    from shapleymix_io import export

    plan = export({"short": 0.5, "long": 0.5}, "hf", mean_tokens={"short": 10, "long": 90})
    assert plan.config["probabilities"] == pytest.approx([0.9, 0.1])
    corpora = {"short": [[0] * 10], "long": [[0] * 90]}
    documents = [next(stream) for stream in [example.draw(plan, corpora)] * 5000]
    tokens = {name: sum(len(one) for own, one in documents if own == name) for name in corpora}
    assert tokens["long"] / sum(tokens.values()) == pytest.approx(0.5, abs=0.04)
