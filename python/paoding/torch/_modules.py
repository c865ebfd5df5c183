# SPDX-License-Identifier: Apache-2.0
"""LSTM, GRU and RNN in place of torch.nn's: the same parameters under the same names, other kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._memory import checked, lengths_at
from ._packed import packed, padded
from ._projected import projected_lstm
from ._recurrence import Direction, dtype_of, forward, recurrent
from ._steps import by_steps, cell_state_dtype
from ._traced import by_torchs_layers, each_state, packed_by_torchs_layers, parameter_of
from ._ways import Way, way_of

_CELLS = {'LSTM': 'lstm', 'GRU': 'gru', 'RNN_TANH': 'rnn_tanh', 'RNN_RELU': 'rnn_relu'}


def layers_forward(module: Any, input: Any, hx: Any = None, lengths: Tensor | None = None) -> Any:
    """Of a layer of ours or of torch.nn's: what its forward() gives. `lengths` [B] may stand for a PackedSequence."""
    if isinstance(input, PackedSequence):
        return _packed(module, input, hx)
    if isinstance(input, torch.fx.Proxy):
        # A module that torch.fx does not look into, as those of torch.nn are.
        tracer: Any = input.tracer
        return tracer.create_proxy('call_module', tracer.path_of_module(module), (input, hx, lengths), {})
    if isinstance(hx, list):
        hx = tuple(hx)
    if input.dim() not in (2, 3):
        raise ValueError(f'LSTM: Expected input to be 2D or 3D, got {input.dim()}D instead')
    is_batched = input.dim() == 3
    if not is_batched:
        input = input.unsqueeze(0 if module.batch_first else 1)
        hx = None if hx is None else each_state(hx, lambda state: state.unsqueeze(1))
    xs = input.transpose(0, 1) if module.batch_first else input
    way = _way_of(xs)
    if lengths is not None:
        if way != 'traced' and tuple(lengths.shape) != (xs.shape[1],):
            raise RuntimeError(
                f'lengths has shape {list(lengths.shape)}, needed is [{xs.shape[1]}], one for each row'
            )
        lengths = lengths_at(checked(lengths, xs.shape[0], way), xs.device)
    output, last = _layers(module, xs, hx, lengths, way)
    output = output.transpose(0, 1) if module.batch_first else output
    if not is_batched:
        output, last = (
            output.squeeze(0 if module.batch_first else 1),
            each_state(last, lambda state: state.squeeze(1)),
        )
    return output, last


def _way_of(xs: Tensor) -> Way:
    """On other devices, the meta device of shapes without values as an example, layers are PyTorch's own ops."""
    return way_of((xs,)) if xs.device.type in ('cpu', 'cuda') else 'traced'


def _packed(module: Any, input: PackedSequence, hx: Any) -> Any:
    data, batch_sizes, sorted_indices, unsorted_indices = input
    if hx is not None and sorted_indices is not None:
        hx = each_state(hx, lambda state: state.index_select(1, sorted_indices))
    way = _way_of(data)
    if way == 'traced':
        data, last = packed_by_torchs_layers(module, data, batch_sizes, hx)
    else:
        xs, lengths = padded(input, hx, way)
        output, last = _layers(module, xs, hx, lengths_at(lengths, xs.device), way)
        data = packed(output, lengths, data.shape[0], way)
    if unsorted_indices is not None:
        last = each_state(last, lambda state: state.index_select(1, unsorted_indices))
    return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices), last


def _layers(module: Any, xs: Tensor, hx: Any, lengths: Tensor | None, way: Way) -> tuple[Tensor, Any]:
    if way == 'traced':
        return by_torchs_layers(module, xs, hx, lengths)
    cell = _CELLS[module.mode]
    count = module.num_layers * (2 if module.bidirectional else 1)
    _check(module, xs, hx, count)
    if torch.is_autocast_enabled(xs.device.type):
        xs = xs.to(torch.get_autocast_dtype(xs.device.type))
    else:
        _check_dtype(module, xs)
    h0, c0 = (hx if cell == 'lstm' else (hx, None)) if hx is not None else (None, None)
    ends_h: list[Tensor] = []
    ends_c: list[Any] = []
    for layer in range(module.num_layers):
        outputs = []
        for direction in range(2 if module.bidirectional else 1):
            at = len(ends_h)
            first_h, first_c = (
                state if state is None or count == 1 else state[at : at + 1] for state in (h0, c0)
            )
            output, last_h, last_c = _direction(
                module, cell, xs, layer, direction == 1, first_h, first_c, lengths, way
            )
            outputs.append(output)
            ends_h.append(last_h)
            ends_c.append(last_c)
        xs = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
        if module.dropout > 0 and module.training and layer + 1 < module.num_layers:
            xs = torch.nn.functional.dropout(xs, module.dropout)
    last: Any = ends_h[0] if count == 1 else torch.cat(ends_h)
    if cell == 'lstm':
        last = (last, ends_c[0] if count == 1 else torch.cat(ends_c))
    return xs, last


