# SPDX-License-Identifier: Apache-2.0
"""Tensors as addresses, and their dtypes by name."""

from __future__ import annotations

import torch
from torch import Tensor

FLOATS = {torch.float32: 'f32', torch.float64: 'f64', torch.bfloat16: 'bf16', torch.float16: 'f16'}


def dense(tensor: Tensor) -> Tensor:
    """As kernels read it: dense, at an address that a new tensor could have."""
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % (256 if tensor.is_cuda else 64) == 0 else tensor.clone()


def address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def current_stream(device: torch.device) -> int:
    return torch.cuda.current_stream(device).cuda_stream if device.type == 'cuda' else 0
