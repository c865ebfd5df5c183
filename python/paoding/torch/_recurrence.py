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
from ._memory import (
    FLOATS,
    address,
    at,
    check_devices,
    current_stream,
    dense,
    is_captured,
    may_round_recurrence,
    workspace,
    zeros,
)
from ._steps import by_steps, cell_state_dtype
from ._ways import is_stack, refuse_tangents

_MOST_PLANS = 128  # of all streams: each holds some memory of its kernels on the GPU
_MOST_PLANS_ON_CPU = 1024  # of a thread: every length of a data set, for some layers, at up to 0.3 MiB each


class _Plan:
    """A layer's kernels, and how much memory they take."""

    def __init__(self, *key: Any) -> None:
        self.kernels = RecurrentPlan(*key)
        self.saved = self.kernels.saved
        self.forward_bytes, self.backward_bytes = self.kernels.forward_workspace, self.kernels.backward_workspace
        self.lock = threading.Lock()  # threads share those of GPUs


_plans: Kernels[_Plan] = Kernels(_MOST_PLANS, _MOST_PLANS_ON_CPU)


def _plan(
    cell: str,
    x: Tensor,
    hidden: int,
    has_lengths: bool,
    is_reverse: bool,
    is_training: bool,
    gates_first: bool,
    is_first: bool,
) -> _Plan:
    steps, batch, inputs = x.shape
    dtype, device = dtype_of(x), x.device
    name, tf32 = (str(device), may_round_recurrence(device)) if x.is_cuda else ('cpu', False)
    key = (
        *(cell, dtype, name, steps, batch, inputs, hidden, has_lengths, is_reverse, is_training, tf32),
        *(gates_first, True, is_first),  # True: weights, and the two biases, as PyTorch keeps them
    )
    return _plans.at(key, device, lambda: _Plan(*key))


def dtype_of(x: Tensor) -> str:
    dtype = FLOATS.get(x.dtype)
    if dtype is None:
        raise TypeError(f'paoding.torch: {x.dtype} is no dtype of recurrent layers')
    return dtype


def saved_values(cell: str, x: Tensor, hidden: int) -> tuple[Tensor, Tensor]:
    """Room for what a backward pass needs: the gates and, of an LSTM, the cells; empty where there are none."""
    steps, batch, _ = x.shape
    return (
        x.new_empty((steps, batch, 4 * hidden) if cell in ('lstm', 'gru') else 0),
        x.new_empty((steps + 1, batch, hidden) if cell == 'lstm' else 0, dtype=cell_state_dtype(cell, x.dtype)),
    )


def forward(
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
    is_first: bool = False,
    saved: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, tuple[Tensor | None, ...], _Plan | None]:
    """States, last h, last c and the memory of what is saved (None where there is none), x, w, u and h0 as the kernels read
    them, and these (None where there are no rows). `is_first`: nobody wants a gradient of x. `saved`: places for gates and
    cells; without them both lie in one piece of memory."""
    check_devices(x, (w, u, b_ih, b_hh, h0, c0, lengths))
    hidden = u.shape[1]
    steps, batch, _ = x.shape
    if batch == 0:
        dtype_of(x)
        states, last_h, empty_c = _results(x, hidden, cell)
        nothing = x.new_empty(0, dtype=torch.uint8) if is_training else None
        return states, last_h, empty_c if cell == 'lstm' else None, nothing, (x, w, u, h0), None
    # The CPU widens f16 anew in every step, so it is widened before, which takes less than in one of those.
    is_widened = x.dtype == torch.float16 and not x.is_cuda and not is_training
    if is_widened:
        w, u = w.t(), u.t()
    with at(x.device):
        plan = _plan(cell, x, hidden, lengths is not None, is_reverse, is_training, not is_widened, is_first)
        states, last_h, last_c = x.new_empty((steps + 1, batch, hidden)), x.new_empty((1, batch, hidden)), None
        kept, cells = saved or (x.new_empty(plan.saved, dtype=torch.uint8) if is_training else None, None)
        x, w, u = dense(x), dense(w), dense(u)
        if b_ih is None or b_hh is None:
            b_ih = b_hh = zeros.of(x.device, 4 * hidden * x.element_size())
        else:
            b_ih, b_hh = dense(b_ih), dense(b_hh)
        lengths = None if lengths is None else dense(lengths)
        h0 = None if h0 is None else dense(h0)
        first_h, first_c = _first_state(x, hidden) if h0 is None else h0, None
        if cell == 'lstm':
            last_c = x.new_empty((1, batch, hidden), dtype=cell_state_dtype(cell, x.dtype))
            first_c = _first_state(x, hidden) if c0 is None else dense(c0)
        room = workspace(plan.forward_bytes, x.device)
        with plan.lock:
            plan.kernels.forward(
                x.data_ptr(),
                w.data_ptr(),
                u.data_ptr(),
                b_ih.data_ptr(),
                first_h.data_ptr(),
                address(first_c),
                address(lengths),
                states.data_ptr(),
                last_h.data_ptr(),
                address(last_c),
                address(kept),
                address(cells),
                room.data_ptr(),
                b_hh.data_ptr(),
                current_stream(x.device),
            )
        return states, last_h, last_c, kept, (x, w, u, h0), plan


