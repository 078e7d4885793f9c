"""Whose each row of a layer's input is, and random maps of gradients that keep inner products on the average.

Legend: B sequences of S tokens, G groups (languages, or their halves); a call's rows are U units of n rows each, and
a unit is of one group. Ids of tokens always come as (B, S); activations as (B, S, ...), or, in models with the tokens'
axis in front (Megatron), as (S, B, ...).

A matrix's gradient is `sum_t delta_t a_t^T` over tokens t. Long sides are projected to r numbers (signs over sqrt(r)),
so that a token costs (O + I) r + r^2 multiplications instead of O I; the r x r *core* of each group is then added into
d places with random signs. Where a side is so short that its projection would cost more than it saves, it stays as it
is, and so does everything if d is 0: the products are then exact, and a parameter has places of its own. Projections
depend on the seed of the evaluation, the parameter and the axis alone, so that they are the same on every rank and in
every use of a parameter.

Legend: O outputs, I inputs, d numbers of a sketch, r numbers of a side.
"""

from __future__ import annotations

import math
import zlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from shapleymix_irds.errors import TrackerError

FEWEST = 8  # groups that have room
BLOCK = 32  # rows of one group that are multiplied at a time, where labels change from token to token


@dataclass(frozen=True)
class Units:
    """The rows of one call, as units of one group each.

    Attributes
    ----------
    groups : tensor (U,)
        Group of each unit.
    slots : tensor (U n,), optional
        Which row stands in each place (the number of rows: none); None where rows stand in their order.
    """

    groups: Tensor
    slots: Tensor | None = None


@dataclass
class Labels:
    """The labels of one batch.

    Attributes
    ----------
    groups : tensor (B,) or (B, S)
        Group of each sequence, or of each token, on the model's device.
    count : int
        Number of groups, G.
    length : int, optional
        S; None: as the first call tells.
    tokens_first : bool
        Whether activations have the tokens' axis in front.
    present : int
        Number of groups that occur: the first ones.
    owners, sequences : tensor (rows,), optional, and int
        Where rows were chosen: the sequence that each is of, and the number of sequences.
    """

    groups: Tensor
    count: int
    length: int | None = None
    tokens_first: bool = False
    present: int = 0
    owners: Tensor | None = None
    sequences: int = 0
    blocks: Units = field(init=False)
    id_blocks: Units = field(init=False)

    def __post_init__(self) -> None:
        if self.by_token:
            self.length = self.groups.shape[1]
        self.blocks = self.id_blocks = sorted_units(self._by_row().flatten(), self.count)
        if self.tokens_first and self.by_token:
            self.id_blocks = sorted_units(self.groups.flatten(), self.count)

    @property
    def by_token(self) -> bool:
        """Whether each token has its own label."""
        return self.groups.dim() == 2

    @property
    def batch(self) -> int:
        return self.groups.shape[0]

    def dense(self) -> tuple[Labels, Tensor]:
        """The same labels numbered anew, without groups that do not occur, and which group each number is.

        There is room for a power of two of them, so that a compiled model is not compiled anew for each number.
        """
        present, numbers = torch.unique(self.groups, return_inverse=True)
        room = max(FEWEST, 1 << (len(present) - 1).bit_length())
        return replace(self, groups=numbers, count=min(self.count, room), present=len(present)), present

    @property
    def by_row(self) -> Tensor:
        """The group of each row of an activation (rows, ...) with a row for each token."""
        if self.by_token or self.length is None:
            return self._by_row().flatten()
        return self.groups.repeat(self.length) if self.tokens_first else self.groups.repeat_interleave(self.length)

    def chosen(self, rows: Tensor) -> Labels:
        """The labels of some of the rows, in their order."""
        groups, sequence = self.by_row[rows][:, None], rows // (self.length or 1)
        return Labels(groups, self.count, present=self.present, owners=sequence, sequences=self.batch)

    def learn(self, shape: torch.Size) -> None:
        """Take S from the first call that has sequences and tokens in front."""
        if self.length is None and len(shape) >= 2 and shape[0] == self.batch:
            self.length = shape[1]

    def lead(self, shape: torch.Size, ids: bool = False) -> int:
        """How many axes in front of a shape (without the last axis of features) are axes of the batch; 0: none are.

        `ids` says that it is the shape of ids of tokens, of which sequences are in front in any model.
        """
        if not shape:
            return 0
        if self.length is not None and shape[0] == self.batch * self.length:
            return 1
        if self.tokens_first and not ids:
            return 2 if tuple(shape[:2]) == (self.length, self.batch) else 0
        if shape[0] != self.batch:
            return 0
        if self.by_token:
            return 2 if len(shape) >= 2 and shape[1] == self.length else 0
        return 1

    def units(self, shape: torch.Size, ids: bool = False) -> tuple[Units, int]:
        """The units of rows of this shape, and how many rows there are in each."""
        rows, swapped = math.prod(shape), self.tokens_first and not ids
        if not self.by_token:
            slots = self._sorted(rows) if swapped else None
            return Units(self.groups, slots), rows // self.batch
        each = rows // self.groups.numel()
        if each == 1:
            return (self.id_blocks if ids else self.blocks), BLOCK
        return Units((self.groups if ids else self._by_row()).flatten()), each

    def spread(self, shape: torch.Size) -> tuple[Tensor, int]:
        """The group of each unit of a shape that begins with axes of the batch, and how often all units come."""
        if not self.tokens_first:
            return self.groups.flatten(), 1
        assert self.length is not None
        return (self._by_row().flatten(), 1) if self.by_token else (self.groups, self.length)

    def marks(self, x: Tensor, ids: bool = False) -> Tensor:
        """A number (B,) for the values of each sequence, which no other order of them would give."""
        if self.owners is not None:
            flat = x.reshape(len(x), -1)
        elif not self.tokens_first or ids:
            flat = x.reshape(self.batch, -1)
        else:
            behind = x.numel() // (self.batch * (self.length or 1))
            flat = x.reshape(-1, self.batch, behind).transpose(0, 1).flatten(1)
        flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
        found = flat @ torch.cos(torch.arange(flat.shape[1], device=x.device, dtype=flat.dtype) * 1.7)
        if self.owners is None:
            return found
        return found.new_zeros(self.sequences).index_add_(0, self.owners, found)

    def _by_row(self) -> Tensor:
        """Groups in the order of an activation's rows."""
        return self.groups.t() if self.tokens_first and self.by_token else self.groups

    def _sorted(self, rows: int) -> Tensor:
        """Rows (S, B, n) in the order (B, S, n)."""
        assert self.length is not None
        order = torch.arange(rows, device=self.groups.device).view(self.length, self.batch, -1)
        return order.transpose(0, 1).flatten()