def _check(module: Any, xs: Tensor, hx: Any, count: int) -> None:
    if xs.shape[-1] != module.input_size:
        raise RuntimeError(
            f'input.size(-1) must be equal to input_size. Expected {module.input_size}, got {xs.shape[-1]}'
        )
    if xs.shape[0] == 0:
        raise RuntimeError('Expected sequence length to be larger than 0 in RNN')
    batch, hidden = xs.shape[1], module.hidden_size
    states = hx if isinstance(hx, tuple) else () if hx is None else (hx,)
    for state, width in zip(states, (module.proj_size or hidden, hidden)):
        wanted = (count, batch, width)
        if tuple(state.shape) != wanted:
            raise RuntimeError(f'Expected hidden size {wanted}, got {list(state.shape)}')


def _check_dtype(module: Any, xs: Tensor) -> None:
    weights = parameter_of(module, 'weight_ih_l0').dtype
    if xs.dtype != weights:
        raise ValueError(
            f'RNN input dtype ({xs.dtype}) does not match weight dtype ({weights}). Convert input: input.to({weights}), '
            f'or convert model: model.to({xs.dtype})'
        )


def _direction(
    module: Any,
    cell: str,
    xs: Tensor,
    layer: int,
    is_reverse: bool,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    way: Way,
) -> tuple[Tensor, Tensor, Tensor | None]:
    suffix = f'l{layer}{"_reverse" if is_reverse else ""}'
    w, u = parameter_of(module, f'weight_ih_{suffix}'), parameter_of(module, f'weight_hh_{suffix}')
    b_ih, b_hh = None, None
    if module.bias:
        b_ih, b_hh = parameter_of(module, f'bias_ih_{suffix}'), parameter_of(module, f'bias_hh_{suffix}')
    dtype = xs.dtype
    if h0 is not None and h0.dtype != dtype:
        h0 = h0.to(dtype)
    if c0 is not None:
        c0 = c0.to(cell_state_dtype(cell, dtype))
    if way == 'steps' or (module.proj_size > 0 and xs.shape[1] == 0):
        dtype_of(xs)
        p = parameter_of(module, f'weight_hr_{suffix}').to(dtype) if module.proj_size > 0 else None
        b_ih, b_hh = (None if each is None else each.to(dtype) for each in (b_ih, b_hh))
        output, last_h, last_c = by_steps(
            cell, xs, w.to(dtype), u.to(dtype), p, b_ih, b_hh, h0, c0, lengths, is_reverse
        )
        return output, last_h, None if last_c is None else last_c.to(dtype)
    if module.proj_size > 0:
        p = parameter_of(module, f'weight_hr_{suffix}').to(dtype)
        b = None if b_ih is None or b_hh is None else b_ih.to(dtype) + b_hh.to(dtype)
        return projected_lstm(xs, w.to(dtype), u.to(dtype), p, b, h0, c0, lengths, is_reverse)
    is_training = torch.is_grad_enabled() and (
        w.requires_grad
        or xs.requires_grad
        or u.requires_grad
        or any(each is not None and each.requires_grad for each in (b_ih, b_hh, h0, c0))
    )
    is_plain = way == 'kernels'
    # Nothing that is made of weights is kept from call to call: that they were written (through .data, by a fused
    # optimizer, by NumPy, by a captured graph) is nowhere to be seen.
    if w.dtype != dtype:
        w, u = w.to(dtype), u.to(dtype)
        b_ih, b_hh = (None if each is None else each.to(dtype) for each in (b_ih, b_hh))
    if is_plain and is_training:
        output, last_h, last_c = Direction.apply(xs, w, u, b_ih, b_hh, h0, c0, lengths, cell, is_reverse)  # type: ignore[no-untyped-call]
    else:
        run = forward if is_plain else recurrent
        states, last_h, last_c, *_ = run(xs, w, u, b_ih, b_hh, h0, c0, lengths, cell, is_reverse, is_training)
        output = states[:-1] if is_reverse else states[1:]
    if last_c is not None and last_c.dtype != dtype and cell == 'lstm':
        last_c = last_c.to(dtype)
    return output, last_h, last_c


class _Recurrent(torch.nn.RNNBase):
    """What the three share. `lengths` [B], on the device of the input, may stand for a PackedSequence. They are no
    torch.nn.LSTM and its like themselves, since torch.compile does not go into those."""

    def forward(self, input: Any, hx: Any = None, lengths: Tensor | None = None) -> Any:
        if torch.compiler.is_compiling() or not torch._C._autograd._profiler_enabled():
            return layers_forward(self, input, hx, lengths)
        with torch.autograd.profiler.record_function(f'paoding.torch.{self}'):
            return layers_forward(self, input, hx, lengths)

    def __prepare_scriptable__(self) -> torch.nn.Module:
        """What torch.jit.script makes of it, in the model too: torch.nn's layer, with these parameters."""
        theirs: type[torch.nn.Module] = getattr(torch.nn, self.mode.split('_')[0])
        made = theirs.__new__(theirs)
        made.__setstate__(self.__getstate__())  # type: ignore[no-untyped-call]
        return made


class LSTM(_Recurrent):
    """As torch.nn.LSTM. With a projection its steps are a scan, of which the backward pass computes the values again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__('LSTM', *args, **kwargs)


class GRU(_Recurrent):
    """As torch.nn.GRU."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__('GRU', *args, **kwargs)


class RNN(_Recurrent):
    """As torch.nn.RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = 'tanh',
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if nonlinearity not in ('tanh', 'relu'):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f'RNN_{nonlinearity.upper()}', input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity
