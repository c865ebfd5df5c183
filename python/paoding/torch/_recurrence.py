# SPDX-License-Identifier: Apache-2.0
"""A recurrent layer in one direction on PyTorch tensors, by the C interface (paoding/recurrent.h): as a function that
autograd knows, and as PyTorch ops, with what their results look like, for torch.compile."""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch import Tensor

from .._paoding import RecurrentPlan
from ._kernels import Kernels
from ._memory import FLOATS, address, at, check_devices, current_stream, dense, may_round_recurrence, zeros

GATES = {'lstm': 4, 'gru': 3, 'rnn_tanh': 1, 'rnn_relu': 1}
_MOST_PLANS = 128  # of a thread, and of all streams: each holds some memory of its kernels
_KEPT_BYTES = 1 << 20  # of memory that a plan works in between its calls


class _Plan:
    """A layer's kernels, and on the CPU, where a call is done when it returns, the memory that they work in."""

    def __init__(self, *key: Any) -> None:
        self.kernels = RecurrentPlan(*key)
        self.saved = self.kernels.saved
        self.forward_bytes, self.backward_bytes = self.kernels.forward_workspace, self.kernels.backward_workspace
        most = max(self.forward_bytes, self.backward_bytes)
        self._kept = torch.empty(most, dtype=torch.uint8) if key[2] == 'cpu' and most <= _KEPT_BYTES else None
        self.lock = threading.Lock()  # threads share those of GPUs

    def workspace(self, size: int, like: Tensor) -> Tensor:
        return self._kept if self._kept is not None else torch.empty(size, dtype=torch.uint8, device=like.device)


_plans: Kernels[_Plan] = Kernels(_MOST_PLANS)


def _plan(
    cell: str, x: Tensor, hidden: int, has_lengths: bool, is_reverse: bool, is_training: bool, gates_first: bool
) -> _Plan:
    steps, batch, inputs = x.shape
    dtype = FLOATS.get(x.dtype)
    if dtype is None:
        raise TypeError(f'paoding.torch: {x.dtype} is no dtype of recurrent layers')
    device = x.device
    name = str(device) if x.is_cuda else 'cpu'
    tf32 = may_round_recurrence(device)
    key = (cell, dtype, name, steps, batch, inputs, hidden, has_lengths, is_reverse, is_training, tf32, gates_first)
    return _plans.at(key, device, lambda: _Plan(*key))


def _saved_bytes(cell: str, x: Tensor, hidden: int) -> Any:
    """RecurrentPlan.saved, without making one: the gates and, of an LSTM, the cells."""
    steps, batch, _ = x.shape
    if cell not in ('lstm', 'gru'):
        return 0
    gates = steps * batch * 4 * hidden * x.element_size()
    cells = (steps + 1) * batch * hidden * cell_state_dtype(cell, x.dtype).itemsize if cell == 'lstm' else 0
    return (gates + 255) // 256 * 256 + (cells + 255) // 256 * 256


def cell_state_dtype(cell: str, dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if cell == 'lstm' and dtype in (torch.bfloat16, torch.float16) else dtype


def bias(cell: str, x: Tensor, hidden: int, b_ih: Tensor | None, b_hh: Tensor | None) -> Tensor:
    """As the kernels have it, of x's dtype: of a GRU the two of n are apart."""
    if b_ih is None or b_hh is None:
        return zeros.of(x.device, (4 if cell == 'gru' else GATES[cell]) * hidden * x.element_size())
    if b_ih.dtype != x.dtype:
        b_ih, b_hh = b_ih.to(x.dtype), b_hh.to(x.dtype)
    if cell != 'gru':
        return b_ih + b_hh
    both = torch.cat((b_ih, b_hh[2 * hidden :]))
    both[: 2 * hidden] += b_hh[: 2 * hidden]
    return both


def _bias_gradients(cell: str, hidden: int, d_b: Tensor) -> tuple[Tensor, Tensor]:
    if cell != 'gru':
        return d_b, d_b
    return d_b[: 3 * hidden], torch.cat((d_b[: 2 * hidden], d_b[3 * hidden :]))


def forward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    b: Tensor,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    is_reverse: bool,
    is_training: bool,
    gates_first: bool,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, tuple[Tensor | None, ...]]:
    """What `recurrent` gives, of which None is what is empty there, and x, w, u and h0 as the kernels read them. `b` is
    what bias() makes."""
    check_devices(x, (w, u, b, h0, c0, lengths))
    hidden = u.shape[1] if gates_first else u.shape[0]
    with at(x.device):
        plan = _plan(cell, x, hidden, lengths is not None, is_reverse, is_training, gates_first)
        steps, batch, _ = x.shape
        states, last_h, last_c = x.new_empty((steps + 1, batch, hidden)), x.new_empty((1, batch, hidden)), None
        saved = x.new_empty(plan.saved, dtype=torch.uint8) if is_training else None
        x, w, u, b = dense(x), dense(w), dense(u), dense(b)
        lengths = None if lengths is None else dense(lengths)
        h0 = None if h0 is None else dense(h0)
        first_h, first_c = _first_state(x, hidden) if h0 is None else h0, None
        if cell == 'lstm':
            last_c = x.new_empty((1, batch, hidden), dtype=cell_state_dtype(cell, x.dtype))
            first_c = _first_state(x, hidden) if c0 is None else dense(c0)
        workspace = plan.workspace(plan.forward_bytes, x)
        with plan.lock:
            plan.kernels.forward(
                x.data_ptr(),
                w.data_ptr(),
                u.data_ptr(),
                b.data_ptr(),
                first_h.data_ptr(),
                address(first_c),
                address(lengths),
                states.data_ptr(),
                last_h.data_ptr(),
                address(last_c),
                address(saved),
                workspace.data_ptr(),
                current_stream(x.device),
            )
        return states, last_h, last_c, saved, (x, w, u, h0)


