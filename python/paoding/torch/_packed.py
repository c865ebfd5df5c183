# SPDX-License-Identifier: Apache-2.0
"""A PackedSequence as steps of rows that end, and back. While ops are written down as ops of our own: of PyTorch's nobody
knows, before they run, how large their results are. Under transforms by indices, as PyTorch's have no forward mode."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence

from ._ways import Way


def padded(packed: PackedSequence, hx: Any, way: Way) -> tuple[Tensor, Tensor]:
    """[T, B, ..] and the rows' lengths [B]. Only what runs knows B from the sequence itself."""
    data, batch_sizes, sorted_indices, _ = packed
    if way == 'steps':
        return _padded_by_index(data, batch_sizes)
    if way != 'op':
        return _pad(data, batch_sizes)
    batch = -1
    if sorted_indices is not None:
        batch = sorted_indices.shape[0]
    elif hx is not None:
        batch = (hx[0] if isinstance(hx, tuple) else hx).shape[1]
    xs, lengths = pad_packed(data, batch_sizes, batch)
    return xs, lengths


def packed(xs: Tensor, lengths: Tensor, rows: int, way: Way) -> Tensor:
    """The data of a PackedSequence of `rows`."""
    if way == 'op':
        data: Tensor = pack_padded(xs, lengths, rows)
        return data
    if way == 'steps':
        return _packed_by_index(xs, lengths)
    return _pack(xs, lengths)


def _padded_by_index(data: Tensor, batch_sizes: Tensor) -> tuple[Tensor, Tensor]:
    """[T, B, ..] and the lengths, by one gather: rows of the data lie step by step."""
    counts = torch.arange(int(batch_sizes[0]), device='cpu') < batch_sizes.unsqueeze(1)
    index = torch.where(counts, counts.flatten().cumsum(0).view(counts.shape) - 1, 0)
    is_there = counts.to(data.device).view(*counts.shape, *(1,) * (data.ndim - 1))
    return torch.where(is_there, data[index.to(data.device)], 0), counts.sum(0)


def _packed_by_index(xs: Tensor, lengths: Tensor) -> Tensor:
    """The elements of [T, B, ..] that are there; lengths on the CPU."""
    is_there = torch.arange(xs.shape[0], device='cpu').unsqueeze(1) < lengths
    return xs.flatten(0, 1).index_select(0, is_there.flatten().nonzero()[:, 0].to(xs.device))


def _pad(data: Tensor, batch_sizes: Tensor) -> tuple[Tensor, Tensor]:
    if data.is_cuda:  # PyTorch's own copies step by step
        return _padded_by_index(data, batch_sizes)
    xs, lengths = torch._VF._pad_packed_sequence(data, batch_sizes, False, 0.0, len(batch_sizes))
    return xs, lengths


def _pack(xs: Tensor, lengths: Tensor) -> Tensor:
    if xs.shape[1] == 0:
        return xs.flatten(0, 1).clone()
    if xs.is_cuda:
        return _packed_by_index(xs, lengths)
    data, _ = torch._VF._pack_padded_sequence(xs, lengths, False)
    return data


@torch.library.custom_op('paoding::pad_packed', mutates_args=())
def pad_packed(data: Tensor, batch_sizes: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    """`batch` is batch_sizes[0], or -1 where nobody knows it yet."""
    return _pad(data, batch_sizes)


@pad_packed.register_fake
def _(data: Tensor, batch_sizes: Tensor, batch: int) -> tuple[Tensor, Tensor]:
    rows = torch.library.get_ctx().new_dynamic_size() if batch < 0 else batch
    steps = batch_sizes.shape[0]
    return data.new_empty((steps, rows, *data.shape[1:])), batch_sizes.new_empty(rows)


@torch.library.custom_op('paoding::pack_padded', mutates_args=())
def pack_padded(xs: Tensor, lengths: Tensor, rows: int) -> Tensor:
    """`rows` is the sum of the lengths."""
    return _pack(xs, lengths)


@pack_padded.register_fake
def _(xs: Tensor, lengths: Tensor, rows: int) -> Tensor:
    return xs.new_empty((rows, *xs.shape[2:]))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """torch.nn.utils.rnn.pad_packed_sequence by an op, for graphs that are compiled for paoding."""
    data, batch_sizes, sorted_indices, unsorted_indices = sequence
    xs, lengths = padded(sequence, None, 'op')
    steps = batch_sizes.shape[0]
    if padding_value != 0:
        is_there = torch.arange(steps, device='cpu').unsqueeze(1) < lengths
        xs = torch.where(is_there.to(data.device).view(*is_there.shape, *(1,) * (data.ndim - 1)), xs, padding_value)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                'Expected total_length to be at least the length of the longest sequence in input, but got '
                f'total_length={total_length} and max sequence length being {steps}'
            )
        xs = torch.nn.functional.pad(xs, (0, 0) * (xs.ndim - 1) + (0, total_length - steps), value=padding_value)
    if batch_first:
        xs = xs.transpose(0, 1)
    if unsorted_indices is not None:
        xs = xs.index_select(0 if batch_first else 1, unsorted_indices)
        lengths = lengths[unsorted_indices.cpu()]
    return xs, lengths


def _keep_padded(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.rows = inputs[0].shape[0]
    ctx.save_for_backward(output[1])


def _gradient_of_padded(ctx: Any, d_xs: Tensor, _: Any) -> Any:
    return pack_padded(d_xs, ctx.saved_tensors[0], ctx.rows), None, None


def _keep_packed(ctx: Any, inputs: Any, output: Any) -> None:
    xs, lengths, _ = inputs
    ctx.extents = xs.shape[:2]
    ctx.save_for_backward(lengths)


def _gradient_of_packed(ctx: Any, d_data: Tensor) -> Any:
    (lengths,), (steps, batch) = ctx.saved_tensors, ctx.extents
    steps_of = torch.arange(steps, device='cpu').unsqueeze(1)
    batch_sizes = (steps_of < lengths).sum(1)
    return pad_packed(d_data, batch_sizes, batch)[0], None, None


pad_packed.register_autograd(_gradient_of_padded, setup_context=_keep_padded)
pack_padded.register_autograd(_gradient_of_packed, setup_context=_keep_packed)
