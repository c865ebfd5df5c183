# SPDX-License-Identifier: Apache-2.0
"""Scaled dot product attention, which PyTorch keeps as one op with a backward pass of its own: products and a softmax in
f32, of which the backward pass makes the probabilities again from the logarithm of their sums."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._table import FLOATS, BOOLS, Making, NotTaken, cast, has_elements, overloads, takes, wide

aten = torch.ops.aten


class _Scores:
    """Of q [B, H, L, E] and k [B, H, S, E]: scale q k^T, and -inf where a query does not look."""

    def __init__(self, m: Making, q: Value, k: Value, dropout: float, causal: bool, mask: Any, scale: Any) -> None:
        has_elements(q, k)
        if dropout != 0:
            raise NotTaken('attention with dropout')
        if q.ndim != 4 or q.shape[:2] != k.shape[:2]:
            raise NotTaken('attention with fewer heads of keys than of queries')
        self.dtype = wide(q.dtype)
        self.scale = 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)
        factor = m.full(self.scale, self.dtype)
        self.made = ops.matmul(cast(q, self.dtype), cast(k, self.dtype), False, True) * factor
        if causal:
            queries, keys = q.shape[2], k.shape[2]
            row = _paoding.iota((queries, 1), 0, DType.i32, m.graph)
            column = _paoding.iota((1, keys), 1, DType.i32, m.graph)
            self.made = ops.select(ops.less_equal(column, row), self.made, m.full(-math.inf, self.dtype))
        if mask is not None:
            if mask.dtype in BOOLS:
                self.made = ops.select(mask, self.made, m.full(-math.inf, self.dtype))
            else:
                self.made = self.made + cast(mask, self.dtype)


def _logsumexp(m: Making, scores: Value) -> Value:
    """-inf of a row that looks nowhere."""
    most = scores.max([-1], True)
    most = ops.select(ops.isinf(most), m.full(0, most.dtype), most)
    return ops.log(ops.exp(scores - most).sum([-1], True)) + most


def _probabilities(m: Making, scores: Value, of_sums: Value) -> Value:
    """0 in a row that looks nowhere."""
    is_nowhere = ops.equal(of_sums, m.full(-math.inf, of_sums.dtype))
    return ops.select(is_nowhere, m.full(0, scores.dtype), ops.exp(scores - of_sums))


@takes(*overloads(aten._scaled_dot_product_flash_attention_for_cpu, 'default'), dtypes=FLOATS | BOOLS)
def _(
    m: Making,
    q: Value,
    k: Value,
    v: Value,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    scores = _Scores(m, q, k, dropout, causal, attn_mask, scale)
    of_sums = _logsumexp(m, scores.made)
    made = ops.matmul(_probabilities(m, scores.made, of_sums), cast(v, scores.dtype))
    return [cast(made, m.dtypes[0]), cast(ops.squeeze(of_sums, -1), m.dtypes[1])]


@takes(*overloads(aten._scaled_dot_product_flash_attention_for_cpu_backward, 'default'), dtypes=FLOATS | BOOLS)
def _(
    m: Making,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    out: Value,
    of_sums: Value,
    dropout: float,
    causal: bool,
    *,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> list[Value]:
    scores = _Scores(m, q, k, dropout, causal, attn_mask, scale)
    dtype = scores.dtype
    p = _probabilities(m, scores.made, ops.unsqueeze(cast(of_sums, dtype), -1))
    g, wide_q, wide_k, wide_v, wide_out = (cast(each, dtype) for each in (grad, q, k, v, out))
    of_v = ops.matmul(p, g, True, False)
    of_p = ops.matmul(g, wide_v, False, True)
    of_scores = p * (of_p - (g * wide_out).sum([-1], True)) * m.full(scores.scale, dtype)
    of_q = ops.matmul(of_scores, wide_k)
    of_k = ops.matmul(of_scores, wide_q, True, False)
    return [cast(each, wanted) for each, wanted in zip((of_q, of_k, of_v), m.dtypes)]
