# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers in one direction, and their gradients, as ops of the graph: the products in front of and behind the steps,
dropout and embeddings around them are planned with them, and a step of training is a call or two."""

from __future__ import annotations

from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from .. import _recurrence as _recurrence  # registers the ops
from .._memory import may_round_products, may_round_recurrence
from ._table import FLOATS, Making, NotTaken, cast, has_elements, takes, wide

_ours = torch.ops.paoding
recurrent_ops = (_ours.recurrent.default, _ours.recurrent_backward.default)
_TAKEN = FLOATS | {DType.i32, DType.i64}  # lengths


def _check(m: Making, x: Value) -> None:
    has_elements(x)
    if x.dtype != DType.f32:
        return
    m.has_layers, device = True, m.device
    # PyTorch has one setting for layers and one for products, a graph of ours one for all.
    if device is not None and may_round_products(device) != may_round_recurrence(device):
        raise NotTaken(
            'torch.backends.cuda.matmul.allow_tf32 and torch.backends.cudnn.allow_tf32 differ, so products and recurrent '
            'layers round differently'
        )


def _state(m: Making, given: Value | None, dtype: DType, x: Value, hidden: int) -> Value:
    """Of [1, B, H] as [B, H]."""
    shape = (x.shape[1], hidden)
    return m.full(0, dtype, shape) if given is None else cast(ops.reshape(given, shape), dtype)


def _of_cells(cell: str, dtype: DType) -> DType:
    """As cell_state_dtype has it."""
    return wide(dtype) if cell == 'lstm' else dtype


def _turned(weight: Value) -> Value:
    return weight.transpose(1, 0)


@takes(_ours.recurrent.default, dtypes=_TAKEN)
def _(
    m: Making,
    x: Value,
    w: Value,
    u: Value,
    b_ih: Value | None,
    b_hh: Value | None,
    h0: Value | None,
    c0: Value | None,
    lengths: Value | None,
    cell: str,
    is_reverse: bool,
    is_training: bool,
) -> list[Value | None]:
    _check(m, x)
    hidden, batch = u.shape[1], x.shape[1]
    counts = None if lengths is None else cast(lengths, DType.i32)
    first_h = _state(m, h0, x.dtype, x, hidden)
    xw = ops.matmul(x, w, transpose_b=True)
    inner = m.full(0, x.dtype, (hidden,))
    if b_ih is not None and b_hh is not None:
        if cell == 'gru':  # the last third of its second bias is added to h u before the gate r
            outer = [b_hh[: 2 * hidden], m.full(0, x.dtype, (hidden,))]
            xw, inner = xw + (b_ih + ops.concat(outer, 0)), b_hh[2 * hidden :]
        else:
            xw = xw + (b_ih + b_hh)

    def last(value: Value) -> Value:
        return ops.reshape(value, (1, batch, hidden))

    if cell == 'lstm':
        first_c = _state(m, c0, _of_cells(cell, x.dtype), x, hidden)
        states, cells, gates, last_h, last_c = ops.lstm_recurrence(
            xw, _turned(u), first_h, first_c, counts, reverse=is_reverse
        )
        return [states, last(last_h), last(last_c), *((gates, cells) if is_training else (None, None))]
    if cell == 'gru':
        states, saved, last_h, *_ = ops.gru_recurrence(xw, _turned(u), inner, first_h, counts, reverse=is_reverse)
        return [states, last(last_h), None, saved if is_training else None, None]
    states, last_h, *_ = ops.rnn_recurrence(
        xw, _turned(u), first_h, counts, reverse=is_reverse, relu=cell == 'rnn_relu'
    )
    return [states, last(last_h), None, None, None]


def _before(states: Value, first: Value, lengths: Value | None, is_reverse: bool) -> Value:
    """The state that each step begins with. In reverse a row begins at its end, where `states` has nothing of h0."""
    if not is_reverse:
        return states[:-1]
    before = states[1:]
    if lengths is None:
        return before
    steps, batch = before.shape[0], before.shape[1]
    at = ops.reshape(_paoding.iota((steps,), 0, DType.i32, states.graph), (steps, 1, 1))
    is_first = ops.equal(at, ops.reshape(lengths, (1, batch, 1)) - 1)
    return ops.select(is_first, first, before)


def _of_weights(d_sums: Value, given: Value) -> Value:
    """[N, K] of sums [T, B, N] of given [T, B, K]."""
    rows = d_sums.shape[0] * d_sums.shape[1]
    return ops.matmul(
        ops.reshape(d_sums, (rows, d_sums.shape[2])), ops.reshape(given, (rows, given.shape[2])), transpose_a=True
    )


@takes(_ours.recurrent_backward.default, dtypes=_TAKEN)
def _(
    m: Making,
    x: Value,
    w: Value,
    u: Value,
    h0: Value | None,
    lengths: Value | None,
    states: Value,
    gates: Value | None,
    cells: Value | None,
    d_states: Value | None,
    d_last_h: Value | None,
    d_last_c: Value | None,
    cell: str,
    is_reverse: bool,
) -> list[Value | None]:
    _check(m, x)
    hidden, batch = u.shape[1], x.shape[1]
    counts = None if lengths is None else cast(lengths, DType.i32)
    first_h = _state(m, h0, x.dtype, x, hidden)
    d_h, d_c = (None if each is None else ops.reshape(each, (batch, hidden)) for each in (d_last_h, d_last_c))
    given: dict[str, Any] = {'last_h': d_h is not None, 'reverse': is_reverse}
    if cell == 'lstm':
        if gates is None or cells is None:
            raise NotTaken('gates and cells in one piece of memory')
        d_sums, d_h0, d_c0, *_ = ops.lstm_recurrence_grad(
            _turned(u), gates, cells, d_states, d_h, d_c, counts, states=d_states is not None, last_c=d_c is not None, **given
        )
        d_product = d_sums
    elif cell == 'gru':
        assert gates is not None
        d_sums, d_product, d_h0, *_ = ops.gru_recurrence_grad(
            _turned(u), gates, states, d_states, d_h, counts, has_states=d_states is not None, **given
        )
    else:
        d_sums, d_h0, *_ = ops.rnn_recurrence_grad(
            _turned(u),
            states,
            d_states,
            d_h,
            counts,
            has_states=d_states is not None,
            relu=cell == 'rnn_relu',
            **given,
        )
        d_product = d_sums

    def summed(value: Value) -> Value:
        return cast(cast(value, wide(value.dtype)).sum([0, 1]), value.dtype)

    def first(value: Value) -> Value:
        return ops.reshape(value, (1, batch, hidden))

    d_b = summed(d_sums)
    return [
        ops.matmul(d_sums, w),
        _of_weights(d_sums, x),
        _of_weights(d_product, _before(states, first_h, counts, is_reverse)),
        d_b,
        summed(d_product) if cell == 'gru' else d_b,
        first(d_h0),
        first(d_c0) if cell == 'lstm' else None,
    ]