def _first_state(x: Tensor, hidden: int) -> Tensor:
    return zeros.of(x.device, x.shape[1] * hidden * max(x.element_size(), 4))  # where cells in f32 go with 16 bits


def _backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    saved: Tensor | None,
    cells: Tensor | None,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
    wanted: tuple[bool, ...],
    plan: _Plan | None,
) -> tuple[Tensor | None, ...]:
    """Gradients for x, w, u, the two biases, h0 and c0, of which `wanted` says which are made. Of weights as PyTorch keeps
    them; `plan` is what the forward pass went by, if it is known. Without `cells` they lie behind the gates in `saved`."""
    hidden = u.shape[1]
    if x.shape[1] == 0:
        return tuple(None if each is None else each.zero_() for each in _room(x, w, u, cell, wanted))
    with at(x.device):
        if plan is None or is_captured(x.device):
            plan = _plan(cell, x, hidden, lengths is not None, is_reverse, True, True, not wanted[0])
        if d_states is not None:
            d_states = dense(d_states)
        if d_last_h is not None:
            d_last_h = dense(d_last_h)
        if d_last_c is not None:
            d_last_c = dense(d_last_c)
        if lengths is not None:
            lengths = dense(lengths)
        made = _room(x, w, u, cell, wanted)
        d_x, d_w, d_u, d_b, d_b_hh, d_h0, d_c0 = map(address, made)
        room = workspace(plan.backward_bytes, x.device)
        first_h = _first_state(x, hidden) if h0 is None else h0
        with plan.lock:
            plan.kernels.backward(
                x.data_ptr(),
                w.data_ptr(),
                u.data_ptr(),
                first_h.data_ptr(),
                address(lengths),
                states.data_ptr(),
                address(saved),
                address(cells),
                address(d_states),
                address(d_last_h),
                address(d_last_c),
                d_x,
                d_w,
                d_u,
                d_b,
                d_h0,
                d_c0,
                room.data_ptr(),
                d_b_hh,
                current_stream(x.device),
            )
        return made


def _results(x: Tensor, hidden: int, cell: str) -> tuple[Tensor, Tensor, Tensor]:
    steps, batch, _ = x.shape
    return (
        x.new_empty((steps + 1, batch, hidden)),
        x.new_empty((1, batch, hidden)),
        x.new_empty((1, batch, hidden) if cell == 'lstm' else 0, dtype=cell_state_dtype(cell, x.dtype)),
    )


