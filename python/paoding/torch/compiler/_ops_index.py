# SPDX-License-Identifier: Apache-2.0
"""Elements by position: gathers, and sums of what goes to a position. A position that is outside is an error of the run,
as PyTorch's is. Where several writes to one position would leave the order open, the op stays PyTorch's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._ops_shape import expanded
from ._table import (
    ANY,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Making,
    NotTaken,
    axis_of,
    cast,
    gradient_of,
    has_elements,
    overloads,
    scalars_as_rows,
    takes,
    wide,
)

aten = torch.ops.aten


def _indices(*values: Value) -> None:
    for each in values:
        if each.dtype not in INTEGERS:
            raise NotTaken('positions that are not integers')


@takes(aten.embedding.default, dtypes=NUMBERS)
def _(m: Making, table: Value, ids: Value, padding: int = -1, by_count: bool = False, sparse: bool = False) -> Value:
    _indices(ids)
    has_elements(table, ids)
    if sparse:
        raise NotTaken('an embedding with a sparse gradient')
    return ops.gather(table, ids, 0)


@takes(aten.embedding_dense_backward.default, dtypes=NUMBERS)
def _(m: Making, grad: Value, ids: Value, rows: int, padding: int, by_count: bool) -> Value:
    _indices(ids)
    has_elements(grad)
    if by_count:
        raise NotTaken('an embedding whose gradient is scaled by frequency')
    made = ops.embedding_grad(cast(ids, DType.i64), cast(grad, wide(m.dtype)), padding if padding >= 0 else -1, rows)
    return cast(made, m.dtype)


@takes(aten.index_select.default, dtypes=ANY)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, index: Value) -> Value:
    _indices(index)
    has_elements(a, index)
    return ops.gather(a, ops.reshape(index, (index.size,)), axis_of(dim, a.ndim))


def _same_but(a: Value, index: Value, axis: int) -> Value:
    """`a` of the index's extents but along the axis."""
    key = tuple(slice(None) if i == axis else slice(0, each) for i, each in enumerate(index.shape))
    return a if all(i == axis or x == y for i, (x, y) in enumerate(zip(a.shape, index.shape))) else a[key]


@takes(aten.gather.default, dtypes=ANY)
def _(m: Making, a: Value, dim: int, index: Value, *, sparse_grad: bool = False) -> Value:
    _indices(index)
    has_elements(a, index)
    rows = a if a.ndim > 0 else ops.reshape(a, (1,))
    places, axis = _of_rank(rows, index), axis_of(dim, rows.ndim)
    return ops.reshape(ops.gather_elements(_same_but(rows, places, axis), places, axis), index.shape)


def _of_rank(a: Value, index: Value) -> Value:
    """PyTorch takes a position without axes beside a row, and a row beside a number."""
    if index.ndim == a.ndim:
        return index
    if index.size == 1 and min(index.ndim, a.ndim) == 0:
        return ops.reshape(index, (1,) * a.ndim)
    raise NotTaken('positions of another rank')


def _scattered(m: Making, a: Value, axis: int, index: Value, updates: Value) -> Value:
    """The sum of the updates at each position of `a`, of which the index may have a part along the other axes."""
    _indices(index)
    has_elements(a, index)
    added = ops.scatter_add_elements(index, updates, a.shape[axis], axis)
    behind = [0 if i == axis else x - y for i, (x, y) in enumerate(zip(a.shape, added.shape))]
    return ops.pad(added, [0] * a.ndim, behind) if any(behind) else added


@takes(aten.scatter_add.default, dtypes=NUMBERS)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, index: Value, source: Value) -> Value:
    index, source = _of_rank(a, index), _of_rank(a, source)
    updates = source[tuple(slice(0, each) for each in index.shape)]
    dtype = wide(a.dtype)
    return cast(cast(a, dtype) + _scattered(m, a, axis_of(dim, a.ndim), index, cast(updates, dtype)), a.dtype)


@takes(aten.scatter.value, dtypes=NUMBERS)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, index: Value, value: Any) -> Value:
    index = _of_rank(a, index)
    counts = _scattered(m, a, axis_of(dim, a.ndim), index, m.full(1, DType.i32, index.shape))
    return ops.select(ops.greater(counts, m.full(0, DType.i32)), m.value(value, a.dtype), a)


_MOST_WRITES = 8  # one after the other; each reads and writes the whole tensor


