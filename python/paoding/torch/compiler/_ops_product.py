# SPDX-License-Identifier: Apache-2.0
"""Products of matrices and convolutions, with the gradients of convolutions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import Value
from ._table import FLOATS, Making, NotTaken, cast, check_number, has_elements, overloads, takes, wide

aten = torch.ops.aten


@takes(aten.mm.default, aten.bmm.default, dtypes=FLOATS)
def _(m: Making, a: Value, b: Value) -> Value:
    return _product(m, a, b)


def _product(m: Making, a: Value, b: Value) -> Value:
    if a.shape[-1] == 0:
        return m.full(0, m.dtype, (*a.shape[:-1], b.shape[-1]))
    return ops.matmul(a, b)


@takes(aten.addmm.default, *overloads(aten.baddbmm, 'default'), dtypes=FLOATS)
def _(m: Making, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    return _with_factors(m, c, _product(m, a, b), beta, alpha)


def _with_factors(m: Making, c: Value, made: Value, beta: Any, alpha: Any) -> Value:
    """beta c + alpha made."""
    if alpha != 1:
        made = cast(cast(made, wide(m.dtype)) * _number(m, alpha), m.dtype)
    if beta == 0:
        return made
    if beta != 1:
        c = cast(cast(c, wide(m.dtype)) * _number(m, beta), m.dtype)
    return ops.add(made, c)


def _number(m: Making, value: Any) -> Value:
    check_number(value, wide(m.dtype))
    return m.full(value, wide(m.dtype))


# ---- convolutions ----


class _Form:
    """A convolution over one or two axes as one over images."""

    def __init__(self, x: Value, weight: Value, *numbers: Any) -> None:
        stride, padding, dilation, is_transposed, output_padding, groups = numbers
        self.axes = weight.ndim - 2
        if x.ndim != weight.ndim or self.axes not in (1, 2):
            raise NotTaken(f'a convolution over {self.axes} axes' if x.ndim == weight.ndim else 'a single image')
        has_elements(x, weight)
        self.is_transposed, self.groups = is_transposed, groups
        self.stride, self.padding, self.dilation, self.output_padding = (
            self._pair(each, otherwise)
            for each, otherwise in ((stride, 1), (padding, 0), (dilation, 1), (output_padding, 0))
        )
        if min(self.padding) < 0:
            raise NotTaken('a convolution with negative padding')

    def _pair(self, numbers: Sequence[int], otherwise: int) -> tuple[int, int]:
        listed = list(numbers)
        if len(listed) == 1 and self.axes == 2:
            listed *= 2
        return (otherwise, listed[0]) if self.axes == 1 else (listed[0], listed[1])

    def images(self, value: Value) -> Value:
        return value if self.axes == 2 else ops.unsqueeze(value, 2)

    def back(self, value: Value) -> Value:
        return value if self.axes == 2 else ops.squeeze(value, 2)

    @property
    def around(self) -> tuple[int, int, int, int]:
        vertical, horizontal = self.padding
        return vertical, vertical, horizontal, horizontal

    @property
    def options(self) -> dict[str, Any]:
        return {
            'stride': self.stride,
            'padding': self.around,
            'dilation': self.dilation,
            'groups': self.groups,
        }


@takes(*overloads(aten.addmv, 'default'), dtypes=FLOATS)
def _(m: Making, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    made = ops.reshape(_product(m, a, ops.reshape(b, (b.size, 1))), (a.shape[0],))
    return _with_factors(m, c, made, beta, alpha)


@takes(*overloads(aten.addbmm, 'default'), dtypes=FLOATS)
def _(m: Making, c: Value, a: Value, b: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    """A sum of products is one, whose inner extent is that of all."""
    count, rows, inner = a.shape
    along = ops.reshape(a.transpose((1, 0, 2)), (rows, count * inner))
    return _with_factors(m, c, _product(m, along, ops.reshape(b, (count * inner, b.shape[2]))), beta, alpha)


def _volumes(x: Value, weight: Value, bias: Value | None, *numbers: Any) -> Value:
    stride, padding, dilation, is_transposed, _, groups = numbers
    has_elements(x, weight)
    if is_transposed or x.ndim != 5 or min(padding) < 0:
        raise NotTaken('a transposed convolution over volumes, or one of a single volume')
    stride, padding, dilation = (list(each) * (3 // len(each)) for each in (stride, padding, dilation))
    around = [side for each in padding for side in (each, each)]
    return _paoding.conv3d(x, weight, bias, stride, around, dilation, groups)


@takes(aten.convolution.default, dtypes=FLOATS)
def _(m: Making, x: Value, weight: Value, bias: Value | None, *numbers: Any) -> Value:
    if weight.ndim == 5:
        return _volumes(x, weight, bias, *numbers)
    form = _Form(x, weight, *numbers)
    if not form.is_transposed:
        made = _paoding.conv2d(form.images(x), form.images(weight), bias, **form.options)
        return form.back(made)
    made = _paoding.conv_transpose2d(
        form.images(x),
        form.images(weight),
        bias,
        form.stride,
        form.padding,
        form.output_padding,
        form.dilation,
        form.groups,
    )
    return form.back(made)


@takes(aten.convolution_backward.default, dtypes=FLOATS)
def _(
    m: Making, grad: Value, x: Value, weight: Value, bias_sizes: Any, *rest: Any
) -> list[Value | None]:
    *numbers, mask = rest
    if weight.ndim == 5:
        return _of_volumes(grad, x, weight, numbers, mask)
    form = _Form(x, weight, *numbers)
    has_elements(grad)
    dy, images, kernels = form.images(grad), form.images(x), form.images(weight)
    size, kernel = images.shape[2:], kernels.shape[2:]
    of_x = of_weight = of_bias = None
    if form.is_transposed:
        # It is the gradient of a convolution from the larger images to the smaller.
        if mask[0]:
            of_x = _paoding.conv2d(dy, kernels, None, **form.options)
        if mask[1]:
            of_weight = ops.conv2d_grad_weight(dy, images, kernel, **form.options)
    else:
        if mask[0]:
            of_x = ops.conv2d_grad_input(dy, kernels, size, **form.options)
        if mask[1]:
            of_weight = ops.conv2d_grad_weight(images, dy, kernel, **form.options)
    if mask[2]:
        of_bias = cast(cast(dy, wide(dy.dtype)).sum([0, 2, 3]), dy.dtype)
    return [each if each is None or i == 2 else form.back(each) for i, each in enumerate((of_x, of_weight, of_bias))]


def _of_volumes(
    grad: Value, x: Value, weight: Value, numbers: Sequence[Any], mask: Sequence[bool]
) -> list[Value | None]:
    has_elements(grad)
    made = _volumes(x, weight, None, *numbers)
    wanted = [each for each, is_wanted in zip((x, weight), mask) if is_wanted]
    found = iter(_paoding.gradients([made], wanted, [grad]) if wanted else ())
    of_bias = cast(cast(grad, wide(grad.dtype)).sum([0, 2, 3, 4]), grad.dtype) if mask[2] else None
    return [next(found) if mask[0] else None, next(found) if mask[1] else None, of_bias]