def _room(x: Tensor, w: Tensor, u: Tensor, cell: str, wanted: tuple[bool, ...]) -> tuple[Tensor | None, ...]:
    """For each of the gradients that are wanted: of x, w, u, the two biases, h0 and c0."""
    of_x, of_w, of_u, of_b, of_b_hh, of_h0, of_c0 = wanted
    state = (1, x.shape[1], u.shape[1])
    rows = u.shape[0]
    return (
        x.new_empty(x.shape) if of_x else None,
        x.new_empty(w.shape) if of_w else None,
        x.new_empty(u.shape) if of_u else None,
        x.new_empty(rows) if of_b else None,
        x.new_empty(rows) if of_b_hh else None,
        x.new_empty(state) if of_h0 else None,
        x.new_empty(state, dtype=cell_state_dtype(cell, x.dtype)) if of_c0 else None,
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
        is_first = not ctx.needs_input_grad[0]
        states, last_h, last_c, saved, read, ctx.plan = forward(
            x, w, u, b_ih, b_hh, h0, c0, lengths, cell, is_reverse, True, is_first
        )
        first = 0 if is_reverse else batch * hidden
        # In the memory of the states, but no view of them, which nobody could write to. It is saved beside them, so that
        # a backward pass after such a write is refused.
        output: Any = x.new_empty(0)  # PyTorch's types know set_ of a tensor without extents only
        output.set_(states, first, (steps, batch, hidden), (batch * hidden, hidden, 1))
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*read, w, u, lengths, states, saved, output, None if read[0] is x else x)
        ctx.others = [(each, _version_of(each)) for each in (b_ih, b_hh, h0, c0) if each is not None]
        ctx.has = (b_ih is not None, h0 is not None, c0 is not None)
        ctx.cell, ctx.is_reverse = cell, is_reverse
        return output, last_h, last_c

    @staticmethod
    def backward(ctx: Any, d_output: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None) -> Any:
        given = (d_output, d_last_h, d_last_c)
        is_one = (
            (d_output is None or not is_stack(d_output))
            and (d_last_h is None or not is_stack(d_last_h))
            and (d_last_c is None or not is_stack(d_last_c))
        )
        if torch.is_grad_enabled():
            made = _pass_back_by_steps(ctx, given)
        elif is_one:
            x, w, u, h0, _, _, lengths, states, saved, *_ = ctx.saved_tensors
            needs = ctx.needs_input_grad[:7]
            made = _backward(x, w, u, h0, lengths, states, saved, None, *given, ctx.cell, ctx.is_reverse, needs, ctx.plan)
        else:
            made = _pass_back_by_op(ctx, given)
        return *made, None, None, None


def _version_of(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


def _pass_back_by_op(ctx: Any, given: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    x, w, u, h0, _, _, lengths, states, saved, *_ = ctx.saved_tensors
    made = recurrent_backward(x, w, u, h0, lengths, states, saved, None, *given, ctx.cell, ctx.is_reverse)
    return tuple(each if needed else None for each, needed in zip(made, ctx.needs_input_grad))


def _pass_back_by_steps(ctx: Any, given: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    """With what gradients of gradients need (create_graph=True), which the kernels do not make."""
    x, _, _, _, w, u, lengths, _, _, _, x_itself = ctx.saved_tensors
    for each, version in ctx.others:
        if _version_of(each) != version:
            raise RuntimeError(
                'paoding.torch: a bias or initial state, which gradients of gradients need, has been modified by an '
                'inplace operation'
            )
    # As views, so that of a tensor that is two of them each has its own gradient.
    x, w, u = (each.view_as(each) for each in (x if x_itself is None else x_itself, w, u))
    others = (each.view_as(each) for each, _ in ctx.others)
    has_bias, has_h0, has_c0 = ctx.has
    b_ih, b_hh, h0, c0 = (next(others) if is_there else None for is_there in (has_bias, has_bias, has_h0, has_c0))
    results = by_steps(ctx.cell, x, w, u, None, b_ih, b_hh, h0, c0, lengths, ctx.is_reverse)
    read = (x, w, u, b_ih, b_hh, h0, c0)
    seeded = [(result, seed) for result, seed in zip(results, given) if result is not None and seed is not None]
    wanted = [each for each, needed in zip(read, ctx.needs_input_grad) if needed and each is not None]
    if not seeded:
        return (None,) * 7
    outputs, seeds = zip(*seeded)
    found = iter(torch.autograd.grad(outputs, wanted, seeds, create_graph=True, allow_unused=True))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad[:7])


Results = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def direct_forward(
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
) -> Results:
    """The op `recurrent` without PyTorch's dispatcher."""
    gates, cells = saved_values(cell if is_training else '', x, u.shape[1])
    states, last_h, last_c, *_ = forward(
        x, w, u, b_ih, b_hh, h0, c0, lengths, cell, is_reverse, is_training, saved=(gates, cells)
    )
    return states, last_h, x.new_empty(0) if last_c is None else last_c, gates, cells


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
) -> Results:
    """States [T + 1, B, H] (h0 in front, after in reverse), last h, last c (empty but for LSTMs), and with is_training what
    the backward pass needs: gates [T, B, 4 H] (empty but for LSTMs and GRUs) and cells [T + 1, B, H] (empty but for LSTMs).
    Weights and biases are as PyTorch keeps them."""
    refuse_tangents('paoding::recurrent', (x, w, u, b_ih, b_hh, h0, c0))
    return direct_forward(x, w, u, b_ih, b_hh, h0, c0, lengths, cell, is_reverse, is_training)


@recurrent.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, *rest: Any) -> Results:
    _, cell, _, is_training = rest[-4:]
    hidden = u.shape[1]
    return *_results(x, hidden, cell), *saved_values(cell if is_training else '', x, hidden)


