# SPDX-License-Identifier: Apache-2.0
"""Pooling over images. PyTorch says where in the plane a window's largest element is, paoding where in the window."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._table import FLOATS, Making, NotTaken, cast, gradient_of, has_elements, overloads, takes, wide

aten = torch.ops.aten


def _pair(numbers: Any, otherwise: Any = None) -> tuple[int, int]:
    listed = list(numbers) if len(numbers) > 0 else list(otherwise)
    return (listed[0], listed[0]) if len(listed) == 1 else (listed[0], listed[1])


class _Windows:
    """The windows of a pooling; `ceil_mode` adds some that reach over the end."""

    def __init__(self, x: Value, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> None:
        if x.ndim not in (3, 4):
            raise NotTaken('pooling of other than images')
        has_elements(x)
        self.size = x.shape[-2:]
        self.kernel, self.padding, self.dilation = _pair(kernel), _pair(padding), _pair(dilation)
        self.stride = _pair(stride, self.kernel)
        self.counts, self.over = [], []
        for axis in range(2):
            span = self.dilation[axis] * (self.kernel[axis] - 1) + 1
            room = self.size[axis] + 2 * self.padding[axis] - span
            steps = room // self.stride[axis]
            if ceil_mode and room % self.stride[axis] != 0:
                # The last window begins within the image or in front of it.
                steps += (steps + 1) * self.stride[axis] < self.size[axis] + self.padding[axis]
            self.counts.append(steps + 1)
            self.over.append(max(0, steps * self.stride[axis] - room))
        self.is_batched = x.ndim == 4

    @property
    def around(self) -> tuple[int, int, int, int]:
        (vertical, horizontal), (below, right) = self.padding, self.over
        return vertical, vertical + below, horizontal, horizontal + right

    def images(self, value: Value) -> Value:
        return value if self.is_batched else ops.unsqueeze(value, 0)

    def back(self, value: Value) -> Value:
        return value if self.is_batched else ops.squeeze(value, 0)

    def first(self, m: Making, axis: int) -> Value:
        """Of every window the first position along an axis of the plane; negative in the padding."""
        shape = [1, 1, 1, 1]
        shape[2 + axis] = self.counts[axis]
        index = _paoding.iota(shape, 2 + axis, DType.i64, m.graph)
        return index * self.stride[axis] - self.padding[axis]


def _plane_index(m: Making, windows: _Windows, index: Value) -> Value:
    index = cast(index, DType.i64)
    width = m.full(windows.kernel[1], DType.i64)
    down = ops.floor_divide(index, width)
    along = index - down * width
    row = windows.first(m, 0) + down * windows.dilation[0]
    column = windows.first(m, 1) + along * windows.dilation[1]
    return row * windows.size[1] + column


def _window_index(m: Making, windows: _Windows, index: Value) -> Value:
    """The reverse of that, of the dtype that max_pool2d has."""
    width = m.full(windows.size[1], DType.i64)
    row = ops.floor_divide(index, width)
    column = index - row * width
    down = ops.floor_divide(row - windows.first(m, 0), m.full(windows.dilation[0], DType.i64))
    along = ops.floor_divide(column - windows.first(m, 1), m.full(windows.dilation[1], DType.i64))
    is_small = windows.kernel[0] * windows.kernel[1] <= 256
    return cast(down * windows.kernel[1] + along, DType.u8 if is_small else DType.i32)


@takes(*overloads(aten.max_pool2d_with_indices, 'default'), dtypes=FLOATS | {DType.i64})
def max_pool2d(
    m: Making,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> list[Value]:
    windows = _Windows(x, kernel, stride, padding, dilation, ceil_mode)
    made, index = _paoding.call(
        'max_pool2d',
        windows.images(x),
        kernel=windows.kernel,
        stride=windows.stride,
        padding=windows.around,
        dilation=windows.dilation,
    )
    return [windows.back(made), windows.back(_plane_index(m, windows, index))]


@takes(*overloads(aten.max_pool2d_with_indices_backward, 'default'), dtypes=FLOATS | {DType.i64})
def _(
    m: Making,
    grad: Value,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    ceil_mode: bool,
    index: Value,
) -> Value:
    windows = _Windows(x, kernel, stride, padding, dilation, ceil_mode)
    has_elements(grad)
    made = ops.max_pool2d_grad(
        windows.images(grad),
        _window_index(m, windows, windows.images(index)),
        windows.kernel,
        windows.size,
        windows.stride,
        windows.around,
        windows.dilation,
    )
    return windows.back(made)


def _counts(windows: _Windows, axis: int) -> list[int]:
    """How many elements of the image and its padding each window along an axis has."""
    end = windows.size[axis] + windows.padding[axis]
    starts = (i * windows.stride[axis] - windows.padding[axis] for i in range(windows.counts[axis]))
    return [min(start + windows.kernel[axis], end) - start for start in starts]


@takes(*overloads(aten.avg_pool2d, 'default'), dtypes=FLOATS)
def avg_pool2d(
    m: Making,
    x: Value,
    kernel: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    counts_padding: bool = True,
    divisor: Any = None,
) -> Value:
    windows = _Windows(x, kernel, stride, padding, (1,), ceil_mode)
    images, number = windows.images(x), windows.kernel[0] * windows.kernel[1]
    if divisor is None and not (counts_padding and any(windows.over)):
        made = _paoding.avg_pool2d(images, windows.kernel, windows.stride, windows.around, 1, counts_padding)
        return windows.back(made)
    made = _paoding.avg_pool2d(cast(images, wide(x.dtype)), windows.kernel, windows.stride, windows.around, 1, True)
    if divisor is not None:
        made = made * m.full(number / divisor, made.dtype)
    else:  # what reaches over the end is no padding
        rows, columns = _counts(windows, 0), _counts(windows, 1)
        made = made * _paoding.constant([[number / (r * c) for c in columns] for r in rows], made.dtype, m.graph)
    return windows.back(cast(made, x.dtype))


@takes(*overloads(aten.avg_pool2d_backward, 'default'), dtypes=FLOATS)
def _(m: Making, grad: Value, x: Value, *given: Any) -> Value:
    has_elements(grad)
    return gradient_of(lambda each: avg_pool2d(m, each, *given), x, grad)


# ---- windows that share an image equally ----


def _equal_windows(x: Value, counts: Sequence[int]) -> tuple[int, int] | None:
    """The windows, if all are of one size and apart."""
    has_elements(x)
    if x.ndim not in (3, 4):
        raise NotTaken('adaptive pooling of another rank')
    height, width = x.shape[-2:]
    return None if height % counts[0] or width % counts[1] else (height // counts[0], width // counts[1])


def shares(m: Making, extent: int, count: int, dtype: DType) -> Value:
    """[count, extent]: how much each element counts in the mean of each window, which begins at floor(i extent / count) and
    ends at ceil((i + 1) extent / count)."""
    rows = []
    for i in range(count):
        start, end = i * extent // count, -(-(i + 1) * extent // count)
        rows.append([1 / (end - start) if start <= at < end else 0.0 for at in range(extent)])
    return _paoding.constant(rows, dtype, m.graph)


def adaptive_mean(m: Making, x: Value, counts: Sequence[int]) -> Value:
    """Over the last axes, one product along each."""
    made = cast(x, wide(x.dtype))
    for axis, count in zip(range(x.ndim - len(counts), x.ndim), counts):
        last = ops.swap_axes(made, axis, -1)
        along = ops.matmul(ops.reshape(last, (-1, last.shape[-1])), shares(m, last.shape[-1], count, made.dtype).T)
        made = ops.swap_axes(ops.reshape(along, (*last.shape[:-1], count)), axis, -1)
    return cast(made, x.dtype)


@takes(*overloads(aten._adaptive_avg_pool2d, 'default'), dtypes=FLOATS)
def _(m: Making, x: Value, counts: Sequence[int]) -> Value:
    kernel = _equal_windows(x, counts)
    if kernel is None:
        return adaptive_mean(m, x, counts)
    made = _paoding.avg_pool2d(x if x.ndim == 4 else ops.unsqueeze(x, 0), kernel, kernel)
    return made if x.ndim == 4 else ops.squeeze(made, 0)


@takes(*overloads(aten._adaptive_avg_pool2d_backward, 'default'), dtypes=FLOATS)
def _(m: Making, grad: Value, x: Value) -> Value:
    kernel = _equal_windows(x, grad.shape[-2:])
    if kernel is None:
        return gradient_of(lambda given: adaptive_mean(m, given, grad.shape[-2:]), x, grad)
    made = ops.avg_pool2d_grad(grad if x.ndim == 4 else ops.unsqueeze(grad, 0), kernel, x.shape[-2:], kernel)
    return made if x.ndim == 4 else ops.squeeze(made, 0)
