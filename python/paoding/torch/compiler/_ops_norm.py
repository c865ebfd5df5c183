# SPDX-License-Identifier: Apache-2.0
"""Normalisation and its gradients. Statistics are in f32 for floats of 16 bits; the reciprocal deviations that PyTorch
keeps for the backward pass are 1 / sqrt(variance + epsilon)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import Value
from ._table import FLOATS, Making, NotTaken, cast, has_elements, overloads, takes, wide

aten = torch.ops.aten


def _moments(x: Value, axes: Sequence[int]) -> tuple[Value, Value]:
    """Mean and biased variance, with the axes kept."""
    mean = x.mean(axes, True)
    difference = x - mean
    return mean, (difference * difference).mean(axes, True)


def _reciprocal_deviation(m: Making, variance: Value, epsilon: float) -> Value:
    return ops.rsqrt(variance + m.full(epsilon, variance.dtype))


def _pass_back(grad: Value, normalised: Value, reciprocal: Value, axes: Sequence[int]) -> Value:
    """The gradient of (x - mean) / deviation, both of them depending on x."""
    return reciprocal * (grad - grad.mean(axes, True) - normalised * (grad * normalised).mean(axes, True))


def _zeros(m: Making, mask: Sequence[bool], *shapes: Sequence[int]) -> list[Value | None]:
    """Gradients of a norm of nothing."""
    return [m.full(0, m.dtypes[i], shape) if mask[i] else None for i, shape in enumerate(shapes)]


# ---- layers ----


@takes(aten.native_layer_norm.default, dtypes=FLOATS)
def _(
    m: Making, x: Value, shape: Sequence[int], weight: Value | None, bias: Value | None, epsilon: float
) -> list[Value]:
    has_elements(x)
    dtypes, dtype = m.dtypes, wide(x.dtype)
    axes = list(range(x.ndim - len(shape), x.ndim))
    wide_x = cast(x, dtype)
    gamma = m.full(1, dtype, shape) if weight is None else cast(weight, dtype)
    beta = m.full(0, dtype, shape) if bias is None else cast(bias, dtype)
    made, mean, variance = _paoding.call('layer_norm', wide_x, gamma, beta, axes=axes, epsilon=epsilon)
    kept = [1 if i in axes else each for i, each in enumerate(x.shape)]
    mean, variance = ops.reshape(mean, kept), ops.reshape(variance, kept)
    results = (made, mean, _reciprocal_deviation(m, variance, epsilon))
    return [cast(each, wanted) for each, wanted in zip(results, dtypes)]


@takes(aten.native_layer_norm_backward.default, dtypes=FLOATS)
def _(
    m: Making,
    grad: Value,
    x: Value,
    shape: Sequence[int],
    mean: Value,
    reciprocal: Value,
    weight: Value | None,
    bias: Value | None,
    mask: Sequence[bool],
) -> list[Value | None]:
    if x.size == 0:
        return _zeros(m, mask, x.shape, shape, shape)
    dtype = wide(x.dtype)
    rows = list(range(x.ndim - len(shape)))
    axes = list(range(len(rows), x.ndim))
    of, g, mean, reciprocal = (cast(each, dtype) for each in (x, grad, mean, reciprocal))
    normalised = (of - mean) * reciprocal
    inner = g if weight is None else g * cast(weight, dtype)
    of_x = _pass_back(inner, normalised, reciprocal, axes) if mask[0] else None
    of_weight = of_bias = None
    if mask[1] and weight is not None:
        of_weight = (g * normalised).sum(rows) if rows else g * normalised
    if mask[2] and bias is not None:
        of_bias = g.sum(rows) if rows else g
    return [None if each is None else cast(each, x.dtype) for each in (of_x, of_weight, of_bias)]


# ---- batches ----


def _channels(value: Value, rank: int) -> Value:
    return ops.reshape(value, (1, value.size, *(1,) * (rank - 2)))


def _scaled(x: Value, weight: Value | None, bias: Value | None) -> Value:
    if weight is not None:
        x = x * _channels(cast(weight, x.dtype), x.ndim)
    return x if bias is None else x + _channels(cast(bias, x.dtype), x.ndim)


@takes(*overloads(aten._native_batch_norm_legit_functional, 'default'), dtypes=FLOATS)
def _(
    m: Making,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_variance: Value,
    training: bool,
    momentum: float,
    epsilon: float,
) -> list[Value]:
    if not training:
        raise NotTaken('batch norm that keeps its statistics while they are results')
    made, mean, variance, reciprocal, count = _batch(m, x, weight, bias, epsilon)
    unbiased = variance * m.full(count / max(count - 1, 1), variance.dtype)
    results = [cast(made, x.dtype), cast(mean, m.dtypes[1]), cast(reciprocal, m.dtypes[2])]
    for old, new in ((running_mean, mean), (running_variance, unbiased)):
        wide_old = cast(old, new.dtype)
        kept = wide_old * m.full(1 - momentum, new.dtype) + new * m.full(momentum, new.dtype)
        results.append(cast(kept, old.dtype))
    return results


def _batch(
    m: Making, x: Value, weight: Value | None, bias: Value | None, epsilon: float
) -> tuple[Value, Value, Value, Value, int]:
    has_elements(x)
    if x.ndim < 2 or x.size // x.shape[1] < 2:
        raise NotTaken('batch norm of too few elements')
    wide_x = cast(x, wide(x.dtype))
    axes, channels = [0, *range(2, x.ndim)], x.shape[1]
    shape = [1, channels, *(1,) * (x.ndim - 2)]
    gamma = m.full(1, wide_x.dtype, shape) if weight is None else _channels(cast(weight, wide_x.dtype), x.ndim)
    beta = m.full(0, wide_x.dtype, shape) if bias is None else _channels(cast(bias, wide_x.dtype), x.ndim)
    made, mean, variance = _paoding.call('batch_norm', wide_x, gamma, beta, axes=axes, epsilon=epsilon)
    mean, variance = ops.reshape(mean, (channels,)), ops.reshape(variance, (channels,))
    return made, mean, variance, _reciprocal_deviation(m, variance, epsilon), x.size // channels


@takes(*overloads(aten._native_batch_norm_legit, 'no_stats'), dtypes=FLOATS)
def _(
    m: Making, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, epsilon: float
) -> list[Value]:
    made, mean, _, reciprocal, _ = _batch(m, x, weight, bias, epsilon)
    return [cast(each, wanted) for each, wanted in zip((made, mean, reciprocal), m.dtypes)]


@takes(*overloads(aten._native_batch_norm_legit_no_training, 'default'), dtypes=FLOATS)
def _(
    m: Making,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_variance: Value,
    momentum: float,
    epsilon: float,
) -> list[Value | None]:
    has_elements(x)
    dtype = wide(x.dtype)
    reciprocal = _reciprocal_deviation(m, cast(running_variance, dtype), epsilon)
    scale = reciprocal if weight is None else reciprocal * cast(weight, dtype)
    made = (cast(x, dtype) - _channels(cast(running_mean, dtype), x.ndim)) * _channels(scale, x.ndim)
    if bias is not None:
        made = made + _channels(cast(bias, dtype), x.ndim)
    # PyTorch promises the statistics on a GPU, and nothing on a CPU.
    if m.device is not None and m.device.type == 'cpu':
        return [cast(made, x.dtype), *(m.full(0, each, (0,)) for each in m.dtypes[1:])]
    return [cast(each, wanted) for each, wanted in zip((made, running_mean, reciprocal), m.dtypes)]


@takes(aten.native_batch_norm_backward.default, dtypes=FLOATS)
def _(
    m: Making,
    grad: Value,
    x: Value,
    weight: Value | None,
    running_mean: Value | None,
    running_variance: Value | None,
    mean: Value | None,
    reciprocal: Value | None,
    training: bool,
    epsilon: float,
    mask: Sequence[bool],
) -> list[Value | None]:
    has_elements(x)
    dtype, axes = wide(x.dtype), [0, *range(2, x.ndim)]
    if training:
        assert mean is not None and reciprocal is not None
        mean, reciprocal = cast(mean, dtype), cast(reciprocal, dtype)
    else:
        assert running_mean is not None and running_variance is not None
        mean = cast(running_mean, dtype)
        reciprocal = _reciprocal_deviation(m, cast(running_variance, dtype), epsilon)
    g = cast(grad, dtype)
    reciprocal = _channels(reciprocal, x.ndim)
    normalised = (cast(x, dtype) - _channels(mean, x.ndim)) * reciprocal
    of_x: Value | None = None
    if mask[0]:
        inner = _scaled(g, weight, None)
        of_x = _pass_back(inner, normalised, reciprocal, axes) if training else inner * reciprocal
        of_x = cast(of_x, x.dtype)
    of_weight = (g * normalised).sum(axes) if mask[1] else None
    of_bias = g.sum(axes) if mask[2] else None
    kept = x.dtype if weight is None else weight.dtype
    return [of_x, *(None if each is None else cast(each, kept) for each in (of_weight, of_bias))]


# ---- groups of channels ----


@takes(aten.native_group_norm.default, dtypes=FLOATS)
def _(
    m: Making,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    images: int,
    channels: int,
    plane: int,
    groups: int,
    epsilon: float,
) -> list[Value]:
    has_elements(x)
    of = ops.reshape(cast(x, wide(x.dtype)), (images, groups, channels // groups * plane))
    mean, variance = _moments(of, [2])
    reciprocal = _reciprocal_deviation(m, variance, epsilon)
    made = _scaled(ops.reshape((of - mean) * reciprocal, x.shape), weight, bias)
    results = (made, ops.reshape(mean, (images, groups)), ops.reshape(reciprocal, (images, groups)))
    return [cast(each, wanted) for each, wanted in zip(results, m.dtypes)]


@takes(aten.native_group_norm_backward.default, dtypes=FLOATS)
def _(
    m: Making,
    grad: Value,
    x: Value,
    mean: Value,
    reciprocal: Value,
    weight: Value | None,
    images: int,
    channels: int,
    plane: int,
    groups: int,
    mask: Sequence[bool],
) -> list[Value | None]:
    if x.size == 0:
        return _zeros(m, mask, x.shape, (channels,), (channels,))
    dtype = wide(x.dtype)
    grouped = (images, groups, channels // groups * plane)
    of, mean, reciprocal = (
        ops.reshape(cast(each, dtype), shape)
        for each, shape in ((x, grouped), (mean, (images, groups, 1)), (reciprocal, (images, groups, 1)))
    )
    g = cast(grad, dtype)
    normalised = (of - mean) * reciprocal
    of_x = of_weight = of_bias = None
    if mask[0]:
        inner = ops.reshape(_scaled(g, weight, None), grouped)
        of_x = ops.reshape(_pass_back(inner, normalised, reciprocal, [2]), x.shape)
    axes = [0, *range(2, x.ndim)]
    if mask[1]:
        of_weight = (g * ops.reshape(normalised, x.shape)).sum(axes)
    if mask[2]:
        of_bias = g.sum(axes)
    return [None if each is None else cast(each, x.dtype) for each in (of_x, of_weight, of_bias)]
