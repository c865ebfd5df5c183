# SPDX-License-Identifier: Apache-2.0
"""Activations and their gradients, in f32 for floats of 16 bits, as PyTorch computes them."""

from __future__ import annotations

from typing import Any

import torch

from ... import ops
from ..._paoding import Value
from ._table import FLOATS, Making, NotTaken, cast, check_number, takes, wide

aten = torch.ops.aten


def _wide(m: Making, *given: Value) -> list[Value]:
    return [cast(each, wide(m.dtype)) for each in given]


def _number(m: Making, value: Any) -> Value:
    check_number(value, wide(m.dtype))
    return m.full(value, wide(m.dtype))


def _relu(m: Making, a: Value) -> Value:
    """NaN stays NaN, as PyTorch has it."""
    return ops.maximum(a, m.full(0, a.dtype))


@takes(aten.relu.default)
def _(m: Making, a: Value) -> Value:
    return _relu(m, a)


@takes(aten.gelu.default, dtypes=FLOATS)
def _(m: Making, a: Value, *, approximate: str = 'none') -> Value:
    (a,) = _wide(m, a)
    return cast(ops.gelu(a, approximate), m.dtype)


@takes(aten.gelu_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value, *, approximate: str = 'none') -> Value:
    grad, a = _wide(m, grad, a)
    one, half = _number(m, 1), _number(m, 0.5)
    if approximate == 'none':
        # d(x Phi(x)) = Phi(x) + x phi(x)
        cdf = half * (one + ops.erf(a * _number(m, 0.7071067811865476)))
        pdf = ops.exp(a * a * _number(m, -0.5)) * _number(m, 0.3989422804014327)
        return cast(grad * (cdf + a * pdf), m.dtype)
    beta, kappa = _number(m, 0.7978845608028654), _number(m, 0.044715)
    inner = beta * (a + kappa * a * a * a)
    tanh = ops.tanh(inner)
    slope = beta * (one + _number(m, 3) * kappa * a * a)
    return cast(grad * (half * (one + tanh) + half * a * (one - tanh * tanh) * slope), m.dtype)


@takes(aten.silu.default, dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    return cast(ops.silu(*_wide(m, a)), m.dtype)


@takes(aten.silu_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value) -> Value:
    grad, a = _wide(m, grad, a)
    one, s = _number(m, 1), ops.sigmoid(a)
    return cast(grad * s * (one + a * (one - s)), m.dtype)


@takes(aten.tanh_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, y: Value) -> Value:
    grad, y = _wide(m, grad, y)
    return cast(grad * (_number(m, 1) - y * y), m.dtype)


@takes(aten.sigmoid_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, y: Value) -> Value:
    grad, y = _wide(m, grad, y)
    return cast(grad * (_number(m, 1) - y) * y, m.dtype)


@takes(aten.threshold_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value, threshold: Any) -> Value:
    """The gradient passes where a is not at most the threshold: where it is NaN too."""
    (wide_a,) = _wide(m, a)
    return ops.select(ops.less_equal(wide_a, _number(m, threshold)), m.full(0, m.dtype), grad)


@takes(aten.leaky_relu.default, dtypes=FLOATS)
def _(m: Making, a: Value, slope: Any = 0.01) -> Value:
    (a,) = _wide(m, a)
    return cast(ops.select(ops.greater(a, _number(m, 0)), a, a * _number(m, slope)), m.dtype)


@takes(aten.leaky_relu_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value, slope: Any, is_result: bool) -> Value:
    grad, a = _wide(m, grad, a)
    return cast(ops.select(ops.greater(a, _number(m, 0)), grad, grad * _number(m, slope)), m.dtype)


@takes(aten.elu.default, dtypes=FLOATS)
def _(m: Making, a: Value, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Value:
    (a,) = _wide(m, a)
    below = ops.expm1(a * _number(m, input_scale)) * _number(m, alpha * scale)
    return cast(ops.select(ops.less_equal(a, _number(m, 0)), below, a * _number(m, scale)), m.dtype)


@takes(aten.elu_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, alpha: Any, scale: Any, input_scale: Any, is_result: bool, y: Value) -> Value:
    grad, y = _wide(m, grad, y)
    slope = alpha * scale
    if is_result:
        below = grad * _number(m, input_scale) * (y + _number(m, slope))
    else:
        below = grad * _number(m, input_scale * slope) * ops.exp(y * _number(m, input_scale))
    return cast(ops.select(ops.greater(y, _number(m, 0)), grad * _number(m, scale), below), m.dtype)


def _between(m: Making, a: Value, low: Any, high: Any) -> Value:
    return ops.minimum(ops.maximum(a, _number(m, low)), _number(m, high))


@takes(aten.hardtanh.default, dtypes=FLOATS)
def _(m: Making, a: Value, low: Any = -1, high: Any = 1) -> Value:
    (a,) = _wide(m, a)
    return cast(_between(m, a, low, high), m.dtype)


@takes(aten.hardtanh_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value, low: Any, high: Any) -> Value:
    (a,) = _wide(m, a)
    is_in = ops.logical_and(ops.greater(a, _number(m, low)), ops.less(a, _number(m, high)))
    return ops.select(is_in, grad, m.full(0, m.dtype))


@takes(aten.hardsigmoid.default, dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    (a,) = _wide(m, a)
    return cast(_between(m, a + _number(m, 3), 0, 6) / _number(m, 6), m.dtype)


@takes(aten.hardsigmoid_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value) -> Value:
    grad, a = _wide(m, grad, a)
    is_in = ops.logical_and(ops.greater(a, _number(m, -3)), ops.less(a, _number(m, 3)))
    return cast(ops.select(is_in, grad / _number(m, 6), _number(m, 0)), m.dtype)


@takes(aten.hardswish.default, dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    (a,) = _wide(m, a)
    return cast(a * _between(m, a + _number(m, 3), 0, 6) / _number(m, 6), m.dtype)


@takes(aten.hardswish_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value) -> Value:
    grad, a = _wide(m, grad, a)
    three = _number(m, 3)
    inside = ops.select(ops.greater_equal(a, three), grad, grad * (a / three + _number(m, 0.5)))
    return cast(ops.select(ops.less_equal(a, _number(m, -3)), _number(m, 0), inside), m.dtype)


@takes(aten.mish.default, dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    return cast(ops.mish(*_wide(m, a)), m.dtype)


@takes(aten.mish_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value) -> Value:
    grad, a = _wide(m, grad, a)
    tanh = ops.tanh(ops.softplus(a))
    return cast(grad * (tanh + a * ops.sigmoid(a) * (_number(m, 1) - tanh * tanh)), m.dtype)


@takes(aten.softplus.default, dtypes=FLOATS)
def _(m: Making, a: Value, beta: Any = 1, threshold: Any = 20) -> Value:
    if beta == 0:
        raise NotTaken('softplus with a beta of 0')
    (a,) = _wide(m, a)
    scaled = a * _number(m, beta)
    below = ops.log1p(ops.exp(ops.minimum(scaled, _number(m, threshold)))) / _number(m, beta)
    return cast(ops.select(ops.greater(scaled, _number(m, threshold)), a, below), m.dtype)


@takes(aten.softplus_backward.default, dtypes=FLOATS)
def _(m: Making, grad: Value, a: Value, beta: Any, threshold: Any) -> Value:
    grad, a = _wide(m, grad, a)
    scaled = a * _number(m, beta)
    made = ops.select(ops.greater(scaled, _number(m, threshold)), grad, grad * ops.sigmoid(scaled))
    return cast(made, m.dtype)