def sorted_units(groups: Tensor, count: int) -> Units:
    """Rows sorted by group, each group padded to whole blocks; the number of blocks is that of the worst case."""
    rows = len(groups)
    total = rows // BLOCK + count
    order = torch.argsort(groups, stable=True)
    sizes = torch.bincount(groups, minlength=count)
    needed = (sizes + BLOCK - 1) // BLOCK
    first = torch.cumsum(needed, 0) - needed
    begin = torch.cumsum(sizes, 0) - sizes
    sorted_groups = groups[order]
    place = first[sorted_groups] * BLOCK + torch.arange(rows, device=groups.device) - begin[sorted_groups]
    slots = torch.full((total * BLOCK,), rows, device=groups.device, dtype=torch.long)
    slots[place] = order
    owner = torch.searchsorted(torch.cumsum(needed, 0), torch.arange(total, device=groups.device), right=True)
    return Units(owner.clamp(max=count - 1), slots)


ROOM = 2**22  # numbers of cores that are held at a time
STACKED = 8  # the least side of a matrix that is one of a stack
LEAST = 1_024  # numbers of a sketch beside others, or all where it would have fewer alone


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

    width: int = 65_536
    side: int = 256

    @property
    def exact(self) -> bool:
        return self.width == 0


@dataclass(frozen=True)
class Layout:
    """The sketches of one step, by their names: which numbers belong to which parameters.

    Parameters of one learning rate share a sketch. Where rates differ, sketches are kept apart, so that each can be
    multiplied by its own rate once that is known; together they are about as long as the one would be.

    Attributes
    ----------
    sizes : mapping of str to int
        Numbers of each trained parameter.
    kinds : mapping of str to int
        Parameters of one number share a sketch; those that are not named have number 0.
    """

    form: Form
    sizes: Mapping[str, int]
    kinds: Mapping[str, int] = field(default_factory=dict)

    def sketch(self, parameter: str) -> str:
        """The sketch that a parameter is in: its own where products are exact."""
        return parameter if self.form.exact else str(self.kinds.get(parameter, 0))

    def numbers(self) -> dict[str, int]:
        """Numbers of each sketch, in one order on every rank."""
        if self.form.exact:
            return dict(sorted(self.sizes.items()))
        names = sorted({self.sketch(parameter) for parameter in self.sizes})
        width = max(self.form.width // len(names), min(self.form.width, LEAST))
        return dict.fromkeys(names, width)

    def factors(self, shares: Mapping[str, float]) -> Tensor | None:
        """What each number of a sketch is multiplied with, given that of each parameter; None where all are 1.

        Raises
        ------
        TrackerError
            If parameters of one sketch have different ones.
        """
        if all(share == 1.0 for share in shares.values()):
            return None
        found: dict[str, tuple[str, float]] = {}
        for parameter in self.sizes:
            share = shares.get(parameter, 1.0)
            first, known = found.setdefault(self.sketch(parameter), (parameter, share))
            if share != known:
                told = f"{first!r} and {parameter!r} had one learning rate when the step began, and now have two"
                hint = "set learning rates before the step's first backward pass, or give the tracker parameter_groups="
                raise TrackerError(told, hint=hint)
        parts = [torch.full((n,), found[name][1], dtype=torch.float64) for name, n in self.numbers().items()]
        return torch.cat(parts)


def shortened(shape: tuple[int, int], form: Form) -> tuple[int, int]:
    """Numbers of both sides of a matrix's core: of all ways to project, the one with the fewest multiplications.

    It follows from the shape alone, so that a tied table has one core. A core is held for each group, so that it may
    have no more than (2 r)^2 numbers.
    """
    if form.exact:
        return shape
    rows, columns = ({n, min(n, form.side)} for n in shape)
    ways = list(product(rows, columns))
    small = [way for way in ways if math.prod(way) <= (2 * form.side) ** 2]
    return min(small, key=lambda way: (multiplications(shape, way), -math.prod(way)))


def multiplications(shape: tuple[int, int], sides: tuple[int, int]) -> int:
    """What a token costs: the projections of both sides, and the core."""
    return sum(n * side for n, side in zip(shape, sides, strict=True) if side != n) + math.prod(sides)


def share_of_step(shapes: Iterable[tuple[int, int]], form: Form) -> float:
    """Multiplications that sketches of these matrices take, over those of a training step (three for each weight)."""
    matrices = list(shapes)
    plain = sum(3 * math.prod(shape) for shape in matrices)
    return sum(multiplications(shape, shortened(shape, form)) for shape in matrices) / max(plain, 1)


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
        see `Units`.
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
    sides = shortened((outputs, right.shape[1]), Form(width, side))
    b = _project(right, seed, key, 1, sides[1]).to(exact)
    if ids is None:
        a = _project(left, seed, key, 0, sides[0]).to(exact)
        core = _core(a, b, groups, slots, count)
    elif sides[0] == outputs:
        core = _core_of_table(ids, b, groups, slots, (count, outputs))
    else:
        a = _rows_of(ids, outputs, seed, (key, sides[0]), exact)
        core = _core(a, b, groups, slots, count)
    return _fold(core.flatten(1), seed, key, width)


def _core(a: Tensor, b: Tensor, groups: Tensor, slots: Tensor | None, count: int) -> Tensor:
    """`sum_rows a^T b` by group, (G, a's numbers, b's numbers)."""
    if slots is not None:
        a, b = (torch.cat([part, part.new_zeros(1, part.shape[1])])[slots] for part in (a, b))
    units = len(groups)
    a, b = (part.reshape(units, -1 if part.numel() else 0, part.shape[1]) for part in (a, b))
    step = max(1, ROOM // (a.shape[2] * b.shape[2]))
    core = a.new_zeros((count, a.shape[2], b.shape[2]))
    for first in range(0, units, step):
        part = slice(first, first + step)
        core.index_add_(0, groups[part], torch.bmm(a[part].transpose(1, 2), b[part]))
    return core


def _core_of_table(ids: Tensor, b: Tensor, groups: Tensor, slots: Tensor | None, shape: tuple[int, int]) -> Tensor:
    """`_core` where a's rows are those of the unit matrix: b's rows are added where ids say."""
    if slots is not None:
        ids, b = torch.cat([ids, ids.new_full((1,), -1)])[slots], torch.cat([b, b.new_zeros(1, b.shape[1])])[slots]
    count, outputs = shape
    group = groups.repeat_interleave(ids.numel() // max(1, len(groups)))
    place = group * outputs + ids.flatten().clamp(min=0)
    rows = b.reshape(-1, b.shape[-1]) * (ids.flatten() >= 0)[:, None]
    return b.new_zeros((count * outputs, b.shape[-1])).index_add_(0, place, rows).view(count, outputs, -1)


def vector_sketch(values: Tensor, groups: Tensor, seed: Tensor, sizes: list[int]) -> Tensor:
    """Sketch by group of the sum of `values` (U, numbers); `sizes`: G, key and d."""
    count, key, width = sizes
    total = values.new_zeros((count, values.shape[1])).index_add_(0, groups, values)
    return _fold(total, seed, key, width)


def is_stack(shape: torch.Size) -> bool:
    """Whether a parameter is a stack of matrices, such as those of experts."""
    return len(shape) == 3 and min(shape[1:]) >= STACKED


def gradient_sketch(grad: Tensor, seed: Tensor, name: str, form: Form) -> Tensor:
    """Sketch (d,) of a whole gradient, the same as its tokens would have given."""
    if is_stack(grad.shape):
        parts = [gradient_sketch(each, seed, f"{name}.{number}", form) for number, each in enumerate(grad)]
        return torch.stack(parts).sum(0) if form.width else torch.cat(parts)
    key = key_of(name)
    exact = grad.to(torch.promote_types(grad.dtype, torch.float32))
    if grad.dim() == 2:
        sides = shortened((grad.shape[0], grad.shape[1]), form)
        exact = _project(exact.T, seed, key, 0, sides[0]).T
        exact = _project(exact, seed, key, 1, sides[1])
    return _fold(exact.reshape(1, -1), seed, key, form.width)[0]


KEPT: OrderedDict[tuple[Any, ...], Tensor] = OrderedDict()  # signs of an evaluation, for its other pass
KEPT_BYTES = 2**28


def _signs(shape: tuple[int, ...], seed: Tensor, what: tuple[int, int], like: Tensor) -> Tensor:
    """Random signs of one seed, parameter and axis; those of the last evaluation are kept."""
    name = (int(seed), what, shape, like.dtype, like.device)
    if name in KEPT:
        return KEPT[name]
    mixed = (name[0] * 6_364_136_223_846_793_005 + what[0] * 1_442_695_041 + what[1] * 97) % 2**63
    generator = torch.Generator(like.device).manual_seed(mixed)
    bits = torch.randint(0, 2, shape, generator=generator, device=like.device, dtype=torch.int8)
    for old in [key for key in KEPT if key[0] != name[0]]:
        del KEPT[old]
    found = bits.to(like.dtype) * 2 - 1
    if sum(kept.nbytes for kept in KEPT.values()) + found.nbytes <= KEPT_BYTES:
        KEPT[name] = found
    return found


def _project(values: Tensor, seed: Tensor, key: int, axis: int, side: int) -> Tensor:
    """values (rows, n) -> (rows, side); as they are where the side stays whole."""
    n = values.shape[-1]
    if side == n:
        return values
    return (values @ _signs((n, side), seed, (key, axis), values)) * side**-0.5


def _rows_of(ids: Tensor, n: int, seed: Tensor, sizes: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """The projections of unit vectors: rows of the matrix of signs, 0 where the id is -1."""
    key, side = sizes
    known = (ids >= 0)[:, None]
    like = torch.empty(0, device=ids.device, dtype=dtype)
    return _signs((n, side), seed, (key, 0), like)[ids.clamp(min=0)] * side**-0.5 * known


def _fold(core: Tensor, seed: Tensor, key: int, width: int) -> Tensor:
    """Sums of d-th numbers of each row, with random signs and from a random place on: (G, numbers) -> (G, d).

    Signs alone make products right on the average; the place spreads the first numbers of short parameters.
    """
    if width == 0:
        return core
    numbers = core.shape[1]
    signed = core * _signs((numbers,), seed, (key, 2), core)
    folds = -(-numbers // width)
    wide = torch.nn.functional.pad(signed, (0, folds * width - numbers)).view(len(core), folds, width).sum(1)
    return wide.roll((key * 2_654_435_761 + int(seed)) % width, 1)


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
