# SPDX-License-Identifier: Apache-2.0
"""Pooling over volumes: over their planes, then over depth. Extremes and means of boxes are those of rows of windows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._ops_pool import adaptive_mean, avg_pool2d, max_pool2d
from ._table import FLOATS, Making, NotTaken, cast, gradient_of, has_elements, overloads, takes

aten = torch.ops.aten


def _triple(numbers: Sequence[int], otherwise: Sequence[int] = ()) -> tuple[int, int, int]:
    listed = list(numbers) or list(otherwise)
    return (listed[0],) * 3 if len(listed) == 1 else (listed[0], listed[1], listed[2])


def _volumes(x: Value) -> Value:
    """[N, C, D, H, W]."""
    if x.ndim not in (4, 5):
        raise NotTaken('pooling of other than volumes')
    has_elements(x)
    return x if x.ndim == 5 else ops.unsqueeze(x, 0)


def _planes(volumes: Value) -> Value:
    n, c, depth, height, width = volumes.shape
    return ops.reshape(volumes, (n, c * depth, height, width))


def _upright(planes: Value, volumes: Value) -> Value:
    """[N, C, D, positions of a plane]."""
    n, c, depth = volumes.shape[:3]
    return ops.reshape(planes, (n, c, depth, planes.shape[2] * planes.shape[3]))


def _back(made: Value, planes: Value, x: Value) -> Value:
    volumes = ops.reshape(made, (*made.shape[:3], *planes.shape[2:]))
    return volumes if x.ndim == 5 else ops.squeeze(volumes, 0)


# ---- means ----


def _mean(
    m: Making,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    counts_padding: bool = True,
    divisor: Any = None,
) -> Value:
    volumes = _volumes(x)
    (deep, *flat), (far, *near), (before, *around) = _triple(kernel), _triple(stride, _triple(kernel)), _triple(padding)
    of_planes = None if divisor is None else 1  # their sums
    planes = avg_pool2d(m, _planes(volumes), flat, near, around, ceil_mode, counts_padding, of_planes)
    made = avg_pool2d(
        m, _upright(planes, volumes), (deep, 1), (far, 1), (before, 0), ceil_mode, counts_padding, divisor
    )
    return _back(made, planes, x)


@takes(*overloads(aten.avg_pool3d, 'default'), dtypes=FLOATS)
def _(m: Making, x: Value, *given: Any) -> Value:
    return _mean(m, x, *given)


@takes(*overloads(aten.avg_pool3d_backward, 'default'), dtypes=FLOATS)
def _(m: Making, grad: Value, x: Value, *given: Any) -> Value:
    return gradient_of(lambda each: _mean(m, each, *given), x, grad)


@takes(*overloads(aten._adaptive_avg_pool3d, 'default'), dtypes=FLOATS)
def _(m: Making, x: Value, counts: Sequence[int]) -> Value:
    has_elements(x)
    return adaptive_mean(m, x, counts)


@takes(*overloads(aten._adaptive_avg_pool3d_backward, 'default'), dtypes=FLOATS)
def _(m: Making, grad: Value, x: Value) -> Value:
    has_elements(x)
    return gradient_of(lambda each: adaptive_mean(m, each, grad.shape[-3:]), x, grad)


# ---- extremes ----


@takes(*overloads(aten.max_pool3d_with_indices, 'default'), dtypes=FLOATS | {DType.i64})
def _(
    m: Making,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[Value]:
    volumes = _volumes(x)
    (deep, *flat), (far, *near), (before, *around) = _triple(kernel), _triple(stride, _triple(kernel)), _triple(padding)
    apart, *spread = _triple(dilation)
    planes, of_planes = max_pool2d(m, _planes(volumes), flat, near, around, spread, ceil_mode)
    upright = _upright(planes, volumes)
    made, of_depth = max_pool2d(m, upright, (deep, 1), (far, 1), (before, 0), (apart, 1), ceil_mode)
    # Of a column of planes the position says the plane; within it the index of the plane's own window.
    depth = ops.floor_divide(of_depth, m.full(upright.shape[3], DType.i64))
    within = ops.gather_elements(_upright(of_planes, volumes), depth, 2)
    index = depth * (volumes.shape[3] * volumes.shape[4]) + within
    return [_back(made, planes, x), _back(index, planes, x)]


@takes(*overloads(aten.max_pool3d_with_indices_backward, 'default'), dtypes=FLOATS | {DType.i64})
def _(m: Making, grad: Value, x: Value, *given: Any) -> Value:
    volumes, index = _volumes(x), _volumes(given[-1])
    n, c = volumes.shape[:2]
    places = volumes.size // (n * c)
    updates = ops.reshape(_volumes(grad), (n * c, index.size // (n * c)))
    added = ops.scatter_add_elements(ops.reshape(index, updates.shape), updates, places, 1)
    return cast(ops.reshape(added, x.shape), m.dtype)
