# SPDX-License-Identifier: Apache-2.0
"""nn.LSTMCell and nn.GRUCell on a GPU are ops of PyTorch's CUDA library alone. Here they are in the ops that they stand for, so
that a loop over them is as any other: as aten/src/ATen/native/cuda/RNN.cu computes them, in f32 where tensors have 16 bits.
What a backward pass keeps is nobody else's to read, so it has an order of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def _sum(dtype: torch.dtype, *given: Tensor | None) -> Tensor:
    each, *rest = (one.to(dtype) for one in given if one is not None)
    for one in rest:
        each = each + one
    return each


def lstm_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    cx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """h', c' and the gates i, f, g, o [B, 4 H] of products [B, 4 H] and c [B, H]."""
    wide = _wide(input_gates.dtype)
    i, f, g, o = _sum(wide, input_gates, hidden_gates, input_bias, hidden_bias).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx.to(wide) + i * g
    hy = o * cy.tanh()
    return hy.to(cx.dtype), cy.to(cx.dtype), torch.cat([i, f, g, o], 1).to(cx.dtype)


def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, gates: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the products, of c and, of each bias, the same one."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    wide = _wide(cx.dtype)
    i, f, g, o = gates.to(wide).chunk(4, 1)
    d_h = torch.zeros_like(cy, dtype=wide) if grad_hy is None else grad_hy.to(wide)
    tanh_c = cy.to(wide).tanh()
    d_o = d_h * tanh_c * (1 - o) * o
    d_c = d_h * o * (1 - tanh_c * tanh_c)
    if grad_cy is not None:
        d_c = d_c + grad_cy.to(wide)
    d_i, d_f, d_g = d_c * g * (1 - i) * i, d_c * cx.to(wide) * (1 - f) * f, d_c * i * (1 - g * g)
    d_gates = torch.cat([d_i, d_f, d_g, d_o], 1).to(gates.dtype)
    return d_gates, (d_c * f).to(cx.dtype), d_gates.sum(0) if has_bias else None


def gru_cell(
    input_gates: Tensor,
    hidden_gates: Tensor,
    hx: Tensor,
    input_bias: Tensor | None = None,
    hidden_bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """h' and r, z, n, h, m [B, 5 H] of products [B, 3 H] and h [B, H], m being what r is multiplied with."""
    wide = _wide(input_gates.dtype)
    x_r, x_z, x_n = _sum(wide, input_gates, input_bias).chunk(3, 1)
    h_r, h_z, m = _sum(wide, hidden_gates, hidden_bias).chunk(3, 1)
    h = hx.to(wide)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * m).tanh()
    hy = n + z * (h - n)
    return hy.to(hx.dtype), torch.cat([r, z, n, h, m], 1).to(hx.dtype)


def gru_cell_backward(
    grad_hy: Tensor, kept: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of both products, of h and of both biases."""
    wide = _wide(kept.dtype)
    r, z, n, h, m = kept.to(wide).chunk(5, 1)
    d = grad_hy.to(wide)
    d_n = d * (1 - z) * (1 - n * n)
    d_z, d_r = d * (h - n) * (1 - z) * z, d_n * m * (1 - r) * r
    of_input = torch.cat([d_r, d_z, d_n], 1).to(kept.dtype)
    of_hidden = torch.cat([d_r, d_z, d_n * r], 1).to(kept.dtype)
    of_biases = (of_input.sum(0), of_hidden.sum(0)) if has_bias else (None, None)
    return of_input, of_hidden, (d * z).to(kept.dtype), *of_biases


def decompositions() -> dict[Any, Callable[..., Any]]:
    """Of those that this PyTorch has."""
    ours: dict[str, Callable[..., Any]] = {
        '_thnn_fused_lstm_cell': lstm_cell,
        '_thnn_fused_lstm_cell_backward_impl': lstm_cell_backward,
        '_thnn_fused_gru_cell': gru_cell,
        '_thnn_fused_gru_cell_backward': gru_cell_backward,
    }
    return {getattr(_aten, name).default: made for name, made in ours.items() if hasattr(_aten, name)}