def _first_state(x: Tensor, hidden: int) -> Tensor:
    return zeros.of(x.device, x.shape[1] * hidden * max(x.element_size(), 4))  # where cells in f32 go with 16 bits


def _backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    saved: Tensor,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
    gates_first: bool,
    wanted: tuple[bool, ...],
) -> tuple[Tensor | None, ...]:
    """Gradients for x, w, u, b, h0 and c0, of which `wanted` says which are made."""
    check_devices(x, (w, u, h0, lengths, states, saved, d_states, d_last_h, d_last_c))
    hidden = u.shape[1] if gates_first else u.shape[0]
    with at(x.device):
        plan = _plan(cell, x, hidden, lengths is not None, is_reverse, True, gates_first)
        d_states, d_last_h, d_last_c = (
            None if each is None else dense(each) for each in (d_states, d_last_h, d_last_c)
        )
        makers = _gradients(x, w, u, cell)
        made = tuple(maker() if is_wanted else None for maker, is_wanted in zip(makers, wanted))
        d_x, d_w, d_u, d_b, d_h0, d_c0 = map(address, made)
        workspace = plan.workspace(plan.backward_bytes, x)
        first_h = _first_state(x, hidden) if h0 is None else h0
        lengths = None if lengths is None else dense(lengths)
        with plan.lock:
            plan.kernels.backward(
                x.data_ptr(),
                w.data_ptr(),
                u.data_ptr(),
                first_h.data_ptr(),
                address(lengths),
                states.data_ptr(),
                saved.data_ptr(),
                address(d_states),
                address(d_last_h),
                address(d_last_c),
                d_x,
                d_w,
                d_u,
                d_b,
                d_h0,
                d_c0,
                workspace.data_ptr(),
                current_stream(x.device),
            )
        return made


