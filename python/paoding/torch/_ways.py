# SPDX-License-Identifier: Apache-2.0
"""What stands between a call and the memory of its tensors: what PyTorch does with ops besides running them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..errors import UnsupportedError

Way = Literal['kernels', 'op', 'steps', 'traced']

_PLAIN = (Tensor, torch.nn.Parameter)
_is_compiling = torch.compiler.is_compiling
_has_transforms = torch._C._are_functorch_transforms_active
_count_of_modes = torch._C._len_torch_dispatch_stack
_tracing_state = torch._C._get_tracing_state
# Of gradients that are passed back as if they were one (is_grads_batched=True, jacobian(vectorize=True)).
is_stack = torch._C._functorch.is_legacy_batchedtensor


def way_of(tensors: Iterable[Tensor]) -> Way:
    """How a call is to be made:
    'kernels': they read and write memory.
    'op': ops are written down or looked at on their way (torch.compile, torch.export, make_fx, whatever is a
    TorchDispatchMode or a class of tensors); of what reads and writes memory nothing would be seen.
    'traced': the same by torch.jit.trace, or an exporter that goes by it.
    'steps': tensors may have tangents, or be those of torch.func's transforms; only ops of PyTorch's own know of these,
    and what says how it is differentiated."""
    if _has_transforms() or forward_ad._current_level >= 0:
        return 'steps'
    if _is_compiling() or _count_of_modes() > 0:
        return 'op'
    if _tracing_state() is not None:
        return 'traced'
    for each in tensors:
        if type(each) not in _PLAIN or is_stack(each):
            return 'op'
    return 'kernels'


def refuse_tangents(op: str, tensors: Iterable[Tensor | None]) -> None:
    """For the inside of an op, where tangents would be lost: someone called it by another way than ours."""
    if forward_ad._current_level < 0:
        return
    for each in tensors:
        if each is not None and forward_ad.unpack_dual(each).tangent is not None:
            raise UnsupportedError(
                f'{op}: an input has a tangent, and the op has no forward-mode derivative'
                '\nhint: call the layer or function itself instead of what was exported of it'
            )
