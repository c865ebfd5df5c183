# SPDX-License-Identifier: Apache-2.0
"""Layers: parameters with names and initial values, and the ops that use them. Weights stand on the right:
[inputs, outputs]. A layer belongs to the graph of the `with graph:` around it, or to graph=."""

from ._paoding import (
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
from ._paoding import constant_initial as constant
from .layers import Dropout, GroupNorm, RMSNorm, Sequential

__all__ = [
    'GRU',
    'LSTM',
    'RNN',
    'BatchNorm',
    'Conv2d',
    'Dropout',
    'Embedding',
    'GroupNorm',
    'Initializer',
    'LayerNorm',
    'LearnedPositions',
    'Linear',
    'MultiHeadAttention',
    'RMSNorm',
    'RecurrentResult',
    'Sequential',
    'TransformerDecoderLayer',
    'TransformerEncoderLayer',
    'constant',
    'kaiming_normal',
    'kaiming_uniform',
    'normal',
    'orthogonal',
    'uniform',
    'xavier_normal',
    'xavier_uniform',
]
