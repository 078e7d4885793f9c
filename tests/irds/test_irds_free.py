"""Validation-free mode: fresh training gradients for validation gradients, disjoint halves on the diagonal."""

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402
from irds_models import LANGUAGES, batch, dot, gradient, loss_of, make_model, relative  # noqa: E402
from shapleymix_irds import IRDS  # noqa: E402
from shapleymix_irds.ledger import Evaluation, Ledger  # noqa: E402


def by_hand(model: Any, x: Any, y: Any, lang: Any) -> Any:
    """The estimate from gradients of halves, and which entries (K, K) have none."""
    loss_fn, total = loss_of(model), float((y != -100).sum())
    halves = []
    for k in range(4):
        mine = torch.nonzero(lang == k).flatten()
        halves.append([_summed(model, loss_fn, x[part], y[part]) for part in (mine[::2], mine[1::2])])
    phi, known = np.zeros((4, 4)), np.zeros((4, 4), bool)
    for i in range(4):
        for j in range(4):
            if i != j:
                g_i, _ = _both(halves[i])
                g_j, n_j = _both(halves[j])
                pairs = [(g_i, g_j, n_j)] if n_j else []
            else:
                (a, n_a), (b, n_b) = halves[i]
                pairs = [(a, b, n_b), (b, a, n_a)] if n_a and n_b else []
            phi[i, j] = sum(dot(g, h) / n / total for g, h, n in pairs)
            known[i, j] = bool(pairs)
    return phi, known


def _summed(model: Any, loss_fn: Any, x: Any, y: Any) -> Any:
    if not len(x):
        return [torch.zeros_like(p) for p in model.parameters()], 0.0
    return gradient(model, loss_fn(x, y).sum()), float((y != -100).sum())


def _both(halves: Any) -> Any:
    (a, n_a), (b, n_b) = halves
    return [u + v for u, v in zip(a, b, strict=True)], n_a + n_b


@pytest.mark.parametrize("counts", [(2, 2, 2, 2), (5, 1, 2, 0)])
def test_halves_give_what_they_give_by_hand(counts: tuple[int, ...]) -> None:
    model = make_model().double()
    x, y, lang = batch(counts)
    truth, known = by_hand(model, x, y, lang)
    expected = gradient(model, loss_of(model)(x, y).sum() / (y != -100).sum())
    tracker = IRDS(model, LANGUAGES, val=None, every=1)
    model.zero_grad()
    tracker.backward(loss_of(model), x, y, lang, step=0)
    assert all(relative(p.grad, g) < 1e-10 for p, g in zip(model.parameters(), expected, strict=True))
    tracker.commit(lr=0.7)
    assert relative(tracker.ledger.phi, 0.7 * truth) < 1e-10
    present = np.array(counts) > 0
    assert ((tracker.ledger.known > 0) == (known & present[:, None])).all()


def test_the_diagonal_is_not_inflated_by_its_own_noise() -> None:
    """With every sequence independent of the model, a language teaches itself no more than others: about nothing.

    Products of a gradient with itself would be positive however random the text is.
    """
    model = make_model().double()
    tracker = IRDS(model, LANGUAGES, val=None, every=1)
    naive = np.zeros(4)
    for step in range(40):
        x, y, lang = batch((4, 4, 4, 4), seed=step, masked=False)
        tracker.backward(loss_of(model), x, y, lang, step=step)
        tracker.commit(lr=1.0)
        if step < 5:
            for k in range(4):
                g, n = _summed(model, loss_of(model), x[lang == k], y[lang == k])
                naive[k] += dot(g, g) / n / y.numel() / 5
        model.zero_grad()
    phi = tracker.ledger.phi / 40
    off = phi[~np.eye(4, dtype=bool)].mean()
    spread = np.diagonal(tracker.ledger.stderr).max() / 40
    assert abs(np.diagonal(phi).mean() - off) < 4 * spread
    assert naive.mean() > off + 8 * spread


def test_steps_without_an_estimate_are_made_up_for() -> None:
    """An entry that only every second step can estimate counts for all steps."""
    ledger = Ledger(2)
    for step in range(6):
        gram = np.full((2, 2), 3.0)
        gram[0, 0] = np.nan if step % 2 else 3.0
        ledger.add(Evaluation(step, 1.0, 1.0, 1.0, gram, np.array([5.0, 5.0]), np.zeros(2)))
    assert np.allclose(ledger.phi, 18.0)
