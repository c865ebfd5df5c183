# SPDX-License-Identifier: Apache-2.0
"""Scaled dot product attention, which PyTorch keeps as one op with a backward pass of its own: ours are `attention` and
`attention_grad`, which a kernel may run as a whole. The logarithms of the softmax's sums go from one to the other."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._table import BOOLS, FLOATS, Making, NotTaken, cast, has_elements, overloads, takes, wide

aten = torch.ops.aten


def _call(
    op: str,
    given: list[Value],
    dropout: float,
    causal: bool,
    mask: Value | None,
    scale: float | None,
) -> list[Value]:
    """The op of q [B, H, T, E], k [B, K, S, E], v and what a gradient reads besides."""
    q, k = given[:2]
    has_elements(q, k)
    if dropout != 0:
        raise NotTaken('attention with dropout')
    if q.ndim != 4 or q.shape[0] != k.shape[0] or q.shape[1] % k.shape[1] != 0:
        raise NotTaken('attention whose heads of queries are no multiple of those of keys')
    attributes: dict[str, Any] = {'scale': 1 / math.sqrt(q.shape[-1]) if scale is None else float(scale)}
    if causal:
        attributes['right'] = 0
    if mask is not None:
        attributes['mask' if mask.dtype in BOOLS else 'bias'] = True
        given = [*given, mask]
    return list(_paoding.call(op, *given, **attributes))


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
    made = _call('attention', [q, k, v], dropout, causal, attn_mask, scale)
    return [cast(each, wanted) for each, wanted in zip(made, m.dtypes)]


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
    given = [q, k, v, out, cast(grad, out.dtype), cast(of_sums, wide(q.dtype))]
    made = _call('attention_grad', given, dropout, causal, attn_mask, scale)
    return [cast(each, wanted) for each, wanted in zip(made[:3], m.dtypes)]


# Of PyTorch's for CUDA the one that takes a bias and f32: those for 16 bits keep their random state in dtypes that no value
# here has, and stay PyTorch's.
_ROWS_TOGETHER = 32  # of log-sum-exp, of which PyTorch's kernel makes whole lots


@takes(*overloads(aten._scaled_dot_product_efficient_attention, 'default'), dtypes=FLOATS | BOOLS)
def _(
    m: Making,
    q: Value,
    k: Value,
    v: Value,
    attn_bias: Value | None,
    compute_log_sumexp: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    out, of_sums = _call('attention', [q, k, v], dropout, causal, attn_bias, scale)
    behind = -of_sums.shape[-1] % _ROWS_TOGETHER
    if behind:
        of_sums = ops.pad(of_sums, before=(0, 0, 0), after=(0, 0, behind))
    none = m.full(0, DType.i64)  # seed and offset of no random numbers
    return [cast(out, m.dtypes[0]), cast(of_sums, m.dtypes[1]) if compute_log_sumexp else None, none, none]


@takes(*overloads(aten._scaled_dot_product_efficient_attention_backward, 'default'), dtypes=FLOATS | BOOLS)
def _(
    m: Making,
    grad: Value,
    q: Value,
    k: Value,
    v: Value,
    attn_bias: Value | None,
    out: Value,
    of_sums: Value,
    seed: Value,
    offset: Value,
    dropout: float,
    wanted: list[bool],
    causal: bool = False,
    *,
    scale: float | None = None,
) -> list[Value | None]:
    rows = q.shape[-2]
    given = [q, k, v, out, cast(grad, out.dtype), cast(of_sums[:, :, :rows], wide(q.dtype))]
    made: list[Value | None] = [*_call('attention_grad', given, dropout, causal, attn_bias, scale)]
    if not wanted[3] or len(made) < 4:
        made = [*made[:3], None]
    return [None if each is None else cast(each, dtype) for each, dtype in zip(made, m.dtypes)]
