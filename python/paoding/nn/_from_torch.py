# SPDX-License-Identifier: Apache-2.0
"""Layers with the options, and the weights, of PyTorch's modules."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from .. import ops
from .._paoding import (
    GRU,
    LSTM,
    RNN,
    BatchNorm,
    Conv2d,
    Embedding,
    Graph,
    LayerNorm,
    Linear,
    MultiHeadAttention,
    TransformerDecoderLayer,
    TransformerEncoderLayer,
    Value,
    avg_pool2d,
    max_pool2d,
)
from ..errors import UnsupportedError
from ._cells import GRUCell, LSTMCell, RNNCell
from ._containers import Dropout, Sequential, Stack
from ._convolutions import Conv1d, Conv3d, ConvTranspose2d
from ._home import graph_of
from ._norms import GroupNorm, RMSNorm
from ._torch_weights import from_torch_weights, weights_of

_DTYPES = {'torch.float32': 'f32', 'torch.float64': 'f64', 'torch.bfloat16': 'bf16', 'torch.float16': 'f16'}


def from_torch(module: Any, name: str, *, training: bool | None = None, graph: Graph | None = None) -> Any:
    """The layer `name` that does what a module of torch.nn does, with the module's weights as first values: a store made
    of the graph, pd.Parameters(graph), has them. `training`: the module's own without. Layouts are those of the layers
    here: recurrent layers take [T, B, inputs] and attention takes [B, T, width], whatever batch_first says.

    Linear, Conv1d, 2d and 3d, ConvTranspose2d, Embedding, LayerNorm, GroupNorm, RMSNorm, BatchNorm, LSTM, GRU, RNN and
    their cells, MultiheadAttention, TransformerEncoder, TransformerDecoder and their layers, Dropout, activations, pooling of images, Flatten, and
    Sequential of these. UnsupportedError for another module, or an option that the layer has not.

    >>> import torch  # doctest: +SKIP
    >>> with pd.Graph() as graph:  # doctest: +SKIP
    ...     layer = pd.nn.from_torch(torch.nn.Linear(3, 2), 'out')
    """
    home = graph_of(graph)
    weights = weights_of(module)  # or an error, before anything is declared
    is_training = bool(module.training if training is None else training)
    layer = _layer(module, name, is_training, home)
    if weights:
        for parameter, value in from_torch_weights(module, name).items():
            home.set_initial(parameter, value)
    return layer


def _layer(module: Any, name: str, training: bool, graph: Graph) -> Any:
    torch: Any = importlib.import_module('torch')
    nn = torch.nn
    if isinstance(module, nn.Sequential):
        return Sequential(*(_layer(part, f'{name}/{i}', training, graph) for i, part in enumerate(module)))
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder)):
        layers = (_layer(part, f'{name}/layers/{i}', training, graph) for i, part in enumerate(module.layers))
        last = None if module.norm is None else _layer(module.norm, f'{name}/norm', training, graph)
        return Stack(*layers, last=last)
    first = next(iter(module.parameters()), None)
    common: dict[str, Any] = {'graph': graph}
    if first is not None:
        common['dtype'] = _DTYPES[str(first.dtype)]
    if isinstance(module, nn.RNNBase):
        return _recurrent(module, name, training, common)
    if isinstance(module, nn.RNNCellBase):
        sizes = (module.input_size, module.hidden_size)
        if isinstance(module, nn.RNNCell):
            return RNNCell(name, *sizes, relu=module.nonlinearity == 'relu', **common)
        return (LSTMCell if isinstance(module, nn.LSTMCell) else GRUCell)(name, *sizes, **common)
    if isinstance(module, nn.modules.conv._ConvNd):
        return _convolution(module, name, common)
    if isinstance(module, nn.Linear):
        return Linear(name, module.in_features, module.out_features, bias=module.bias is not None, **common)
    if isinstance(module, nn.Embedding):
        _refuse(module, max_norm=module.max_norm is not None)
        padding = -1 if module.padding_idx is None else module.padding_idx
        return Embedding(name, module.num_embeddings, module.embedding_dim, padding=padding, **common)
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        _refuse(module, affine=not module.affine, running=module.running_mean is None, momentum=module.momentum is None)
        options = {'training': training, 'momentum': module.momentum, 'epsilon': module.eps}
        return BatchNorm(name, module.num_features, **options, **common)
    if isinstance(module, nn.LayerNorm):
        _refuse(module, affine=not module.elementwise_affine, several_axes=len(module.normalized_shape) > 1)
        return LayerNorm(name, module.normalized_shape[0], epsilon=module.eps, **common)
    if isinstance(module, nn.GroupNorm):
        _refuse(module, affine=not module.affine)
        return GroupNorm(name, module.num_groups, module.num_channels, epsilon=module.eps, **common)
    if hasattr(nn, 'RMSNorm') and isinstance(module, nn.RMSNorm):
        _refuse(module, affine=not module.elementwise_affine, several_axes=len(module.normalized_shape) > 1)
        epsilon = torch.finfo(module.weight.dtype).eps if module.eps is None else module.eps
        return RMSNorm(name, module.normalized_shape[0], epsilon=epsilon, **common)
    if isinstance(module, nn.MultiheadAttention):
        widths = {'key_width': module.kdim, 'value_width': module.vdim}
        options = {'bias': module.in_proj_bias is not None, 'dropout': module.dropout, 'training': training}
        return MultiHeadAttention(name, module.embed_dim, module.num_heads, **widths, **options, **common)
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return _transformer(module, name, training, common)
    return _function(module, training)


def _refuse(module: Any, **options: bool) -> None:
    for option, is_there in options.items():
        if is_there:
            raise UnsupportedError(f'from_torch: the layer for {module!r} has not what its option asks for: {option}')


def _recurrent(module: Any, name: str, training: bool, common: dict[str, Any]) -> Any:
    options = {
        'layers': module.num_layers,
        'bidirectional': module.bidirectional,
        'dropout': module.dropout,
        'training': training,
        'projection': module.proj_size,
        'relu': module.mode == 'RNN_RELU',
    }
    kind = {'LSTM': LSTM, 'GRU': GRU}.get(module.mode, RNN)
    return kind(name, module.input_size, module.hidden_size, **options, **common)


def _convolution(module: Any, name: str, common: dict[str, Any]) -> Any:
    _refuse(module, padding_mode=module.padding_mode != 'zeros')
    axes = len(module.kernel_size)
    padding = module.padding
    if padding == 'valid':
        padding = (0,) * axes
    elif padding == 'same':
        whole = [d * (k - 1) for d, k in zip(module.dilation, module.kernel_size, strict=True)]
        padding = [side for each in whole for side in (each // 2, each - each // 2)]
    options: dict[str, Any] = {
        'stride': module.stride,
        'padding': tuple(padding),
        'dilation': module.dilation,
        'groups': module.groups,
        'bias': module.bias is not None,
    }
    common = {**common, 'name': name, 'inputs': module.in_channels, 'outputs': module.out_channels}
    if module.transposed:
        _refuse(module, axes=axes != 2)
        options['output_padding'] = module.output_padding
        return ConvTranspose2d(kernel=module.kernel_size, **options, **common)
    if axes == 1:
        sides = options['padding'] if len(options['padding']) == 2 else options['padding'] * 2
        one = {'stride': module.stride[0], 'padding': sides, 'dilation': module.dilation[0]}
        return Conv1d(kernel=module.kernel_size[0], **{**options, **one}, **common)
    return (Conv2d if axes == 2 else Conv3d)(kernel=module.kernel_size, **options, **common)


def _transformer(module: Any, name: str, training: bool, common: dict[str, Any]) -> Any:
    functional: Any = importlib.import_module('torch.nn.functional')
    activation = getattr(module.activation, '__name__', type(module.activation).__name__.lower())
    if module.activation is functional.relu or activation == 'relu':
        activation = 'relu'
    elif module.activation is functional.gelu or activation == 'gelu':
        activation = 'gelu' if getattr(module.activation, 'approximate', 'none') == 'none' else 'gelu_tanh'
    else:
        raise UnsupportedError(f'from_torch: a transformer layer with the activation {module.activation!r}')
    _refuse(module, bias=module.linear1.bias is None)
    options = {
        'feed_forward': module.linear1.out_features,
        'activation': activation,
        'dropout': module.dropout1.p,
        'norm_first': module.norm_first,
        'epsilon': module.norm1.eps,
        'training': training,
    }
    kind = TransformerDecoderLayer if hasattr(module, 'multihead_attn') else TransformerEncoderLayer
    return kind(name, module.linear1.in_features, module.self_attn.num_heads, **options, **common)


def _function(module: Any, training: bool) -> Callable[[Value], Value]:
    """A module without parameters, as a function."""
    kind = type(module).__name__
    plain: dict[str, Callable[[Value], Value]] = {
        'ReLU': ops.relu,
        'Tanh': ops.tanh,
        'Sigmoid': ops.sigmoid,
        'SiLU': ops.silu,
        'Softplus': ops.softplus,
        'Hardswish': ops.hardswish,
        'Mish': ops.mish,
        'Identity': lambda x: x,
    }
    if kind == 'Softplus':
        _refuse(module, beta=module.beta != 1)
    if kind in plain:
        return plain[kind]
    if kind in ('Dropout', 'Dropout1d', 'Dropout2d', 'Dropout3d'):
        _refuse(module, whole_channels=kind != 'Dropout')
        return Dropout(module.p, training=training)
    if kind == 'GELU':
        return lambda x: ops.gelu(x, approximate=module.approximate)
    if kind == 'LeakyReLU':
        return lambda x: ops.leaky_relu(x, module.negative_slope)
    if kind == 'ELU':
        return lambda x: ops.elu(x, module.alpha)
    if kind == 'Softmax':
        return lambda x: ops.softmax(x, axis=-1 if module.dim is None else module.dim)
    if kind == 'LogSoftmax':
        return lambda x: ops.log_softmax(x, axis=-1 if module.dim is None else module.dim)
    if kind == 'Flatten':
        return lambda x: x.reshape(*_flattened(x.shape, module.start_dim, module.end_dim))
    if kind in ('MaxPool2d', 'AvgPool2d'):
        _refuse(module, ceil_mode=module.ceil_mode)
        pooled = {'kernel': module.kernel_size, 'stride': module.stride, 'padding': module.padding}
        if kind == 'MaxPool2d':
            return lambda x: max_pool2d(x, **pooled, dilation=module.dilation)
        _refuse(module, divisor_override=module.divisor_override is not None)
        return lambda x: avg_pool2d(x, **pooled, count_padding=module.count_include_pad)
    raise UnsupportedError(f'from_torch: {kind} is no module that paoding.nn has\nhint: call a function of paoding instead')


def _flattened(shape: tuple[int, ...], first: int, last: int) -> list[int]:
    last = last % len(shape)
    size = 1
    for extent in shape[first : last + 1]:
        size *= extent
    return [*shape[:first], size, *shape[last + 1 :]]
