# SPDX-License-Identifier: Apache-2.0
"""torch.nn.LSTM, GRU and RNN stay whole: while a graph is made for paoding, Dynamo goes into them, and torch.lstm and its like
become calls of paoding's recurrent ops, one for each layer and direction, instead of thousands of ops for the steps. Other
backends, and eager mode, get what they got. PAODING_ALLOW_RNN=0 leaves all of it out."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from .._memory import FLOATS
from .._modules import layers_forward
from .._packed import pad_packed_sequence
from .._recurrence import direct_backward, direct_forward, recurrent
from .._steps import cell_state_dtype

_state = threading.local()
_CELLS = ('lstm', 'gru', 'rnn_tanh', 'rnn_relu')
_LAYERS = (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)


@contextlib.contextmanager
def compiling_for_paoding() -> Iterator[None]:
    before = getattr(_state, 'is_ours', False)
    _state.is_ours = True
    try:
        yield
    finally:
        _state.is_ours = before


def _is_backend(compiler: Any) -> bool:
    """Whether a compiler of Dynamo's, or what it wraps, is paoding's."""
    for _ in range(8):
        if compiler is None:
            return False
        if str(getattr(compiler, '__module__', '')).startswith('paoding.'):
            return True
        wrapped = getattr(compiler, '_torchdynamo_orig_backend', None) or getattr(compiler, 'compiler_fn', None)
        if wrapped is None and isinstance(compiler, functools.partial):
            wrapped = compiler.func
        compiler = wrapped
    return False


def _is_for_paoding() -> bool:
    if getattr(_state, 'is_ours', False):
        return True
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return _is_backend(InstructionTranslator.current_tx().output.compiler_fn)
    except AttributeError:  # Dynamo is not at work on this thread
        return False


# ---- layers ----


def _runs(x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor]) -> bool:
    if x.device.type not in ('cpu', 'cuda') or x.dtype not in FLOATS or x.ndim not in (2, 3):
        return False
    return all(each.device == x.device and each.dtype == x.dtype for each in (*states, *weights))


def _layers(
    cell: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    is_bidirectional: bool,
) -> tuple[Tensor, ...]:
    """Of x [T, B, I] the states of all steps, the last ones and, of an LSTM, the last cells."""
    directions, count = (2 if is_bidirectional else 1), (4 if has_biases else 2)
    h0, c0 = (states[0], states[1]) if cell == 'lstm' else (states[0], None)
    ends_h, ends_c = [], []
    for layer in range(layers):
        made = []
        for direction in range(directions):
            at = layer * directions + direction
            w, u, *biases = weights[at * count : (at + 1) * count]
            b_ih, b_hh = biases or (None, None)
            first_c = None if c0 is None else c0[at : at + 1].to(cell_state_dtype(cell, x.dtype))
            is_training = torch.is_grad_enabled() and any(
                each is not None and each.requires_grad for each in (x, w, u, b_ih, b_hh, h0, c0)
            )
            results, last_h, last_c, *_ = recurrent(
                x, w, u, b_ih, b_hh, h0[at : at + 1], first_c, None, cell, direction == 1, is_training
            )
            made.append(results[:-1] if direction == 1 else results[1:])
            ends_h.append(last_h)
            ends_c.append(last_c.to(x.dtype))
        x = made[0] if len(made) == 1 else torch.cat(made, -1)
        if dropout > 0 and train and layer + 1 < layers:
            x = torch.nn.functional.dropout(x, dropout)
    ends = [torch.cat(ends_h)] + ([torch.cat(ends_c)] if cell == 'lstm' else [])
    return x, *ends


def _of_input(cell: str, old: Callable[..., Any]) -> Callable[..., Any]:
    def call(
        x: Tensor,
        hx: Any,
        weights: Sequence[Tensor],
        has_biases: bool,
        layers: int,
        dropout: float,
        train: bool,
        is_bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        if not _is_for_paoding():
            return old(x, hx, weights, has_biases, layers, dropout, train, is_bidirectional, batch_first)
        states = list(hx) if cell == 'lstm' else [hx]
        expected = layers * (2 if is_bidirectional else 1) * (4 if has_biases else 2)
        dtype = x.dtype
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
        given = x.to(dtype), [each.to(dtype) for each in states], [each.to(dtype) for each in weights]
        is_fit = x.ndim == 3 and x.shape[0 if not batch_first else 1] > 0 and x.shape[1 if not batch_first else 0] > 0
        if len(weights) != expected or not is_fit or not _runs(*given):
            return old(x, hx, weights, has_biases, layers, dropout, train, is_bidirectional, batch_first)
        x, states, weights = given
        xs = x.transpose(0, 1) if batch_first else x
        output, *ends = _layers(
            cell, xs, states, weights, has_biases, layers, dropout, train, is_bidirectional
        )
        return (output.transpose(0, 1) if batch_first else output, *ends)

    return call


# ---- where they are put ----


def install() -> None:
    """Once for the process."""
    if getattr(install, 'is_done', False) or os.environ.get('PAODING_ALLOW_RNN') == '0':
        return
    install.is_done = True  # type: ignore[attr-defined]
    try:
        _let_dynamo_in()
        _call_ours()
        for cell in _CELLS:
            _replace(getattr(torch.ops.aten, cell).input, functools.partial(_of_input, cell))
    except Exception as mistake:  # of a PyTorch that has changed: recurrent layers are graph breaks, as they were
        warnings.warn(
            f"paoding: recurrent layers of torch.nn stay PyTorch's under torch.compile: {type(mistake).__name__}: {mistake}",
            RuntimeWarning,
            stacklevel=2,
        )


def _replace(op: Any, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    kernels = op.py_kernels
    keys = [torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd, torch._C.DispatchKey.Meta]
    missing = [key for key in keys if key not in kernels]
    if missing:
        raise RuntimeError(f'{op} has no kernel of Python for {missing}')
    for key in keys:
        kernels[key] = make(kernels[key])
    op._dispatch_cache.clear()


def _let_dynamo_in() -> None:
    """Dynamo looks at a setting when it meets a recurrent layer: while it works for paoding, the setting is on."""
    from torch._dynamo import config
    from torch._dynamo.variables.builder import VariableBuilder

    wrap = VariableBuilder.wrap_module

    @functools.wraps(wrap)
    def wrap_module(self: Any, value: Any) -> Any:
        # Not into those that project: PyTorch's own decomposition gives other last states than its kernels.
        if isinstance(value, _LAYERS) and not value.proj_size and _is_backend(self.tx.output.compiler_fn):
            with config.patch(allow_rnn=True):
                return wrap(self, value)
        return wrap(self, value)

    VariableBuilder.wrap_module = wrap_module  # type: ignore[method-assign]


def _call_ours() -> None:
    """In graphs for paoding, layers of a PackedSequence and pad_packed_sequence are functions of ours; other layers go by
    torch.lstm and its like."""
    from torch._dynamo.variables.functions import UserFunctionVariable

    rnn = torch.nn.utils.rnn
    forwards = {layer.forward for layer in _LAYERS}
    call = UserFunctionVariable.call_function

    @functools.wraps(call)
    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.fn in forwards or self.fn is rnn.pad_packed_sequence:
            made: Any = _our_function(self.fn, args) if _is_backend(tx.output.compiler_fn) else None
            if made is not None:
                return call(UserFunctionVariable(made), tx, args, kwargs)
        return call(self, tx, args, kwargs)

    UserFunctionVariable.call_function = call_function  # type: ignore[method-assign]
    # Its number of rows depends on data, so a graph ends there.
    torch._dynamo.disallow_in_graph(torch._VF._pack_padded_sequence)
    warnings.filterwarnings('ignore', message='Dynamo does not know how to trace the builtin .*_pack_padded_sequence')


def _our_function(function: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    if function is torch.nn.utils.rnn.pad_packed_sequence:
        return pad_packed_sequence
    is_packed = len(args) > 1 and args[1].python_type() is torch.nn.utils.rnn.PackedSequence
    return layers_forward if is_packed else None


# ---- calls ----


def as_direct_call(node: fx.Node) -> Callable[..., Any] | None:
    """In generated code our ops are functions: PyTorch's dispatcher would cost more than the call."""
    ours: dict[Any, Callable[..., Any]] = {
        torch.ops.paoding.recurrent.default: direct_forward,
        torch.ops.paoding.recurrent_backward.default: direct_backward,
    }
    return ours.get(node.target)
