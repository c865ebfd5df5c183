# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements or make them of nothing: views, parts, joins, padding, counting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._table import ANY, FLOATS, NUMBERS, Making, NotTaken, axes_of, axis_of, cast, check_number, overloads, takes

aten = torch.ops.aten


def _extents(value: Value, shape: Sequence[int]) -> list[int]:
    """The shape, in which -1 stands for whatever is left."""
    if -1 not in shape:
        return list(shape)
    others = math.prod(each for each in shape if each != -1)
    if others == 0:
        raise NotTaken('a shape with -1 of a tensor without elements')
    return [value.size // others if each == -1 else each for each in shape]


@takes(aten.view.default, aten._unsafe_view.default, aten.reshape.default, dtypes=ANY)
def _(m: Making, a: Value, shape: Sequence[int]) -> Value:
    return ops.reshape(a, _extents(a, shape))


@takes(aten.permute.default, dtypes=ANY)
def _(m: Making, a: Value, dims: Sequence[int]) -> Value:
    return a if a.ndim == 0 else a.transpose(tuple(axis_of(each, a.ndim) for each in dims))


@takes(aten.transpose.int, dtypes=ANY)
def _(m: Making, a: Value, first: int, second: int) -> Value:
    return a if a.ndim == 0 else ops.swap_axes(a, axis_of(first, a.ndim), axis_of(second, a.ndim))


@takes(aten.t.default, dtypes=ANY)
def _(m: Making, a: Value) -> Value:
    return a if a.ndim < 2 else ops.swap_axes(a, 0, 1)


@takes(aten.expand.default, dtypes=ANY)
def _(m: Making, a: Value, shape: Sequence[int], *, implicit: bool = False) -> Value:
    return expanded(a, shape)


def expanded(a: Value, shape: Sequence[int]) -> Value:
    missing = len(shape) - a.ndim
    shape = [a.shape[i - missing] if each == -1 else each for i, each in enumerate(shape)]
    if missing > 0:
        a = ops.reshape(a, (*(1,) * missing, *a.shape))
    return a if list(a.shape) == shape else ops.expand(a, shape)


@takes(aten.unsqueeze.default, dtypes=ANY)
def _(m: Making, a: Value, dim: int) -> Value:
    axis = axis_of(dim, a.ndim + 1)
    return ops.reshape(a, (*a.shape[:axis], 1, *a.shape[axis:]))


@takes(*overloads(aten.squeeze, 'default', 'dim', 'dims'), dtypes=ANY)
def _(m: Making, a: Value, dims: Any = None) -> Value:
    axes = range(a.ndim) if dims is None else axes_of(dims, a.ndim) if dims != [] else ()
    return ops.reshape(a, [each for i, each in enumerate(a.shape) if i not in axes or each != 1])


@takes(aten.alias.default, aten.detach.default, dtypes=ANY)
def _(m: Making, a: Value) -> Value:
    return a


def _part(a: Value, axis: int, start: int, end: int, step: int = 1) -> Value:
    key = [slice(None)] * a.ndim
    key[axis] = slice(start, end, step)
    return a[tuple(key)]


def _bounds(extent: int, start: Any, end: Any) -> tuple[int, int]:
    start, stop, _ = slice(start, end).indices(extent)
    return start, max(start, stop)


@takes(aten.slice.Tensor, dtypes=ANY)
def _(m: Making, a: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, a.ndim)
    return _part(a, axis, *_bounds(a.shape[axis], start, end), step)


@takes(aten.select.int, dtypes=ANY)
def _(m: Making, a: Value, dim: int, index: int) -> Value:
    axis = axis_of(dim, a.ndim)
    part = _part(a, axis, index := axis_of(index, a.shape[axis]), index + 1)
    return ops.reshape(part, (*a.shape[:axis], *a.shape[axis + 1 :]))


@takes(*overloads(aten.split_with_sizes, 'default'), dtypes=ANY)
def _(m: Making, a: Value, sizes: Sequence[int], dim: int = 0) -> list[Value]:
    axis, at, made = axis_of(dim, a.ndim), 0, []
    for size in sizes:
        made.append(_part(a, axis, at, at + size))
        at += size
    return made


@takes(*overloads(aten.split, 'Tensor'), dtypes=ANY)
def _(m: Making, a: Value, size: int, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, a.ndim)
    return [_part(a, axis, at, min(at + size, a.shape[axis])) for at in range(0, max(a.shape[axis], 1), max(size, 1))]


@takes(*overloads(aten.unbind, 'int'), dtypes=ANY)
def _(m: Making, a: Value, dim: int = 0) -> list[Value]:
    axis = axis_of(dim, a.ndim)
    rest = (*a.shape[:axis], *a.shape[axis + 1 :])
    return [ops.reshape(_part(a, axis, i, i + 1), rest) for i in range(a.shape[axis])]


# ---- joins ----


@takes(aten.cat.default, dtypes=ANY)
def _(m: Making, tensors: Sequence[Value], dim: int = 0) -> Value:
    # A vector without elements goes with tensors of any rank, for the sake of old programs.
    given = [each for each in tensors if each.shape != (0,)] or list(tensors)[:1]
    given = [cast(each, m.dtype) for each in given]
    return given[0] if len(given) == 1 else ops.concat(given, axis_of(dim, given[0].ndim))


@takes(*overloads(aten.stack, 'default'), dtypes=ANY)
def _(m: Making, tensors: Sequence[Value], dim: int = 0) -> Value:
    axis = axis_of(dim, tensors[0].ndim + 1)
    return ops.stack([cast(each, m.dtype) for each in tensors], axis)


@takes(aten.slice_scatter.default, dtypes=ANY)
def _(m: Making, a: Value, src: Value, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Value:
    axis = axis_of(dim, a.ndim)
    first, last = _bounds(a.shape[axis], start, end)
    if step != 1 and last > first:
        return _strided(m, a, axis, first, step, src)
    return _joined(a, axis, first, cast(expanded(src, (*a.shape[:axis], last - first, *a.shape[axis + 1 :])), a.dtype))


@takes(aten.select_scatter.default, dtypes=ANY)
def _(m: Making, a: Value, src: Value, dim: int, index: int) -> Value:
    axis = axis_of(dim, a.ndim)
    index = axis_of(index, a.shape[axis])
    return _joined(a, axis, index, cast(ops.reshape(src, (*a.shape[:axis], 1, *a.shape[axis + 1 :])), a.dtype))


def _strided(m: Making, a: Value, axis: int, first: int, step: int, src: Value) -> Value:
    """`a` with `src` at positions first, first + step, .."""
    extent, count = a.shape[axis], src.shape[axis]
    if a.dtype not in NUMBERS or src.shape != (*a.shape[:axis], count, *a.shape[axis + 1 :]) or a.size == 0:
        raise NotTaken('slice_scatter with a step, of bools or with a source that is stretched')
    before, after, between = ([0] * a.ndim for _ in range(3))
    before[axis], between[axis] = first, step - 1
    after[axis] = extent - first - ((count - 1) * step + 1)
    spread = ops.pad(cast(src, a.dtype), before, after, 0, between)
    shape = [1] * a.ndim
    shape[axis] = extent
    offset = _paoding.iota(shape, axis, DType.i64, m.graph) - first
    number = ops.floor_divide(offset, m.full(step, DType.i64))
    is_first = ops.logical_and(ops.equal(number * step, offset), ops.greater_equal(offset, m.full(0, DType.i64)))
    return ops.select(ops.logical_and(is_first, ops.less(number, m.full(count, DType.i64))), spread, a)


def _joined(a: Value, axis: int, at: int, part: Value) -> Value:
    """`a` with a part of it replaced, from `at` on."""
    end = at + part.shape[axis]
    pieces = [_part(a, axis, 0, at), part, _part(a, axis, end, a.shape[axis])]
    pieces = [each for each in pieces if each.shape[axis] > 0]
    if not pieces:
        return a
    return pieces[0] if len(pieces) == 1 else ops.concat(pieces, axis)


@takes(aten.constant_pad_nd.default, dtypes=NUMBERS)
def _(m: Making, a: Value, padding: Sequence[int], value: Any = 0) -> Value:
    check_number(value, a.dtype)
    before, after, key = [0] * a.ndim, [0] * a.ndim, [slice(None)] * a.ndim
    for i in range(len(padding) // 2):
        axis, left, right = a.ndim - 1 - i, padding[2 * i], padding[2 * i + 1]
        before[axis], after[axis] = max(left, 0), max(right, 0)
        key[axis] = slice(max(-left, 0), a.shape[axis] - max(-right, 0))
    return ops.pad(a[tuple(key)] if a.ndim > 0 else a, before, after, value)


@takes(aten.flip.default, dtypes=ANY)
def _(m: Making, a: Value, dims: Sequence[int]) -> Value:
    return ops.flip(a, axes_of(dims, a.ndim)) if len(dims) > 0 and a.ndim > 0 else a


@takes(aten.repeat.default, dtypes=ANY)
def _(m: Making, a: Value, times: Sequence[int]) -> Value:
    a = ops.reshape(a, (*(1,) * (len(times) - a.ndim), *a.shape))
    if 0 in times:
        return m.full(0, a.dtype, [each * count for each, count in zip(a.shape, times)])
    return ops.tile(a, times) if a.ndim > 0 else a


@takes(*overloads(aten.roll, 'default'), dtypes=ANY)
def _(m: Making, a: Value, shifts: Sequence[int], dims: Sequence[int] = ()) -> Value:
    if len(dims) != len(shifts) or a.size == 0:
        raise NotTaken('roll of all elements')
    for shift, dim in zip(shifts, dims):
        axis = axis_of(dim, a.ndim)
        a = ops.roll(a, shift % a.shape[axis], axis)
    return a


# ---- of nothing ----


def _filled(m: Making, shape: Sequence[int], value: Any, device: Any) -> Value:
    if m.is_elsewhere(device):
        raise NotTaken('a tensor of another device')
    check_number(value, m.dtype)
    return m.full(bool(value) if m.dtype == DType.bool else value, m.dtype, shape)


@takes(aten.full.default, dtypes=NUMBERS | {DType.bool})
def _(m: Making, shape: Sequence[int], value: Any, *, device: Any = None, **_: Any) -> Value:
    return _filled(m, shape, value, device)


@takes(aten.full_like.default, dtypes=ANY)
def _(m: Making, a: Value, value: Any, *, device: Any = None, **_: Any) -> Value:
    return _filled(m, a.shape, value, device)


@takes(
    *overloads(aten.empty, 'memory_format'),
    *overloads(aten.new_empty, 'default'),
    *overloads(aten.empty_like, 'default'),
    *overloads(aten.empty_permuted, 'default'),
    *overloads(aten.empty_strided, 'default'),
    dtypes=NUMBERS | {DType.bool},
)
def _(m: Making, *given: Any, device: Any = None, pin_memory: Any = None, **_: Any) -> Value:
    """Nobody knows its elements: they are 0."""
    if pin_memory:
        raise NotTaken('pinned memory')
    shape = given[1] if len(given) > 1 and isinstance(given[0], Value) else given[0]
    return _filled(m, shape.shape if isinstance(shape, Value) else shape, 0, device)


@takes(aten.scalar_tensor.default, dtypes=NUMBERS | {DType.bool})
def _(m: Making, value: Any, *, device: Any = None, **_: Any) -> Value:
    return _filled(m, (), value, device)


@takes(*overloads(aten.fill, 'Scalar'), dtypes=ANY)
def _(m: Making, a: Value, value: Any) -> Value:
    return _filled(m, a.shape, value, None)


@takes(aten.arange.start_step, dtypes=NUMBERS)
def _(m: Making, start: Any, end: Any, step: Any = 1, *, device: Any = None, **_: Any) -> Value:
    return _counted(m, start, end, step, device)


@takes(*overloads(torch.ops.prims.iota, 'default'), dtypes=NUMBERS)
def _(m: Making, length: int, *, start: int, step: int, device: Any = None, **_: Any) -> Value:
    return _counted(m, start, start + length * step, step, device)


def _counted(m: Making, start: Any, end: Any, step: Any, device: Any) -> Value:
    if m.is_elsewhere(device):
        raise NotTaken('a tensor of another device')
    if not all(isinstance(each, (int, float)) and each == int(each) for each in (start, end, step)):
        raise NotTaken('arange of numbers that are not whole')
    start, end, step = int(start), int(end), int(step)
    count = max(0, -(-(end - start) // step))
    if m.dtype in FLOATS and max(abs(start), abs(end)) > 1 << 24:
        raise NotTaken('arange of large floats')
    if count == 0:
        return m.full(0, m.dtype, (0,))
    made = _paoding.arange(start, start + count * step, step, DType.i64, m.graph)
    return cast(made, m.dtype)
