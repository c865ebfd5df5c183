# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer in one direction by PyTorch's own ops, step by step: slower, but with every derivative, in forward mode
too, and under torch.func's transforms; and where there is nothing to compute."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear

GATES = {'lstm': 4, 'gru': 3, 'rnn_tanh': 1, 'rnn_relu': 1}


def cell_state_dtype(cell: str, dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if cell == 'lstm' and dtype in (torch.bfloat16, torch.float16) else dtype


def by_steps(
    cell: str,
    x: Tensor,
    w: Tensor,
    u: Tensor,
    p: Tensor | None,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    is_reverse: bool,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Of x [T, B, I], and weights as PyTorch keeps them (p [P, H] or none): [T, B, H or P] of every step, last h and last
    c in front of which there is an axis of 1; c is None but for LSTMs."""
    steps, batch, _ = x.shape
    hidden = w.shape[0] // GATES[cell]
    h = x.new_zeros(batch, hidden if p is None else p.shape[0]) if h0 is None else h0[0]
    c: Any = None
    if cell == 'lstm':
        c = x.new_zeros(batch, hidden, dtype=cell_state_dtype(cell, x.dtype)) if c0 is None else c0[0]
    counts = None
    if lengths is not None:
        counts = (torch.arange(steps, device=x.device).unsqueeze(1) < lengths).unsqueeze(2)
        x = torch.where(counts, x, 0)  # whatever stands after a row's end has no part in gradients
    of_x = linear(x, w, b_ih)
    outputs: list[Tensor] = [h] * steps
    for t in range(steps - 1, -1, -1) if is_reverse else range(steps):
        next_h, next_c = _step(cell, of_x[t], linear(h, u, b_hh), h, c)
        if p is not None:
            next_h = linear(next_h, p)
        if counts is None:
            h, c, outputs[t] = next_h, next_c, next_h
        else:
            outputs[t] = torch.where(counts[t], next_h, 0)
            h = torch.where(counts[t], next_h, h)
            c = None if c is None else torch.where(counts[t], next_c, c)
    return torch.stack(outputs), h.unsqueeze(0), None if c is None else c.unsqueeze(0)


def _step(cell: str, of_x: Tensor, of_h: Tensor, h: Tensor, c: Any) -> tuple[Tensor, Any]:
    if cell == 'lstm':
        i, f, g, o = (of_x + of_h).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return (o.sigmoid() * c.tanh()).to(h.dtype), c
    if cell == 'gru':
        (x_r, x_z, x_n), (h_r, h_z, h_n) = of_x.chunk(3, -1), of_h.chunk(3, -1)
        n = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
        return n + (x_z + h_z).sigmoid() * (h - n), None
    made = of_x + of_h
    return made.tanh() if cell == 'rnn_tanh' else made.relu(), None
