# SPDX-License-Identifier: Apache-2.0
"""Sums, means, extremes, running sums, orders, softmax."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import ops
from ..._paoding import DType, Value
from ._ops_elementwise import as_bool
from ._table import (
    ANY,
    FLOATS,
    NUMBERS,
    Making,
    NotTaken,
    axes_of,
    axis_of,
    cast,
    has_elements,
    overloads,
    scalars_as_rows,
    takes,
    wide,
)

aten = torch.ops.aten


def _summed(m: Making, a: Value, dims: Any, keepdim: bool) -> Value:
    a = cast(a, wide(m.dtype))
    if a.ndim > 0:
        a = a.sum(axes_of(dims, a.ndim), keepdim)
    return cast(a, m.dtype)


@takes(aten.sum.default)
def _(m: Making, a: Value, *, dtype: Any = None) -> Value:
    return _summed(m, a, None, False)


@takes(aten.sum.dim_IntList)
def _(m: Making, a: Value, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _summed(m, a, dims, keepdim)


def _averaged(m: Making, a: Value, dims: Any, keepdim: bool) -> Value:
    has_elements(a)
    a = cast(a, wide(m.dtype))
    if a.ndim > 0:
        a = a.mean(axes_of(dims, a.ndim), keepdim)
    return cast(a, m.dtype)


@takes(aten.mean.default)
def _(m: Making, a: Value, *, dtype: Any = None) -> Value:
    return _averaged(m, a, None, False)


@takes(aten.mean.dim)
def _(m: Making, a: Value, dims: Any, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return _averaged(m, a, dims, keepdim)


def _variance(m: Making, a: Value, dims: Any, correction: Any, keepdim: bool) -> tuple[Value, Value]:
    """Variance and mean, of differences from the mean."""
    axes = axes_of(dims, a.ndim)
    count = 1
    for axis in axes:
        count *= a.shape[axis]
    correction = 1 if correction is None else correction
    if a.ndim == 0 or count <= correction:
        raise NotTaken('a variance of too few elements')
    a = cast(a, wide(m.dtype))
    mean = a.mean(axes, True)
    difference = a - mean
    variance = (difference * difference).sum(axes, keepdim) / m.full(count - correction, a.dtype)
    return cast(variance, m.dtype), cast(mean if keepdim else ops.squeeze(mean, axes), m.dtype)


@takes(aten.var.correction, dtypes=FLOATS)
def _(m: Making, a: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Value:
    return _variance(m, a, dims, correction, keepdim)[0]


@takes(aten.var_mean.correction, dtypes=FLOATS)
def _(m: Making, a: Value, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> list[Value]:
    return list(_variance(m, a, dims, correction, keepdim))


@takes(aten.prod.default)
def _(m: Making, a: Value, *, dtype: Any = None) -> Value:
    a = cast(a, wide(m.dtype))
    return cast(a.prod() if a.ndim > 0 else a, m.dtype)


@takes(aten.prod.dim_int)
def _(m: Making, a: Value, dim: int, keepdim: bool = False, *, dtype: Any = None) -> Value:
    a = cast(a, wide(m.dtype))
    return cast(a.prod([axis_of(dim, a.ndim)], keepdim) if a.ndim > 0 else a, m.dtype)


def _extreme(name: str, *of: Any) -> None:
    @takes(*of, dtypes=NUMBERS)
    def reduce(m: Making, a: Value, dims: Any = (), keepdim: bool = False) -> Value:
        has_elements(a)
        made: Value = getattr(a, name)(axes_of(dims, a.ndim), keepdim) if a.ndim > 0 else a
        return made


_extreme('max', aten.amax.default, aten.max.default)
_extreme('min', aten.amin.default, aten.min.default)


def _any_or_all(name: str, *of: Any) -> None:
    @takes(*of)
    def reduce(m: Making, a: Value, dims: Any = None, keepdim: bool = False) -> Value:
        if m.dtype != DType.bool:
            raise NotTaken(f'{name} of u8')
        a = as_bool(m, a)
        axes = axes_of(dims, a.ndim)
        if a.ndim == 0 or not axes:
            return a
        made: Value = getattr(a, name)(axes, keepdim)
        return made


_any_or_all('any', *overloads(aten.any, 'default', 'dim', 'dims'))
_any_or_all('all', *overloads(aten.all, 'default', 'dim', 'dims'))


def _on_a_cpu(m: Making) -> None:
    """PyTorch gives the first of equal elements there, which is not promised elsewhere."""
    if m.device is not None and m.device.type != 'cpu':
        raise NotTaken('positions of extremes on a GPU, where PyTorch may give any of equal ones')


def _where_extreme(name: str, op: Any, of_pair: Any, of_place: Any) -> None:
    def place(m: Making, a: Value, dim: int, keepdim: bool) -> Value:
        has_elements(a)
        _on_a_cpu(m)
        # NaN is the extreme there: the first of them counts.
        if a.dtype in FLOATS:
            is_nan = ops.isnan(a)
            has_nan = is_nan.any([dim], keepdim)
            of_nan = ops.argmax(cast(is_nan, DType.i32), dim, keepdim)
            return ops.select(has_nan, cast(of_nan, DType.i64), cast(op(a, dim, keepdim), DType.i64))
        return cast(op(a, dim, keepdim), DType.i64)

    @takes(of_pair, dtypes=NUMBERS)
    def pair(m: Making, a: Value, dim: int, keepdim: bool = False) -> list[Value]:
        if a.ndim == 0:
            return [a, m.full(0, DType.i64)]
        axis = axis_of(dim, a.ndim)
        extreme: Value = getattr(a, name)([axis], keepdim)
        return [extreme, place(m, a, axis, keepdim)]

    @takes(of_place, dtypes=NUMBERS)
    def index(m: Making, a: Value, dim: Any = None, keepdim: bool = False) -> Value:
        if a.ndim == 0:
            return m.full(0, DType.i64)
        if dim is None:
            made = place(m, ops.reshape(a, (a.size,)), 0, False)
            return ops.reshape(made, (1,) * a.ndim) if keepdim else made
        return place(m, a, axis_of(dim, a.ndim), keepdim)


_where_extreme('max', ops.argmax, aten.max.dim, aten.argmax.default)
_where_extreme('min', ops.argmin, aten.min.dim, aten.argmin.default)


@takes(*overloads(aten.linalg_vector_norm, 'default'), dtypes=FLOATS)
@scalars_as_rows
def _(m: Making, a: Value, order: Any = 2, dims: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    if order in (math.inf, -math.inf):
        has_elements(a)
    axes, a = axes_of(dims, a.ndim), cast(a, wide(m.dtype))
    if not axes:
        made = cast(ops.not_equal(a, m.full(0, a.dtype)), a.dtype) if order == 0 else ops.abs(a)
    elif order == 0:
        made = cast(ops.not_equal(a, m.full(0, a.dtype)), a.dtype).sum(axes, keepdim)
    elif order not in (1, 2, math.inf, -math.inf):
        raised = (ops.abs(a) ** m.full(order, a.dtype)).sum(axes, keepdim)
        made = raised ** m.full(1 / order, a.dtype)
    elif order == 2:
        made = ops.sqrt((a * a).sum(axes, keepdim))
    elif order == 1:
        made = ops.abs(a).sum(axes, keepdim)
    else:
        made = ops.abs(a).max(axes, keepdim) if order > 0 else ops.abs(a).min(axes, keepdim)
    return cast(made, m.dtype)


@takes(aten.cumprod.default)
def _(m: Making, a: Value, dim: int, *, dtype: Any = None) -> Value:
    has_elements(a)
    a = cast(a, wide(m.dtype))
    return cast(ops.cumprod(a, axis_of(dim, a.ndim)) if a.ndim > 0 else a, m.dtype)


@takes(aten.cumsum.default)
def _(m: Making, a: Value, dim: int, *, dtype: Any = None) -> Value:
    has_elements(a)
    a = cast(a, m.dtype)
    return ops.cumsum(a, axis_of(dim, a.ndim)) if a.ndim > 0 else a


@takes(*overloads(aten.sort, 'default', 'stable'), dtypes=NUMBERS)
def _(m: Making, a: Value, *given: Any, **options: Any) -> list[Value]:
    has_elements(a)
    arguments = list(given)
    is_stable = options.get('stable', False)
    if arguments and isinstance(arguments[0], (bool, type(None))) and len(arguments) > 1:
        is_stable = arguments.pop(0)
    if not is_stable and a.dtype in (DType.f16, DType.bf16):
        raise NotTaken('an order of 16-bit floats, many of them equal, that need not be stable')
    dim = options.get('dim', arguments[0] if arguments else -1)
    descending = options.get('descending', arguments[1] if len(arguments) > 1 else False)
    if a.ndim == 0:
        return [a, m.full(0, DType.i64)]
    made, places = ops.sort(a, axis_of(dim, a.ndim), descending)
    return [made, cast(places, DType.i64)]


@takes(aten.topk.default, dtypes=(DType.f64, DType.f32, DType.i64))
def _(m: Making, a: Value, k: int, dim: int = -1, largest: bool = True, is_sorted: bool = True) -> list[Value]:
    has_elements(a)
    if a.ndim == 0 or k == 0 or a.dtype not in FLOATS:
        raise NotTaken('topk of nothing, or of integers, of which many are equal')
    made, places = ops.topk(a, k, axis_of(dim, a.ndim), largest)
    return [made, cast(places, DType.i64)]


# ---- softmax ----


@takes(aten._softmax.default, dtypes=FLOATS)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, half_to_float: bool) -> Value:
    return _softmax(m, ops.softmax, a, dim)


@takes(aten._log_softmax.default, dtypes=FLOATS)
@scalars_as_rows
def _(m: Making, a: Value, dim: int, half_to_float: bool) -> Value:
    return _softmax(m, ops.log_softmax, a, dim)


def _softmax(m: Making, op: Any, a: Value, dim: int) -> Value:
    has_elements(a)
    return cast(op(cast(a, wide(m.dtype)), axis_of(dim, a.ndim)), m.dtype)


@takes(aten._softmax_backward_data.default, dtypes=FLOATS)
@scalars_as_rows
def _(m: Making, grad: Value, y: Value, dim: int, dtype: Any) -> Value:
    has_elements(y)
    grad, y = cast(grad, wide(m.dtype)), cast(y, wide(m.dtype))
    product = grad * y
    return cast(product - y * product.sum([axis_of(dim, y.ndim)], True), m.dtype)


@takes(aten._log_softmax_backward_data.default, dtypes=FLOATS)
@scalars_as_rows
def _(m: Making, grad: Value, y: Value, dim: int, dtype: Any) -> Value:
    has_elements(y)
    grad, y = cast(grad, wide(m.dtype)), cast(y, wide(m.dtype))
    return cast(grad - ops.exp(y) * grad.sum([axis_of(dim, y.ndim)], True), m.dtype)