def direct_backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    gates: Tensor | None,
    cells: Tensor | None,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The op `recurrent_backward` without PyTorch's dispatcher."""
    check_devices(x, (w, u, h0, lengths, states, gates, cells, d_states, d_last_h, d_last_c))
    made = _backward(
        dense(x),
        dense(w),
        dense(u),
        None if h0 is None else dense(h0),
        None if lengths is None else dense(lengths),
        dense(states),
        None if gates is None else dense(gates),
        None if cells is None else dense(cells),
        d_states,
        d_last_h,
        d_last_c,
        cell,
        is_reverse,
        (True,) * 6 + (cell == 'lstm',),
        None,
    )
    d_x, d_w, d_u, d_b_ih, d_b_hh, d_h0, d_c0 = (x.new_empty(0) if each is None else each for each in made)
    return d_x, d_w, d_u, d_b_ih, d_b_hh, d_h0, d_c0


@torch.library.custom_op('paoding::recurrent_backward', mutates_args=())
def recurrent_backward(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    h0: Tensor | None,
    lengths: Tensor | None,
    states: Tensor,
    gates: Tensor | None,
    cells: Tensor | None,
    d_states: Tensor | None,
    d_last_h: Tensor | None,
    d_last_c: Tensor | None,
    cell: str,
    is_reverse: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients for x, w, u, the two biases, h0 and c0 (empty but for LSTMs). An LSTM's cells may lie in `gates`, which then is
    memory of both, in bytes."""
    return direct_backward(
        x, w, u, h0, lengths, states, gates, cells, d_states, d_last_h, d_last_c, cell, is_reverse
    )


@recurrent_backward.register_fake
def _(x: Tensor, w: Tensor, u: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    cell = rest[-2]
    made = _room(x, w, u, cell, (True,) * 6 + (cell == 'lstm',))
    return tuple(x.new_empty(0) if each is None else each for each in made)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    x, w, u, b_ih, _, h0, c0, lengths, ctx.cell, ctx.is_reverse, ctx.is_training = inputs
    states, _, _, gates, cells = output
    ctx.has = (b_ih is not None, h0 is not None, c0 is not None)
    ctx.set_materialize_grads(False)
    has_gates, has_cells = ctx.cell in ('lstm', 'gru'), ctx.cell == 'lstm'
    ctx.save_for_backward(x, w, u, h0, lengths, states, gates if has_gates else None, cells if has_cells else None)


def _gradient(ctx: Any, d_states: Tensor | None, d_last_h: Tensor | None, d_last_c: Tensor | None, *_: Any) -> Any:
    x, w, u, h0, lengths, states, gates, cells = ctx.saved_tensors
    if not ctx.is_training:
        raise RuntimeError('paoding::recurrent: it was called with is_training=False and has saved nothing')
    if d_states is not None:
        d_states = d_states[:-1] if ctx.is_reverse else d_states[1:]
    is_lstm = ctx.cell == 'lstm'
    d_x, d_w, d_u, d_b_ih, d_b_hh, d_h0, d_c0 = recurrent_backward(
        x,
        w,
        u,
        h0,
        lengths,
        states,
        gates,
        cells,
        d_states,
        d_last_h,
        d_last_c if is_lstm else None,
        ctx.cell,
        ctx.is_reverse,
    )
    has_bias, has_h0, has_c0 = ctx.has
    of_biases = (d_b_ih, d_b_hh) if has_bias else (None, None)
    return d_x, d_w, d_u, *of_biases, d_h0 if has_h0 else None, d_c0 if has_c0 else None, *(None,) * 4


recurrent.register_autograd(_gradient, setup_context=_keep)
