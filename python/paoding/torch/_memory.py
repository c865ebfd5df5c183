# SPDX-License-Identifier: Apache-2.0
"""Tensors as addresses, their dtypes by name, and PyTorch's settings as our kernels take them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from ..errors import ArgumentError
from ._ways import Way

FLOATS = {torch.float32: 'f32', torch.float64: 'f64', torch.bfloat16: 'bf16', torch.float16: 'f16'}
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_NOTHING: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()


def dense(tensor: Tensor) -> Tensor:
    """As kernels read it: dense, at an address that a new tensor could have."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % (256 if tensor.is_cuda else 64) == 0 else tensor.clone()


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def current_stream(device: torch.device) -> int:
    """The handle of PyTorch's stream. Here and below by what torch.cuda's functions call, some microseconds sooner."""
    return torch._C._cuda_getCurrentRawStream(device.index) if device.type == 'cuda' else 0


def at(device: torch.device) -> contextlib.AbstractContextManager[Any]:
    """Within, `device` is the thread's current one: our calls make its context current, which PyTorch takes for that."""
    if device.type != 'cuda' or device.index == torch._C._cuda_getDevice():
        return _NOTHING
    return torch.cuda.device(device)


def is_captured(device: torch.device) -> bool:
    """Whether what the current stream of the current device is given goes into a CUDA graph."""
    return device.type == 'cuda' and torch._C._cuda_isCurrentStreamCapturing()


_KEPT_BYTES = 64 << 20  # of a thread


class _Kept(threading.local):
    room: Tensor | None = None


_kept = _Kept()


def workspace(size: int, device: torch.device) -> Tensor:
    """Memory that kernels work in during one call. On the CPU, where a call is done when it returns, those of a thread
    have the same: memory of megabytes that is given back to the system after every call is faulted in anew by the next."""
    if device.type != 'cpu' or size > _KEPT_BYTES:
        return torch.empty(size, dtype=torch.uint8, device=device)
    room = _kept.room
    if room is None or room.numel() < size:
        _kept.room = room = torch.empty(size, dtype=torch.uint8, device=device)
    return room


def check_devices(like: Tensor, others: Iterable[Tensor | None]) -> None:
    device = like.device
    for each in others:
        if each is not None and each.device != device:
            raise RuntimeError(
                'Input and parameter tensors are not at the same device, '
                f'found input tensor at {device} and parameter tensor at {each.device}'
            )


def may_round_products(device: torch.device) -> bool:
    """TF32 in products of f32: as torch.backends.cuda.matmul says."""
    return device.type == 'cuda' and _is_tf32('matmul', torch.backends.cuda.matmul)


def may_round_recurrence(device: torch.device) -> bool:
    """TF32 in recurrent layers: as torch.backends.cudnn says, which nn.LSTM goes by."""
    return device.type == 'cuda' and _is_tf32('rnn', torch.backends.cudnn)


def _is_tf32(op: str, settings: Any) -> bool:
    # Since PyTorch 2.9 each kind of op has a precision; `allow_tf32` is refused where they differ.
    precision = getattr(torch._C, '_get_fp32_precision_getter', None)
    return bool(settings.allow_tf32 if precision is None else precision('cuda', op) == 'tf32')


class _Zeros:
    """Memory of a device that holds zeros and that nobody writes to."""

    def __init__(self) -> None:
        self._all: dict[torch.device, list[Tensor]] = {}  # the last is the largest; graphs know the others

    def of(self, device: torch.device, size: int) -> Tensor:
        """At least `size` bytes of them."""
        kept = self._all.get(device)
        if kept is not None and kept[-1].numel() >= size:
            return kept[-1]
        if is_captured(device):  # in memory of the graph's, which nobody else may have
            return torch.zeros(size, dtype=torch.uint8, device=device)
        most = 0 if kept is None else kept[-1].numel()
        made = torch.zeros(max(size, 2 * most, 1 << 20), dtype=torch.uint8, device=device)
        if device.type == 'cuda':
            torch.cuda.current_stream(device).synchronize()  # any stream may read it
        self._all.setdefault(device, []).append(made)
        return made


zeros = _Zeros()


def lengths_at(lengths: Tensor, device: torch.device) -> Tensor:
    """As kernels read them. Of those in the host's memory there is a copy on its way when this returns."""
    if lengths.device == device or torch.compiler.is_compiling():
        return lengths.to(device=device, dtype=torch.int32)
    if device.type == 'cuda' and lengths.device.type == 'cpu':
        with at(device):
            if is_captured(device):
                raise ArgumentError(
                    'paoding.torch: lengths in the memory of the host (so are those of a PackedSequence), from which a '
                    'captured graph would read them in every replay\nhint: lengths= with a tensor of the GPU'
                )
        return lengths.to(torch.int32).pin_memory().to(device, non_blocking=True)
    return lengths.to(device=device, dtype=torch.int32)


def checked(lengths: Tensor, steps: int, way: Way) -> Tensor:
    """Lengths of a caller's: none is less than 0 or more than the steps. Those on a GPU are not waited for, and count as
    the nearest of these; nothing is known either while torch.jit or torch.func stand in between."""
    if lengths.dtype not in _INTEGERS:
        raise TypeError(f'lengths are integers, not {lengths.dtype}')
    if lengths.device.type == 'cpu':
        if way == 'kernels':
            _check_lengths(lengths, steps)
        elif way == 'op':
            lengths = checked_lengths(lengths, steps)
    return lengths


def _check_lengths(lengths: Tensor, steps: int) -> None:
    if lengths.numel() == 0:
        return
    least, most = lengths.aminmax()
    if int(least) < 0 or int(most) > steps:
        row = int(((lengths < 0) | (lengths > steps)).nonzero()[0, 0])
        raise RuntimeError(f'lengths[{row}] is {int(lengths[row])}, needed is 0 to {steps}, the number of steps')


@torch.library.custom_op('paoding::checked_lengths', mutates_args=())
def checked_lengths(lengths: Tensor, steps: int) -> Tensor:
    """In the host's memory, checked when they are known."""
    _check_lengths(lengths, steps)
    return lengths.clone()


@checked_lengths.register_fake
def _(lengths: Tensor, steps: int) -> Tensor:
    return torch.empty_like(lengths)
