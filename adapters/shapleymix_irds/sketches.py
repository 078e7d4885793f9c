"""Whose each row of a layer's input is, and sketches of gradients that keep inner products on the average.

Legend: B sequences of S tokens, G groups (languages, or their halves); a call's rows are U units of n rows each, and
a unit is of one group. Ids of tokens always come as (B, S); activations as (B, S, ...), or, in models with the tokens'
axis in front (Megatron), as (S, B, ...). A matrix has O outputs, I inputs, and r columns of M.

A matrix's gradient is `sum_t delta_t a_t^T` over tokens t. Its axis of inputs (I) is multiplied with a matrix M (I, r),
so that a token costs (O + I) r multiplications instead of O I. With random signs over sqrt(r) products of sketches are
right on the average, since `E[M M^T]` is the unit matrix. `with_basis` makes most columns a basis Q of what rows of
inputs span, where products are exact, and leaves signs for the rest, `(1 - Q Q^T) S`: still right on the average, with
a small part of the error. Where a language's sketches would have more numbers than `projections_of` allows, the axis of
outputs is folded: rows are added up in a few sums, each with a random sign, which is right on the average, too. Errors
of many matrices average out in part, so that a large model needs fewer numbers for each.

A matrix that is too small to gain from M, or a table within its share of numbers, is multiplied with none, and where
r is 0 products are exact. M and the signs
of a parameter are the same on every rank and in all of its uses.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import torch
from torch import Tensor

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
        Number of groups that occur, the first ones, once `dense` has found them.
    owners, sequences : tensor (rows,), optional, and int
        Where rows were chosen: the sequence that each is of, and the number of sequences.
    whole, blocks : Units
        Of the rows of an activation, in their order, and sorted.
    """

    groups: Tensor
    count: int
    length: int | None = None
    tokens_first: bool = False
    present: int = 0
    owners: Tensor | None = None
    sequences: int = 0
    whole: Units = field(init=False)
    blocks: Units = field(init=False)

    def __post_init__(self) -> None:
        if self.tokens_first and self.length and not self.by_token:
            self.groups = self.groups[:, None].expand(-1, self.length)
        if self.by_token:
            self.length = self.groups.shape[1]
        self.whole, self.blocks = Units(self.ordered), sorted_units(self.ordered, self.count)

    @property
    def by_token(self) -> bool:
        """Whether each token has its own label."""
        return self.groups.dim() == 2

    @property
    def batch(self) -> int:
        """B; a number that is held would be one more symbol to the compiler, which it cannot trace back."""
        return self.groups.shape[0]

    def dense(self) -> tuple[Labels, Tensor]:
        """The same labels numbered anew, without groups that do not occur, and which group each number is.

        There is room for a power of two of them, so that a compiled model is not compiled anew for each number.
        """
        present, numbers = torch.unique(self.groups, return_inverse=True)
        room = max(FEWEST, 1 << (len(present) - 1).bit_length())
        return replace(self, groups=numbers, count=min(self.count, room), present=len(present)), present

    def join(self) -> None:
        """Make one unit of neighbours of one group, as many as all groups have: a few large products are fast."""
        lengths = torch.unique_consecutive(self.ordered, return_counts=True)[1].tolist()
        self.whole = Units(self.ordered[:: math.gcd(*lengths)])

    def of_rows(self, count: int) -> Tensor:
        """The group of each of so many rows, in the order of the batch."""
        return self.ordered.repeat_interleave(count // len(self.ordered))

    def chosen(self, rows: Tensor) -> Labels:
        """The labels of some of the rows with one for each token, in their order."""
        sequence = rows % self.batch if self.tokens_first else rows // (self.length or 1)
        groups = self.of_rows(self.batch * (self.length or 1))[rows][:, None]
        return Labels(groups, self.count, present=self.present, owners=sequence, sequences=self.batch)

    def infer_length(self, x: Tensor) -> None:
        """Take S from the first call that has sequences and tokens in front."""
        shape = x.shape[:-1] if x.is_floating_point() else x.shape
        if len(shape) >= 2 and shape[0] == self.batch:
            self.length = shape[1]
            if self.tokens_first:
                self.__post_init__()

    def lead(self, shape: torch.Size, ids: bool = False) -> int:
        """How many axes in front of a shape (without the last axis of features) are axes of the batch; 0: none are.

        Tokens may have several rows each, such as one for each head, in their order: that of sequences is seen by
        changing one (`ModelCoverage.look_apart`), that of tokens is not, so that tokens with labels of their own have
        one. `ids` says that it is the shape of ids of tokens, of which sequences are in front in any model.
        """
        if not shape:
            return 0
        rows = self.batch * (self.length or 0)
        if rows and (shape[0] == rows or (not self.by_token and shape[0] > rows and shape[0] % rows == 0)):
            return 1
        if self.tokens_first and not ids:
            return 2 if tuple(shape[:2]) == (self.length, self.batch) else 0
        if shape[0] != self.batch:
            return 0
        if self.by_token:
            return 2 if len(shape) >= 2 and shape[1] == self.length else 0
        return 1

    def units(self, x: Tensor) -> Units:
        """The units of the rows of an activation, or of ids of tokens."""
        if not x.is_floating_point():
            return Units(self.groups.flatten())
        return self.blocks if self.by_token and x.numel() // x.shape[-1] == len(self.ordered) else self.whole

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

    @property
    def ordered(self) -> Tensor:
        """The group of each unit of an activation, in the order of its rows."""
        return (self.groups.t() if self.tokens_first and self.by_token else self.groups).flatten()


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


ROOM = 2**20  # numbers that are made at a time
NUMBERS = 800_000  # of the sketches of one language, in all, at most
FEW_NUMBERS = 2**17  # which are not cut where all languages have more than the model
STACKED = 8  # the least side of a matrix that is one of a stack
SIGNS = 4  # a basis leaves one of so many columns to signs
NARROW = 16  # columns that a product with a few takes longer for, in time (measured with `schedule.CALLS`)
LOGIT = 60  # multiplications that take as long as the loss does for one word of the vocabulary (measured likewise)
MatrixRole = Literal["matrix", "first", "output", "table"]
# times r: what the first layers are given has a direction for each word, of others a few directions are nearly all
COLUMNS: dict[MatrixRole, int] = {"matrix": 1, "first": 8, "output": 4, "table": 16}
SHARES: dict[MatrixRole, int] = {"matrix": 1, "first": 4, "output": 16, "table": 4}  # of these numbers


@dataclass
class Projection:
    """The sketch of one parameter's gradient, (r, O) by language, or (r, rows) where it is folded; of a table, turned.

    Attributes
    ----------
    shape : tuple of int
        Of the parameter, or of its transpose.
    columns, rows : int
        r, and to how many rows outputs are folded; 0: that axis stays as it is.
    turned, by_word : bool
        Whether the parameter has its inputs in front, and whether its sketch has a row for each sum, as a table is
        added up, and not a column.
    matrix, signs : Tensor, optional
        M (I, r), and the signs of outputs (O,), once they are drawn.
    """

    shape: tuple[int, ...]
    columns: int = 0
    rows: int = 0
    turned: bool = False
    by_word: bool = False
    matrix: Tensor | None = None
    signs: Tensor | None = None

    @cached_property
    def outputs(self) -> int:
        """O; all of a parameter that is no matrix."""
        return self.shape[-2] if is_matrix(self.shape) else math.prod(self.shape)

    @cached_property
    def numbers(self) -> int:
        """Numbers of a sketch."""
        whole = math.prod(self.shape) // max(1, self.outputs) * (self.rows or self.outputs)
        return whole // self.shape[-1] * self.columns if self.columns else whole

    def draw(self, draw: torch.Generator, dtype: torch.dtype) -> None:
        """Take new signs, and room for a new M."""
        if self.columns:  # which lie one behind the other, by which products are faster
            self.matrix = torch.zeros((self.columns, self.shape[-1]), dtype=dtype, device=draw.device).T
        if self.rows:
            self.signs = signs((self.outputs,), draw, dtype)

    def sketch(self, grads: Tensor) -> Tensor:
        """Sketches (..., numbers) of whole gradients of the parameter, the same as their tokens would have given."""
        grads = (grads.mT if self.turned else grads).to(torch.promote_types(grads.dtype, torch.float32))
        before = grads.shape[: grads.dim() - len(self.shape)]
        if not is_matrix(self.shape):
            return self.folded(grads.reshape(*before, self.outputs))
        return self.flat(self.folded(self.projected(grads).mT)).reshape(*before, self.numbers)

    def projected(self, rows: Tensor) -> Tensor:
        """Rows of inputs times M, (..., r); as they are, (..., I), where there is none."""
        if self.matrix is None:
            return rows
        # few rows times many are faster than many times few
        few = self.matrix.to(rows.dtype).mT @ rows.reshape(-1, rows.shape[-1]).mT
        return few.mT.view(*rows.shape[:-1], -1)

    def flat(self, sums: Tensor) -> Tensor:
        """Sums (..., r, rows) in the order of the sketch."""
        return (sums.mT if self.by_word else sums).flatten(-2)

    def folded(self, values: Tensor) -> Tensor:
        """Values (..., O) times their signs, added up in so many sums, (..., rows)."""
        if self.signs is None:
            return values
        values, whole = values * self.signs.to(values.dtype), values.shape[-1] // self.rows * self.rows
        sums = values[..., :whole].unflatten(-1, (-1, self.rows)).sum(-2)
        sums[..., : values.shape[-1] - whole] += values[..., whole:]
        return sums


def projections_of(
    shapes: Mapping[str, tuple[int, ...]], uses: Mapping[str, MatrixRole], columns: int, languages: int
) -> dict[str, Projection]:
    """The projections of a model's parameters, before they are drawn; those that are not told of are used as matrices.

    Parameters
    ----------
    columns : int
        r; 0: products are exact.
    languages : int
        K: the sketches of all have no more numbers than the model, or `FEW_NUMBERS` each.
    """
    left = min(NUMBERS, max(FEW_NUMBERS, sum(map(math.prod, shapes.values())) / languages))
    roles: dict[str, MatrixRole] = {name: uses.get(name, "matrix") for name in shapes}
    found = {name: projection_of(shape, columns, roles[name]) for name, shape in shapes.items()}
    waiting = dict.fromkeys(shapes, 0.0)
    # those that need less than their share leave the rest to the others
    while waiting and columns:
        whole = sum(SHARES[roles[name]] for name in waiting)
        shares = {name: left / whole * SHARES[roles[name]] for name in waiting}
        waiting = {name: share for name, share in shares.items() if found[name].numbers > share}
        if len(waiting) == len(shares):
            folded = {n: projection_of(shapes[n], columns, roles[n], each) for n, each in shares.items()}
            return found | folded
        left -= sum(found[name].numbers for name in shares.keys() - waiting.keys())
    return found


def projection_of(
    shape: tuple[int, ...], columns: int, use: MatrixRole = "matrix", most: float = math.inf
) -> Projection:
    """The projection of one parameter, of not many more than so many numbers."""
    r, numbers = columns * COLUMNS[use], math.prod(shape)
    gains = is_matrix(shape) and r * (shape[-1] + shape[-2]) < shape[-1] * shape[-2]
    table = use == "table"
    projection = Projection(shape, r if gains and not (table and numbers <= most) else 0, by_word=table)
    if projection.numbers <= most:
        return projection
    # an odd number, so that no two heads of attention are added up place by place, whose rows are alike
    return replace(projection, rows=max(0, int(projection.outputs * most / projection.numbers) - 1) | 1)


def basis_columns(columns: int) -> int:
    """How many columns of M are a basis."""
    return columns - max(1, columns // SIGNS)


def with_basis(spanned: Tensor, given: Tensor) -> Tensor:
    """M (..., I, r): its first columns are a basis of what `spanned` (..., I, r - s) has, others signs on the rest.

    Where `spanned` is 0, all are the signs that are given, (..., I, r).
    """
    r, s = given.shape[-1], given.shape[-1] - spanned.shape[-1]
    basis = torch.linalg.qr(spanned).Q
    rest = given[..., -s:] * s**-0.5
    drawn = torch.cat([basis, rest - basis @ (basis.mT @ rest)], -1)
    return torch.where((spanned != 0).any(-1, keepdim=True).any(-2, keepdim=True), drawn, given * r**-0.5)


def signs(shape: tuple[int, ...], draw: torch.Generator, dtype: torch.dtype) -> Tensor:
    """Random signs."""
    return torch.randint(0, 2, shape, generator=draw, device=draw.device, dtype=torch.int8).to(dtype) * 2 - 1


def share_of_step(projections: Iterable[Projection]) -> float:
    """Multiplications that sketches of these take, over those of a training step: three for each weight, and the loss,
    whose words are the most outputs of a matrix.

    Few columns count as `NARROW` more, since they take so much longer; a table's rows are only added up.
    """
    matrices = [(each.columns, each.shape) for each in projections if len(each.shape) == 2 and not each.by_word]
    costs = [(columns + NARROW) * sum(shape) if columns else math.prod(shape) for columns, shape in matrices]
    words = max((shape[0] for _, shape in matrices), default=1)
    return sum(costs) / (3 * sum(math.prod(shape) for _, shape in matrices) + LOGIT * words)


def is_stack(shape: tuple[int, ...]) -> bool:
    """Whether a parameter is a stack of matrices, such as those of experts."""
    return len(shape) == 3 and min(shape[1:]) >= STACKED


def is_matrix(shape: tuple[int, ...]) -> bool:
    """Whether a parameter is a matrix, or a stack of them."""
    return len(shape) == 2 or is_stack(shape)


def products(sketches: Tensor, met: Tensor | None) -> Tensor:
    """Sketches (..., numbers), or their products (..., K) with those that they meet, (K, numbers)."""
    return sketches if met is None else (met @ sketches.to(met.dtype).mT).mT


def by_group(parts: Tensor, groups: Tensor, count: int) -> Tensor:
    """Sums by group, (count, numbers), of what units give, (U, numbers)."""
    return parts.new_zeros((count, parts.shape[1])).index_add_(0, groups, parts)


def matrix_sketch(
    left: Tensor, right: Tensor, units: Units, count: int, projection: Projection, met: Tensor | None = None
) -> Tensor:
    """Sketch by group, (count, numbers), of `sum_rows left^T right`, or its products with `met`, (count, K).

    Parameters
    ----------
    left, right : tensor (rows, O) or ids (rows,), and tensor (rows, r), or (rows, I) where there is no M
        Ids stand for rows of the unit matrix; -1 for a row of zeros.
    """
    exact = torch.promote_types(right.dtype, torch.float32)
    if left.dim() == 1:
        right, words, rows = right.to(exact), left.clamp(min=0), projection.rows or projection.outputs
        right = right if projection.signs is None else right * projection.signs.to(exact)[words, None]
        group = units.groups.repeat_interleave(len(left) // max(1, len(units.groups)))
        known, table = right * (left >= 0)[:, None], right.new_zeros((count * rows, right.shape[1]))
        table = table.index_add_(0, group * rows + words % rows, known).view(count, rows, -1)
        return products(projection.flat(table.mT), met)
    # bfloat16 is multiplied as it is, since a copy of an output layer's gradient is larger than the model
    kind = exact if left.dtype != right.dtype or left.dtype != torch.bfloat16 else left.dtype
    many, places = len(units.groups), units.slots
    if places is not None:
        right = torch.cat([right, right.new_zeros(1, right.shape[1])])[places]
        places = places.clamp(max=max(0, len(left) - 1)).view(many, -1)  # any row, times a row of zeros
    right = right.to(kind).view(many, len(right) // max(1, many), right.shape[1])
    copied = right.shape[1] if places is not None or kind != left.dtype else 0
    step = max(1, ROOM // (left.shape[1] * max(copied, right.shape[2])))
    found: Tensor | None = None
    for first in range(0, max(1, many), step):
        piece = slice(first, first + step)
        rows = left.view(*right.shape[:2], -1)[piece] if places is None else left[places[piece]]
        core = projection.folded(torch.bmm(right[piece].mT, rows.to(kind)).to(exact))
        more = products(projection.flat(core), met)
        found = more.new_zeros((count, more.shape[1])) if found is None else found
        found.index_add_(0, units.groups[piece], more)
    assert found is not None
    return found
