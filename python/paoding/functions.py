# SPDX-License-Identifier: Apache-2.0
"""Losses and matrices that are made of ops, with the arguments of PyTorch's and NumPy's functions of the same names."""

from __future__ import annotations

import math

from . import ops
from ._paoding import DType, Graph, Value, causal_mask, constant, iota
from ._types import Ints, ValueLike
from .errors import ArgumentError, ShapeError

__all__ = [
    'cosine_similarity',
    'eye',
    'kl_div',
    'linspace',
    'nll_loss',
    'norm',
    'ones_like',
    'tril',
    'triu',
    'zeros_like',
]


def _reduced(losses: Value, reduction: str) -> Value:
    if reduction == 'none':
        return losses
    if reduction == 'sum':
        return losses.sum()
    if reduction == 'mean':
        return losses.mean()
    raise ArgumentError(f"reduction is '{reduction}', needed is mean, sum or none")


def kl_div(log_prediction: Value, target: Value, reduction: str = 'mean', log_target: bool = False) -> Value:
    """target (log(target) - log_prediction), reduced: mean (of all elements), batchmean (the sum over the first extent,
    which is the divergence), sum or none. `log_target`: the target is a logarithm too. Shapes: any two alike."""
    if log_target:
        losses = ops.exp(target) * (target - log_prediction)
    else:
        is_there = target > 0
        log = ops.log(ops.select(is_there, target, ops.full_like(target, 1)))  # 0 log 0 is 0, and so is its gradient
        losses = ops.select(is_there, target * (log - log_prediction), -target * log_prediction)
    if reduction == 'batchmean':
        return losses.sum() / losses.shape[0]
    return _reduced(losses, reduction)


def nll_loss(log_probabilities: Value, labels: Value, reduction: str = 'mean') -> Value:
    """-log_probabilities[.., label], reduced. Classes are the last axis, as in cross_entropy: [.., classes] and labels
    [..], of which those below 0 do not count."""
    if log_probabilities.shape[:-1] != labels.shape:
        raise ShapeError(f'nll_loss: log_probabilities is {log_probabilities!r}, labels {labels!r}; needed are [.., classes] and [..]')
    counts = labels >= 0
    picked = ops.gather_elements(
        log_probabilities, ops.unsqueeze(ops.select(counts, labels, 0), axis=-1), axis=log_probabilities.ndim - 1
    )
    losses = ops.select(counts, -ops.squeeze(picked, axis=-1), 0.0)
    if reduction == 'mean':
        return losses.sum() / counts.sum().astype(losses.dtype)
    return _reduced(losses, reduction)


def norm(a: Value, ord: float = 2, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """sum(|a|^ord)^(1 / ord) over `axis`, of all elements without one; inf and -inf are the largest and the smallest
    |a|, 0 counts those that are not 0."""
    size = ops.abs(a)
    if ord == math.inf:
        return size.max(axis, keepdims)
    if ord == -math.inf:
        return size.min(axis, keepdims)
    if ord == 0:
        return (size != 0).sum(axis, keepdims).astype(a.dtype)
    if ord == 1:
        return size.sum(axis, keepdims)
    if ord == 2:
        return ops.sqrt(ops.square(a).sum(axis, keepdims))
    return (size**ord).sum(axis, keepdims) ** (1 / ord)


def cosine_similarity(a: Value, b: Value, axis: int = -1, epsilon: float = 1e-8) -> Value:
    """sum(a b) / (|a| |b|) along `axis`, where no length counts as less than `epsilon`."""
    lengths = ops.maximum(norm(a, axis=axis), epsilon) * ops.maximum(norm(b, axis=axis), epsilon)
    return (a * b).sum(axis) / lengths


def tril(a: Value, k: int = 0) -> Value:
    """a with zeros above the k-th diagonal of its last two axes."""
    mask = causal_mask(a.shape[-2], a.shape[-1], k, graph=a.graph)
    return ops.select(mask, a, zeros_like(a))


def triu(a: Value, k: int = 0) -> Value:
    """a with zeros below the k-th diagonal of its last two axes."""
    mask = causal_mask(a.shape[-2], a.shape[-1], k - 1, graph=a.graph)
    return ops.select(mask, zeros_like(a), a)


def eye(n: int, m: int | None = None, k: int = 0, dtype: DType | str = 'f32', graph: Graph | None = None) -> Value:
    """[n, m] (m is n without) with ones on the k-th diagonal and zeros elsewhere."""
    shape = (n, n if m is None else m)
    return (iota(shape, 1, graph=graph) - iota(shape, 0, graph=graph) == k).astype(dtype)


def linspace(
    start: float, stop: float, num: int = 50, endpoint: bool = True, dtype: DType | str = 'f32', graph: Graph | None = None
) -> Value:
    """`num` numbers from `start` to `stop`, at equal distances; without `endpoint` stop is the one after the last."""
    import numpy

    return constant(numpy.linspace(start, stop, num, endpoint), dtype, graph=graph)


def zeros_like(a: ValueLike, dtype: DType | str | None = None) -> Value:
    """Zeros of a's shape, and of its dtype unless another is given."""
    zeros = ops.full_like(a, 0)
    return zeros if dtype is None else zeros.astype(dtype)


def ones_like(a: ValueLike, dtype: DType | str | None = None) -> Value:
    """Ones of a's shape, and of its dtype unless another is given."""
    ones = ops.full_like(a, 1)
    return ones if dtype is None else ones.astype(dtype)