def _results(x: Tensor, hidden: int, cell: str, saved: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    steps, batch, _ = x.shape
    return (
        x.new_empty((steps + 1, batch, hidden)),
        x.new_empty((1, batch, hidden)),
        x.new_empty((1, batch, hidden) if cell == 'lstm' else 0, dtype=cell_state_dtype(cell, x.dtype)),
        x.new_empty(saved, dtype=torch.uint8),
    )


def _gradients(x: Tensor, w: Tensor, u: Tensor, cell: str) -> tuple[Any, ...]:
    """What makes room for each."""
    batch = x.shape[1]
    hidden = min(u.shape)
    rows = (4 if cell == 'gru' else GATES[cell]) * hidden
    c_dtype = cell_state_dtype(cell, x.dtype)
    return (
        lambda: x.new_empty(x.shape),
        lambda: x.new_empty(w.shape),
        lambda: x.new_empty(u.shape),
        lambda: x.new_empty(rows),
        lambda: x.new_empty((1, batch, hidden)),
        lambda: x.new_empty((1, batch, hidden), dtype=c_dtype),
    )


class Direction(torch.autograd.Function):
    """`recurrent` in eager mode, with weights as PyTorch keeps them and a gradient: [T, B, H] of every step, last h and
    last c, [1, B, H], which is None but for LSTMs."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        w: Tensor,
        u: Tensor,
        b_ih: Tensor | None,
        b_hh: Tensor | None,
        h0: Tensor | None,
        c0: Tensor | None,
        lengths: Tensor | None,
        cell: str,
        is_reverse: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        steps, batch, hidden = x.shape[0], x.shape[1], u.shape[1]
        b = bias(cell, x, hidden, b_ih, b_hh)
        states, last_h, last_c, saved, read = forward(x, w, u, b, h0, c0, lengths, cell, is_reverse, True, True)
        first = 0 if is_reverse else batch * hidden
        # In the memory of the states, but no view of them, which nobody could write to. It is saved beside them, so that
        # a backward pass after such a write is refused.
        output = x.new_empty(0).set_(states.untyped_storage(), first, (steps, batch, hidden), (batch * hidden, hidden, 1))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*read, w, u, lengths, states, saved, output)
        ctx.cell, ctx.is_reverse = cell, is_reverse
        return output, last_h, last_c

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_output: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None) -> Any:
        x, w, u, h0, _, _, lengths, states, saved, _ = ctx.saved_tensors
        needs = ctx.needs_input_grad
        cell = ctx.cell
        wanted = (needs[0], needs[1], needs[2], needs[3] or needs[4], needs[5], needs[6])
        d_x, d_w, d_u, d_b, d_h0, d_c0 = _backward(
            x, w, u, h0, lengths, states, saved, d_output, d_last_h, d_last_c, cell, ctx.is_reverse, True, wanted
        )
        d_b_ih, d_b_hh = (None, None) if d_b is None else _bias_gradients(cell, u.shape[1], d_b)
        return d_x, d_w, d_u, d_b_ih, d_b_hh, d_h0, d_c0, None, None, None


@torch.library.custom_op('paoding::recurrent', mutates_args=())
def recurrent(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    is_reverse: bool,
    is_training: bool,
    gates_first: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States [T + 1, B, H] (h0 in front, behind in reverse), last h, last c (empty but for LSTMs), and what the backward
    pass needs. Weights are [I, G H] and [H, G H], or with `gates_first` as PyTorch keeps them."""
    b = bias(cell, x, u.shape[1] if gates_first else u.shape[0], b_ih, b_hh)
    states, last_h, last_c, saved, _ = forward(
        x, w, u, b, h0, c0, lengths, cell, is_reverse, is_training, gates_first
    )
    return (
        states,
        last_h,
        x.new_empty(0) if last_c is None else last_c,
        x.new_empty(0, dtype=torch.uint8) if saved is None else saved,
    )


@recurrent.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    lengths, cell, is_reverse, is_training, gates_first = rest[-5:]
    hidden = u.shape[1] if gates_first else u.shape[0]
    return _results(x, hidden, cell, _saved_bytes(cell, x, hidden) if is_training else 0)


@torch.library.custom_op('paoding::recurrent_backward', mutates_args=())
def recurrent_backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    saved: Tensor,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
    gates_first: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients for x, w, u, b, h0 and c0 (empty but for LSTMs)."""
    made = _backward(
        dense(x),
        dense(w),
        dense(u),
        None if h0 is None else dense(h0),
        lengths,
        states,
        saved,
        d_states,
        d_last_h,
        d_last_c,
        cell,
        is_reverse,
        gates_first,
        (True,) * 5 + (cell == 'lstm',),
    )
    d_x, d_w, d_u, d_b, d_h0, d_c0 = (x.new_empty(0) if each is None else each for each in made)
    return d_x, d_w, d_u, d_b, d_h0, d_c0


@recurrent_backward.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    cell = rest[-3]
    made = [maker() for maker in _gradients(x, w, u, cell)]
    return tuple(made if cell == 'lstm' else [*made[:5], x.new_empty(0)])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, u, b_ih, _, h0, c0, lengths, ctx.cell, ctx.is_reverse, ctx.is_training, ctx.gates_first = inputs
    states, _, _, saved = output
    ctx.has = (b_ih is not None, h0 is not None, c0 is not None)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(x, w, u, h0, lengths, states, saved)


def _gradient(ctx: Any, d_states: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None, _: Any) -> Any:
    x, w, u, h0, lengths, states, saved = ctx.saved_tensors
    if not ctx.is_training:
        raise RuntimeError('paoding::recurrent: it was called with is_training=False and has saved nothing')
    if d_states is not None:
        d_states = d_states[:-1] if ctx.is_reverse else d_states[1:]
    is_lstm = ctx.cell == 'lstm'
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
        d_last_c if is_lstm else None,
        ctx.cell,
        ctx.is_reverse,
        ctx.gates_first,
    )
    has_bias, has_h0, has_c0 = ctx.has
    d_b_ih, d_b_hh = _bias_gradients(ctx.cell, min(u.shape), d_b) if has_bias else (None, None)
    return d_x, d_w, d_u, d_b_ih, d_b_hh, d_h0 if has_h0 else None, d_c0 if has_c0 else None, *(None,) * 5


recurrent.register_autograd(_gradient, setup_context=_keep)
