"""Sketches: random maps of gradients into d numbers, which keep inner products on the average.

A matrix's gradient is `sum_t delta_t a_t^T` over tokens t. Each long side is projected to r numbers (signs over
sqrt(r)), so that a token costs (O + I) r multiplications instead of O I; the r x r *core* of each group is then added
into d places with random signs. Sides of r numbers or fewer stay as they are, and so does everything if d is None: the
products are then exact, and a parameter has places of its own. Projections depend on the seed of the evaluation, the
parameter and the axis alone, so that they are the same on every rank and in every use of a parameter.

Legend: G groups, U units of n rows, O outputs, I inputs, d numbers of a sketch, r numbers of a side.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

ROOM = 2**22  # numbers of cores that are held at a time


@dataclass(frozen=True)
class Form:
    """How gradients are sketched.

    Attributes
    ----------
    width : int
        d; 0: exact.
    side : int
        r.
    """

    width: int = 16_384
    side: int = 64

    @property
    def exact(self) -> bool:
        return self.width == 0


def key_of(name: str) -> int:
    """A parameter's number, the same on every rank and after every restart."""
    return zlib.crc32(name.encode())


def matrix_sketch(
    left: Tensor, right: Tensor, groups: Tensor, slots: Tensor | None, seed: Tensor, sizes: list[int]
) -> Tensor:
    """Sketch by group of `sum_rows left^T right`.

    Parameters
    ----------
    left, right : tensor (rows, O) or ids (rows,), and tensor (rows, I)
        Ids stand for rows of the unit matrix; -1 for a row of zeros.
    groups, slots : tensor
        See `rows.Units`.
    seed : tensor ()
        Seed of the evaluation, int64 on the CPU.
    sizes : list of int
        G, key of the parameter, d, r, and O.

    Returns
    -------
    Tensor
        (G, d), or (G, O I) where d is 0.
    """
    count, key, width, side, outputs = sizes
    exact = torch.promote_types(right.dtype, torch.float32)
    ids = left if left.dim() == 1 else None
    a = _rows_of(ids, outputs, seed, (key, width, side), exact) if ids is not None else left
    a = (_project(a, seed, key, 0, width, side) if ids is None else a).to(exact)
    b = _project(right, seed, key, 1, width, side).to(exact)
    if slots is not None:
        a, b = (torch.cat([part, part.new_zeros(1, part.shape[1])])[slots] for part in (a, b))
    units = len(groups)
    a, b = (part.reshape(units, -1 if part.numel() else 0, part.shape[1]) for part in (a, b))
    step = max(1, ROOM // (a.shape[2] * b.shape[2]))
    core = a.new_zeros((count, a.shape[2], b.shape[2]))
    for first in range(0, units, step):
        part = slice(first, first + step)
        core.index_add_(0, groups[part], torch.bmm(a[part].transpose(1, 2), b[part]))
    return _fold(core.flatten(1), seed, key, width)


def vector_sketch(values: Tensor, groups: Tensor, seed: Tensor, sizes: list[int]) -> Tensor:
    """Sketch by group of the sum of `values` (U, numbers); `sizes`: G, key and d."""
    count, key, width = sizes
    total = values.new_zeros((count, values.shape[1])).index_add_(0, groups, values)
    return _fold(total, seed, key, width)


def gradient_sketch(grad: Tensor, seed: Tensor, key: int, form: Form) -> Tensor:
    """Sketch (d,) of a whole gradient, the same as its tokens would have given."""
    exact = grad.to(torch.promote_types(grad.dtype, torch.float32))
    if grad.dim() == 2:
        exact = _project(exact.T, seed, key, 0, form.width, form.side).T
        exact = _project(exact, seed, key, 1, form.width, form.side)
    return _fold(exact.reshape(1, -1), seed, key, form.width)[0]


def _generator(seed: Tensor, key: int, what: int, device: torch.device) -> torch.Generator:
    mixed = (int(seed) * 6_364_136_223_846_793_005 + key * 1_442_695_041 + what * 97) % 2**63
    return torch.Generator(device).manual_seed(mixed)


def _signs(shape: tuple[int, ...], generator: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Random signs; bytes are eight at a time, since drawing costs more than unpacking."""
    return torch.randint(0, 2, shape, generator=generator, device=generator.device, dtype=torch.int8).to(dtype) * 2 - 1


def _matrix(n: int, seed: Tensor, key: int, axis: int, side: int, like: Tensor) -> Tensor:
    """Signs (n, r), which still have to be divided by sqrt(r)."""
    return _signs((n, side), _generator(seed, key, axis, like.device), like.dtype)


def _project(values: Tensor, seed: Tensor, key: int, axis: int, width: int, side: int) -> Tensor:
    """values (rows, n) -> (rows, r), or as they are where the side is short or everything is exact."""
    n = values.shape[-1]
    if width == 0 or n <= side:
        return values
    return (values @ _matrix(n, seed, key, axis, side, values)) * side**-0.5


def _rows_of(ids: Tensor, n: int, seed: Tensor, sizes: tuple[int, int, int], dtype: torch.dtype) -> Tensor:
    """The projections of unit vectors: rows of the matrix of signs, 0 where the id is -1."""
    key, width, side = sizes
    known = (ids >= 0)[:, None]
    if width == 0 or n <= side:
        return torch.nn.functional.one_hot(ids.clamp(min=0), n).to(dtype) * known
    like = torch.empty(0, device=ids.device, dtype=dtype)
    return _matrix(n, seed, key, 0, side, like)[ids.clamp(min=0)] * side**-0.5 * known


def _fold(core: Tensor, seed: Tensor, key: int, width: int) -> Tensor:
    """Count sketch of each row: (G, numbers) -> (G, d)."""
    if width == 0:
        return core
    generator = _generator(seed, key, 2, core.device)
    numbers = core.shape[1]
    place = torch.randint(0, width, (numbers,), generator=generator, device=core.device)
    signed = core * _signs((numbers,), generator, core.dtype)
    return core.new_zeros((len(core), width)).index_add_(1, place, signed)


def _matrix_shape(
    left: Tensor, right: Tensor, groups: Tensor, slots: Tensor | None, seed: Tensor, sizes: list[int]
) -> Tensor:
    numbers = sizes[2] or sizes[4] * right.shape[1]
    return right.new_empty((sizes[0], numbers), dtype=torch.promote_types(right.dtype, torch.float32))


def _vector_shape(values: Tensor, groups: Tensor, seed: Tensor, sizes: list[int]) -> Tensor:
    return values.new_empty((sizes[0], sizes[2] or values.shape[1]))


def _register(function: Callable[..., Any], shapes: Callable[..., Any]) -> Any:
    """The function as one opaque operator, for compilers: its graph does not depend on labels or seeds."""
    operator = torch.library.custom_op(f"shapleymix_irds::{function.__name__}", function, mutates_args=())
    operator.register_fake(shapes)
    return operator


OPERATORS = {
    matrix_sketch: _register(matrix_sketch, _matrix_shape),
    vector_sketch: _register(vector_sketch, _vector_shape),
}


def call(function: Callable[..., Tensor], *operands: Any) -> Tensor:
    """Run the function, or its operator where a compiler traces (dispatching to an operator costs time)."""
    if torch.compiler.is_compiling():
        return OPERATORS[function](*operands)
    with torch._C.DisableTorchFunction():  # what happens inside is no call of the model's
        return function(*operands)
