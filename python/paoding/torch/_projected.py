# SPDX-License-Identifier: Apache-2.0
"""An LSTM in one direction whose state is projected: a graph that scans, since no kernel runs all steps of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .. import _paoding, control, ops
from ._function import function
from ._kernels import Kernels
from ._memory import may_round_recurrence
from ._recurrence import dtype_of

_functions: Kernels[Callable[..., Any]] = Kernels(128)
_HOST = torch.device('cpu')


def projected_lstm(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    p: Tensor,
    b: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    is_reverse: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Of x [T, B, I], and weights as PyTorch keeps them (p [P, H]): [T, B, P] of every step, last h and c in front of
    which there is an axis of 1."""
    batch = x.shape[1]
    width, hidden = p.shape
    key = (dtype_of(x), *x.shape, hidden, width, b is not None, lengths is not None, is_reverse)
    # A function knows devices and streams itself, so that one for each thread will do.
    call = _functions.at(key, _HOST, lambda: function(_graph(*key), may_round_recurrence))
    h0 = x.new_zeros(1, batch, width) if h0 is None else h0
    c0 = x.new_zeros(1, batch, hidden) if c0 is None else c0.to(x.dtype)
    given = [each for each in (x, w, u, p, h0, c0, b, lengths) if each is not None]
    output, last_h, last_c = call(*given)
    return output, last_h, last_c


def _graph(
    dtype: str,
    steps: int,
    batch: int,
    inputs: int,
    hidden: int,
    width: int,
    has_bias: bool,
    has_lengths: bool,
    is_reverse: bool,
) -> _paoding.Graph:
    graph = _paoding.Graph()
    with graph:
        x = graph.input('x', dtype, (steps, batch, inputs))
        w = graph.input('w', dtype, (4 * hidden, inputs)).T
        u = graph.input('u', dtype, (4 * hidden, width)).T
        p = graph.input('p', dtype, (width, hidden)).T
        h0 = graph.input('h0', dtype, (1, batch, width))[0]
        c0 = graph.input('c0', dtype, (1, batch, hidden))[0]
        bias = graph.input('b', dtype, 4 * hidden) if has_bias else _paoding.zeros(4 * hidden, dtype)
        sequences: Any = (x,)
        if has_lengths:
            lengths = graph.input('lengths', 'i32', batch)
            position = _paoding.iota((steps, 1, 1), axis=0, dtype='i32')
            sequences = (x, position < lengths.reshape((1, batch, 1)))

        def step(before: Any, element: Any) -> Any:
            h, c = before
            made, next_c = ops.lstm_cell(element[0], h, c, w, u, bias)
            next_h = made @ p
            if not has_lengths:
                return (next_h, next_c), next_h
            counts = element[1]
            return (
                (ops.select(counts, next_h, h), ops.select(counts, next_c, c)),
                ops.select(counts, next_h, next_h * 0),
            )

        (last_h, last_c), output = control.scan(step, (h0, c0), sequences, reverse=is_reverse)
        graph.fetch('output', output)
        graph.fetch('last_h', last_h.reshape((1, batch, width)))
        graph.fetch('last_c', last_c.reshape((1, batch, hidden)))
    return graph
