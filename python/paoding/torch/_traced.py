# SPDX-License-Identifier: Apache-2.0
"""Our layers while torch.jit.trace or an exporter writes them down: by the ops of torch.nn's layers, which exporters know,
and which take other numbers of steps and rows than those of the example."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def each_state(states: Any, change: Any) -> Any:
    """`change` of h, or of h and c."""
    return tuple(change(state) for state in states) if isinstance(states, tuple) else change(states)


def parameter_of(module: Any, name: str) -> Tensor:
    value = module._parameters.get(name)  # faster, but not where what is called so is made of other parameters
    made: Tensor = getattr(module, name) if value is None else value
    return made


def by_torchs_layers(module: Any, xs: Tensor, hx: Any, lengths: Tensor | None) -> tuple[Tensor, Any]:
    """Of xs [T, B, I] what the layers give, and the last states."""
    if lengths is None:
        return _torchs(module, xs, None, xs.shape[1], hx)
    # A packed sequence has no row of length 0: these go along with one step, of which nothing is kept.
    steps, batch, _ = xs.shape
    lengths = lengths.to(torch.int64)
    sorted_lengths, order = torch.sort(lengths.clamp(1, steps), descending=True)
    back = torch.argsort(order)
    data, batch_sizes = torch._VF._pack_padded_sequence(xs.index_select(1, order), sorted_lengths.cpu(), False)
    hx = _zeros(module, xs, batch) if hx is None else hx
    made, last = _torchs(module, data, batch_sizes, batch, each_state(hx, lambda state: state.index_select(1, order)))
    output, _ = torch._VF._pad_packed_sequence(made, batch_sizes, False, 0.0, steps)
    counts = (lengths > 0).unsqueeze(1)
    output = torch.where(counts, output.index_select(1, back), 0)
    if not isinstance(last, tuple):
        return output, torch.where(counts, last.index_select(1, back), hx)
    return output, tuple(torch.where(counts, mine.index_select(1, back), first) for mine, first in zip(last, hx))


def packed_by_torchs_layers(module: Any, data: Tensor, batch_sizes: Tensor, hx: Any) -> tuple[Tensor, Any]:
    return _torchs(module, data, batch_sizes, batch_sizes[0], hx)


def _zeros(module: Any, like: Tensor, batch: Any) -> Any:
    count = module.num_layers * (2 if module.bidirectional else 1)
    h = torch.zeros(count, batch, module.proj_size or module.hidden_size, dtype=like.dtype, device=like.device)
    if module.mode != 'LSTM':
        return h
    return h, torch.zeros(count, batch, module.hidden_size, dtype=like.dtype, device=like.device)


def _torchs(module: Any, xs: Tensor, batch_sizes: Tensor | None, batch: Any, hx: Any) -> tuple[Tensor, Any]:
    call = getattr(torch._VF, module.mode.lower())
    hx = _zeros(module, xs, batch) if hx is None else hx
    weights = [parameter_of(module, name) for name in module._flat_weights_names]
    options = (module.bias, module.num_layers, module.dropout, module.training, module.bidirectional)
    if batch_sizes is None:
        output, *last = call(xs, hx, weights, *options, False)
    else:
        output, *last = call(xs, batch_sizes, hx, weights, *options)
    return output, tuple(last) if module.mode == 'LSTM' else last[0]
