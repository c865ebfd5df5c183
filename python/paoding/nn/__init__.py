# SPDX-License-Identifier: Apache-2.0
"""Layers: parameters with names and initial values, and the ops that use them. Weights stand on the right:
[inputs, outputs]. A layer belongs to the graph of the `with graph:` around it, or to graph=."""

from .._paoding import (
    GRU,
    LSTM,
    RNN,
    BatchNorm,
    Conv2d,
    Embedding,
    Initializer,
    LayerNorm,
    LearnedPositions,
    Linear,
    MultiHeadAttention,
    RecurrentResult,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    kaiming_normal,
    kaiming_uniform,
    normal,
    orthogonal,
    uniform,
    xavier_normal,
    xavier_uniform,
)
from .._paoding import constant_initial as constant
from ._cells import GRUCell, LSTMCell, RNNCell
from ._containers import Dropout, Sequential, Stack
from ._convolutions import Conv1d, Conv3d, ConvTranspose2d
from ._from_torch import from_torch
from ._norms import GroupNorm, RMSNorm
from ._torch_weights import from_torch_weights, to_torch

__all__ = [
    'GRU',
    'LSTM',
    'RNN',
    'BatchNorm',
    'Conv1d',
    'Conv2d',
    'Conv3d',
    'ConvTranspose2d',
    'Dropout',
    'Embedding',
    'GRUCell',
    'GroupNorm',
    'Initializer',
    'LSTMCell',
    'LayerNorm',
    'LearnedPositions',
    'Linear',
    'MultiHeadAttention',
    'RMSNorm',
    'RNNCell',
    'RecurrentResult',
    'Sequential',
    'Stack',
    'TransformerDecoderLayer',
    'TransformerEncoderLayer',
    'constant',
    'from_torch',
    'from_torch_weights',
    'kaiming_normal',
    'kaiming_uniform',
    'normal',
    'orthogonal',
    'to_torch',
    'uniform',
    'xavier_normal',
    'xavier_uniform',
]