def _written(m: Making, a: Value, axis: int, index: Value, source: Value) -> Value:
    """`a` with source[.., k, ..] at index[.., k, ..] along the axis, for each k in turn: of equal positions the last one counts,
    as in eager mode on a CPU. Other extents of index and source are those of `a`, or 1."""
    count = index.shape[axis]
    if count > _MOST_WRITES:
        raise NotTaken(f'more than {_MOST_WRITES} writes along an axis, whose order is open')
    index = ops.check_indices(cast(index, DType.i64), a.shape[axis] - 1, what=f'positions of axis {axis}')
    counted = _paoding.arange(0, a.shape[axis], 1, DType.i64, m.graph)
    places = ops.reshape(counted, [a.shape[axis] if i == axis else 1 for i in range(a.ndim)])
    for k in range(count):
        part = tuple(slice(k, k + 1) if i == axis else slice(None) for i in range(a.ndim))
        a = ops.select(ops.equal(places, index[part]), expanded(cast(source[part], a.dtype), a.shape), a)
    return a


@takes(aten.scatter.src, dtypes=ANY)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, index: Value, source: Value) -> Value:
    axis, index, source = axis_of(dim, a.ndim), _of_rank(a, index), _of_rank(a, source)
    _indices(index)
    has_elements(a, index)
    if any(i != axis and x != y for i, (x, y) in enumerate(zip(a.shape, index.shape))):
        raise NotTaken('scatter to a part of the rows')
    return _written(m, a, axis, index, source[tuple(slice(0, each) for each in index.shape)])


@takes(*overloads(aten.index_add, 'default'), dtypes=NUMBERS)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, index: Value, source: Value, *, alpha: Any = 1) -> Value:
    _indices(index)
    has_elements(a, index)
    axis, dtype = axis_of(dim, a.ndim), wide(a.dtype)
    updates = cast(source, dtype)
    if alpha != 1:
        updates = updates * m.value(alpha, dtype)
    index = ops.reshape(index, (index.size,))
    added = _paoding.call('scatter_add', index, updates, axis=axis, extent=a.shape[axis])[0]
    return cast(cast(a, dtype) + added, a.dtype)


# ---- lists of positions ----


class _Lists:
    """Positions along neighbouring axes as one along those axes flattened. Those below 0 count from the end."""

    def __init__(self, m: Making, a: Value, lists: Sequence[Value | None]) -> None:
        given = [i for i, each in enumerate(lists) if each is not None]
        if not given or given != list(range(given[0], given[-1] + 1)):
            raise NotTaken('lists of positions that are not of neighbouring axes')
        self.first, self.last = given[0], given[-1] + 1
        index: Value | None = None
        self.extent = 1
        for axis in given:
            each = lists[axis]
            assert each is not None
            _indices(each)
            count = a.shape[axis]
            each = cast(each, DType.i64)
            position = ops.select(ops.less(each, m.full(0, DType.i64)), each + count, each)
            if len(given) > 1:  # one that is outside would be a position of another row
                position = ops.check_indices(position, count - 1, what=f'positions of axis {axis}')
            index = position if index is None else index * count + position
            self.extent *= count
        assert index is not None
        self.index = index

    def flat(self, a: Value) -> Value:
        return ops.reshape(a, (*a.shape[: self.first], self.extent, *a.shape[self.last :]))


@takes(*overloads(aten.index, 'Tensor'), *overloads(aten._unsafe_index, 'Tensor'), dtypes=ANY)
def _(m: Making, a: Value, lists: Sequence[Value | None]) -> Value:
    has_elements(a, *lists)
    made = _Lists(m, a, lists)
    return ops.gather(made.flat(a), made.index, made.first)


def _masked(m: Making, a: Value, first: int, mask: Any, values: Value, accumulate: bool) -> Value:
    """`a` where the mask of its axes from `first` on is not set, else the one value that all get."""
    behind = a.ndim - first - mask.ndim
    if values.ndim > behind:
        if values.size != 1:
            raise NotTaken('values of their own for each element of a mask')
        values = ops.reshape(values, ())
    values = expanded(cast(values, a.dtype), a.shape)
    is_meant = ops.reshape(mask, (*(1,) * first, *mask.shape, *(1,) * behind))
    return ops.select(is_meant, ops.add(a, values) if accumulate else values, a)


