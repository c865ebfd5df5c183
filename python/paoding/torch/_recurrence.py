# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer in one direction as PyTorch ops, by the C interface (paoding/recurrent.h): forward, backward, what
their results look like to torch.compile, and the gradient."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor

from .._paoding import RecurrentPlan

GATES = {'lstm': 4, 'gru': 3, 'rnn_tanh': 1, 'rnn_relu': 1}
_DTYPES = {torch.float32: 'f32', torch.float64: 'f64', torch.bfloat16: 'bf16', torch.float16: 'f16'}
_MOST_PLANS = 128  # of a thread: each holds some memory of its kernels


class _Plans(threading.local):
    """Plans by layer; one plan is one thread's."""

    def __init__(self) -> None:
        self.all: OrderedDict[tuple[Any, ...], RecurrentPlan] = OrderedDict()

    def at(self, *key: Any) -> RecurrentPlan:
        plan = self.all.get(key)
        if plan is None:
            plan = self.all[key] = RecurrentPlan(*key)
            if len(self.all) > _MOST_PLANS:
                self.all.popitem(last=False)
        else:
            self.all.move_to_end(key)
        return plan


_plans = _Plans()


def _plan(cell: str, x: Tensor, hidden: int, has_lengths: bool, is_reverse: bool, is_training: bool) -> RecurrentPlan:
    steps, batch, inputs = x.shape
    if x.dtype not in _DTYPES:
        raise TypeError(f'paoding.torch: {x.dtype} is no dtype of recurrent layers')
    device = 'cpu' if x.device.type == 'cpu' else str(x.device)
    tf32 = x.device.type == 'cuda' and torch.backends.cudnn.allow_tf32
    return _plans.at(
        cell, _DTYPES[x.dtype], device, steps, batch, inputs, hidden, has_lengths, is_reverse, is_training, tf32
    )


def _stream(x: Tensor) -> int:
    return torch.cuda.current_stream(x.device).cuda_stream if x.device.type == 'cuda' else 0


def _dense(tensor: Tensor) -> Tensor:
    """As the kernels read it: dense, at an address that a new tensor could have."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % (256 if tensor.is_cuda else 64) == 0 else tensor.clone()


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _cell_state_dtype(cell: str, x: Tensor) -> torch.dtype:
    return torch.float32 if cell == 'lstm' and x.element_size() == 2 else x.dtype


@torch.library.custom_op('paoding::recurrent', mutates_args=())
def recurrent(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    b: Tensor,
    h0: Tensor,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    is_reverse: bool,
    is_training: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States [T + 1, B, H] (h0 in front, behind in reverse), last h, last c (empty but for LSTMs), and what the backward
    pass needs."""
    hidden = u.shape[0]
    plan = _plan(cell, x, hidden, lengths is not None, is_reverse, is_training)
    states, last_h, last_c, saved = _results(x, hidden, cell, plan.saved if is_training else 0)
    workspace = torch.empty(plan.forward_workspace, dtype=torch.uint8, device=x.device)
    x, w, u, b, h0 = (_dense(each) for each in (x, w, u, b, h0))
    c0 = None if c0 is None else _dense(c0)
    plan.forward(
        x.data_ptr(),
        w.data_ptr(),
        u.data_ptr(),
        b.data_ptr(),
        h0.data_ptr(),
        _address(c0),
        _address(lengths),
        states.data_ptr(),
        last_h.data_ptr(),
        last_c.data_ptr() if cell == 'lstm' else 0,
        saved.data_ptr() if is_training else 0,
        workspace.data_ptr(),
        _stream(x),
    )
    return states, last_h, last_c, saved


def _results(x: Tensor, hidden: int, cell: str, saved: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    steps, batch, _ = x.shape
    return (
        x.new_empty(steps + 1, batch, hidden),
        x.new_empty(batch, hidden),
        x.new_empty((batch, hidden) if cell == 'lstm' else 0, dtype=_cell_state_dtype(cell, x)),
        x.new_empty(saved, dtype=torch.uint8),
    )


@recurrent.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lengths, cell, is_reverse, is_training = rest[-4:]
    hidden = u.shape[0]
    saved = _plan(cell, x, hidden, lengths is not None, is_reverse, True).saved if is_training else 0
    return _results(x, hidden, cell, saved)


@torch.library.custom_op('paoding::recurrent_backward', mutates_args=())
def recurrent_backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor,
    lengths: Tensor | None,
    states: Tensor,
    saved: Tensor,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients for x, w, u, b, h0 and c0 (empty but for LSTMs)."""
    plan = _plan(cell, x, u.shape[0], lengths is not None, is_reverse, True)
    results = _gradients(x, w, u, h0, cell)
    workspace = torch.empty(plan.backward_workspace, dtype=torch.uint8, device=x.device)
    x, w, u, h0 = (_dense(each) for each in (x, w, u, h0))
    d_states, d_last_h, d_last_c = (None if each is None else _dense(each) for each in (d_states, d_last_h, d_last_c))
    d_x, d_w, d_u, d_b, d_h0, d_c0 = results
    plan.backward(
        x.data_ptr(),
        w.data_ptr(),
        u.data_ptr(),
        h0.data_ptr(),
        _address(lengths),
        states.data_ptr(),
        saved.data_ptr(),
        _address(d_states),
        _address(d_last_h),
        _address(d_last_c),
        d_x.data_ptr(),
        d_w.data_ptr(),
        d_u.data_ptr(),
        d_b.data_ptr(),
        d_h0.data_ptr(),
        d_c0.data_ptr() if cell == 'lstm' else 0,
        workspace.data_ptr(),
        _stream(x),
    )
    return results


def _gradients(
    x: Tensor, w: Tensor, u: Tensor, h0: Tensor, cell: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    hidden = u.shape[0]
    return (
        torch.empty(x.shape, dtype=x.dtype, device=x.device),
        torch.empty(w.shape, dtype=x.dtype, device=x.device),
        torch.empty(u.shape, dtype=x.dtype, device=x.device),
        x.new_empty(4 * hidden if cell == 'gru' else w.shape[1]),
        torch.empty(h0.shape, dtype=x.dtype, device=x.device),
        x.new_empty(h0.shape if cell == 'lstm' else 0, dtype=_cell_state_dtype(cell, x)),
    )


@recurrent_backward.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, h0: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _gradients(x, w, u, h0, rest[-2])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, u, _, h0, _, lengths, ctx.cell, ctx.is_reverse, is_training = inputs
    states, _, _, saved = output
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, u, h0, lengths, states, saved)
    ctx.is_training = is_training


def _backward(ctx: Any, d_states: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None, _: Any) -> Any:
    x, w, u, h0, lengths, states, saved = ctx.saved_tensors
    if not ctx.is_training:
        raise RuntimeError('paoding::recurrent: it was called with is_training=False and has saved nothing')
    if d_states is not None:
        d_states = d_states[:-1] if ctx.is_reverse else d_states[1:]
    d_x, d_w, d_u, d_b, d_h0, d_c0 = recurrent_backward(
        x,
        w,
        u,
        h0,
        lengths,
        states,
        saved,
        d_states,
        d_last_h,
        d_last_c if ctx.cell == 'lstm' else None,
        ctx.cell,
        ctx.is_reverse,
    )
    return d_x, d_w, d_u, d_b, d_h0, d_c0 if ctx.cell == 'lstm' else None, None, None, None, None


recurrent.register_autograd(_backward, setup_context=_keep)
