"""Starting points by variable projection: a grid over exponents, the linear symbols solved exactly at each.

At fixed exponents a law is linear in a few symbols that may not be negative (those of the role "linear"); its loss with
one of them 1 and the others 0 is that symbol's column. Non-negative least squares over a few columns is solved for all
problems at once by trying every subset of columns.
"""

from __future__ import annotations

import itertools

import numpy as np

from shapleymix.fitting.packing import Packing
from shapleymix.laws import Inputs, Observations
from shapleymix.laws.answers import ABSURD
from shapleymix.records import FloatArray


def starting_points(
    packing: Packing, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray], keep: int
) -> FloatArray:
    """The `keep` best starts of every target, shape (keep, K, P)."""
    symbols = _crossed(packing, observed, inputs, givens)
    linear = tuple(name for name in packing.law.of_role("linear") if name not in packing.held)
    offset, columns = _columns(packing, symbols, linear, observed, givens)
    relative = observed.weight * np.exp(-2.0 * observed.log_loss)  # squares of relative, not absolute, errors
    gap = np.exp(observed.log_loss) - offset
    gram = np.einsum("rk,csrk,dsrk->skcd", relative, columns, columns, optimize=True)
    right = np.einsum("rk,csrk,srk->skc", relative, columns, gap, optimize=True)
    solved = _nonnegative(gram, right)
    error = np.einsum("skcd,skc,skd->sk", gram, solved, solved, optimize=True) - 2.0 * (right * solved).sum(axis=-1)
    error += np.einsum("rk,srk->sk", relative, gap**2)
    symbols |= {name: np.maximum(solved[..., index], 1e-4) for index, name in enumerate(linear)}
    return _best(packing, symbols, error, keep)


def lowest(x: FloatArray, cost: FloatArray, count: int) -> FloatArray:
    """The starts (V, S, K, P) of lowest cost (V, S, K), `count` of them for every weighting and target."""
    order = np.argsort(cost, axis=1, kind="stable")[:, :count]
    return np.take_along_axis(x, order[..., None], axis=1)


def _crossed(
    packing: Packing, observed: Observations, inputs: Inputs, givens: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """The law's own starts crossed with the declared ones of every other free symbol; leading axis S."""
    symbols = packing.law.starts(observed, inputs, givens)
    shapes = {"K": observed.log_loss.shape[1:], "MK": (packing.sources, observed.log_loss.shape[1])}
    rows = max((len(value) for value in symbols.values()), default=1)
    for known in packing.free:
        if known.name in symbols:
            continue
        values = np.ones(1) if known.role == "linear" else known.starts  # linear symbols are solved for later
        symbols = {name: np.concatenate([value] * len(values)) for name, value in symbols.items()}
        flat = np.repeat(values, rows).reshape(-1, *(1 for _ in shapes[known.axes]))
        symbols[known.name] = flat * np.ones(shapes[known.axes])
        rows *= len(values)
    return symbols


def _columns(
    packing: Packing,
    symbols: dict[str, FloatArray],
    linear: tuple[str, ...],
    observed: Observations,
    givens: dict[str, FloatArray],
) -> tuple[FloatArray, FloatArray]:
    """The loss with every linear symbol zero (S, R, K), and what one unit of each adds (C, S, R, K)."""
    rows, targets = len(next(iter(symbols.values()))), observed.log_loss.shape[1]
    fixed = {name: np.full((rows, targets), value) for name, value in packing.held.items()}

    def loss(**units: float) -> FloatArray:
        amounts = {name: np.full((rows, targets), units.get(name, 0.0)) for name in linear}
        law = packing.law(**(symbols | fixed | amounts | givens))
        losses = law.losses(observed.p, observed.N, observed.D)
        return np.where(np.abs(losses) < ABSURD, losses, 0.0)  # NaN is 0, too

    offset = loss()
    columns = [loss(**{name: 1.0}) - offset for name in linear]
    return offset, np.array(columns).reshape(len(linear), *offset.shape)


def _nonnegative(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Minimise `x.gram.x / 2 - right.x` over `x >= 0` for every problem, by trying all subsets of columns."""
    columns = right.shape[-1]
    best, value = np.zeros_like(right), np.zeros(right.shape[:-1])
    ridge = 1e-10 * np.einsum("...cc->...c", gram).max(axis=-1, keepdims=True, initial=0.0) + 1e-300
    for size in range(1, columns + 1):
        for subset in itertools.combinations(range(columns), size):
            inside = np.array(subset)
            matrix = gram[..., inside[:, None], inside] + ridge[..., None] * np.eye(size)
            x = np.linalg.solve(matrix, right[..., inside, None])[..., 0]
            lower = -0.5 * (right[..., inside] * x).sum(axis=-1)
            better = (x >= 0).all(axis=-1) & (lower < value)
            full = np.zeros_like(right)
            full[..., inside] = x
            best, value = np.where(better[..., None], full, best), np.where(better, lower, value)
    return best


def _best(packing: Packing, symbols: dict[str, FloatArray], error: FloatArray, keep: int) -> FloatArray:
    order = np.argsort(error, axis=0, kind="stable")[:keep]
    chosen: dict[str, FloatArray] = {}
    for known in packing.free:
        value = symbols[known.name]
        pair = known.axes == "MK"
        index = order[:, None, :] if pair else order
        flat = np.moveaxis(np.take_along_axis(value, index, axis=0), -1, 1)
        chosen[known.name] = flat.reshape(flat.shape[0] * flat.shape[1], *flat.shape[2:])
    return packing.pack(chosen).reshape(order.shape[0], error.shape[1], -1)