@takes(*overloads(aten.index_put, 'default'), *overloads(aten._unsafe_index_put, 'default'), dtypes=ANY)
def _(m: Making, a: Value, lists: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    has_elements(a, values, *lists)
    masks = [i for i, each in enumerate(lists) if each is not None and each.dtype == DType.bool]
    if len(masks) == 1 and sum(each is not None for each in lists) == 1:
        return _masked(m, a, masks[0], lists[masks[0]], values, accumulate)
    made, dtype = _Lists(m, a, lists), wide(a.dtype)
    shape = (*a.shape[: made.first], *made.index.shape, *a.shape[made.last :])
    if not accumulate:  # a place in a cache is one write
        flat, count = made.flat(a), made.index.size
        along = [count if i == made.first else 1 for i in range(flat.ndim)]
        updates = ops.reshape(expanded(values, shape), (*a.shape[: made.first], count, *a.shape[made.last :]))
        return ops.reshape(_written(m, flat, made.first, ops.reshape(made.index, along), updates), a.shape)
    if a.dtype not in NUMBERS:
        raise NotTaken('a sum of bools')
    updates = expanded(cast(values, dtype), shape)
    added = _paoding.call('scatter_add', made.index, updates, axis=made.first, extent=made.extent)[0]
    return cast(cast(a, dtype) + ops.reshape(added, a.shape), a.dtype)


# ---- edges that are repeated ----


def _repeated(m: Making, x: Value, padding: Sequence[int]) -> Value:
    """Along the last axes, of which PyTorch names the last one first; what is negative is cut off."""
    for i in range(len(padding) // 2):
        axis, before, after = x.ndim - 1 - i, padding[2 * i], padding[2 * i + 1]
        extent = x.shape[axis]
        places = [min(max(at, 0), extent - 1) for at in range(-before, extent + after)]
        x = ops.gather(x, _paoding.constant(places, DType.i64, m.graph), axis)
    return x


@takes(
    *(
        overload
        for axes in (1, 2, 3)
        for overload in overloads(getattr(aten, f'replication_pad{axes}d_backward'), 'default')
    ),
    dtypes=FLOATS,
)
def _(m: Making, grad: Value, x: Value, padding: Sequence[int]) -> Value:
    has_elements(x)
    return gradient_of(lambda each: _repeated(m, each, padding), x, grad)


# ---- losses of classes ----


def _classes(a: Value, target: Value) -> Value:
    """`a` [N, C] or [C], whose last axis has the classes, and which are meant."""
    _indices(target)
    has_elements(a)
    if a.ndim not in (1, 2):
        raise NotTaken('nll_loss over more than two axes')
    return a if a.ndim == 2 else ops.reshape(a, (1, a.shape[0]))


def _picked(m: Making, a: Value, target: Value, weight: Value | None, ignored: int) -> tuple[Value, Value, Value]:
    """Which class each row has, 0 where it does not count, its weight, and whether it counts."""
    target = ops.reshape(cast(target, DType.i64), (a.shape[0],))
    counts = ops.not_equal(target, m.full(ignored, DType.i64))
    target = ops.select(counts, target, m.full(0, DType.i64))
    dtype = wide(a.dtype)
    weights = m.full(1, dtype, (a.shape[0],)) if weight is None else ops.gather(cast(weight, dtype), target, 0)
    return target, ops.select(counts, weights, m.full(0, dtype)), counts


@takes(aten.nll_loss_forward.default, dtypes=FLOATS | {DType.i64})
def _(m: Making, a: Value, target: Value, weight: Value | None, reduction: int, ignored: int) -> list[Value]:
    is_row = a.ndim == 1
    dtypes = m.dtypes
    a = _classes(a, target)
    target, weights, counts = _picked(m, a, target, weight, ignored)
    picked = cast(ops.gather_elements(a, ops.reshape(target, (a.shape[0], 1)), 1), weights.dtype)
    losses = ops.select(counts, -ops.reshape(picked, (a.shape[0],)) * weights, m.full(0, weights.dtype))
    total = weights.sum()
    if reduction == 0:
        losses = ops.reshape(losses, ()) if is_row else losses
        return [cast(losses, dtypes[0]), m.full(0, dtypes[1])]
    loss = losses.sum()
    return [cast(loss if reduction == 2 else loss / total, dtypes[0]), cast(total, dtypes[1])]


@takes(aten.nll_loss_backward.default, dtypes=FLOATS | {DType.i64})
def _(
    m: Making,
    grad: Value,
    a: Value,
    target: Value,
    weight: Value | None,
    reduction: int,
    ignored: int,
    total: Value,
) -> Value:
    shape = a.shape
    a = _classes(a, target)
    target, weights, counts = _picked(m, a, target, weight, ignored)
    dtype = weights.dtype
    scale = cast(grad, dtype)
    if reduction == 1:
        scale = scale / cast(total, dtype)
    of_rows = ops.reshape(-scale * weights, (a.shape[0], 1)) if scale.ndim == 0 else ops.reshape(
        -ops.reshape(scale, (a.shape[0],)) * weights, (a.shape[0], 1)
    )
    column = _paoding.iota((1, a.shape[1]), 1, DType.i64, m.graph)
    is_target = ops.equal(column, ops.reshape(target, (a.shape[0], 1)))
    is_target = ops.logical_and(is_target, ops.reshape(counts, (a.shape[0], 1)))
    return cast(ops.reshape(ops.select(is_target, of_rows, m.full(0, dtype)), shape), m.dtype)
