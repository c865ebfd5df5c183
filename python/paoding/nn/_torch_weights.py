# SPDX-License-Identifier: Apache-2.0
"""Weights of PyTorch's modules under the names, and in the layouts, of the layers here, and back."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .._paoding import Parameters
from ..errors import ArgumentError, ShapeError, UnsupportedError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True)
class Weight:
    """A parameter here, `ours`, and the tensors of a module that it is made of."""

    ours: str
    theirs: Sequence[str]
    read: Callable[[Sequence[Array]], Array]
    write: Callable[[Array], Sequence[Array]]

    def under(self, ours: str, theirs: str) -> Weight:
        """The same in a part of a layer and of a module."""
        return Weight(f'{ours}/{self.ours}', [f'{theirs}.{each}' for each in self.theirs], self.read, self.write)


def _same(ours: str, theirs: str) -> Weight:
    return Weight(ours, [theirs], lambda tensors: tensors[0], lambda array: [array])


def _turned(ours: str, theirs: str) -> Weight:
    """[outputs, inputs] there, [inputs, outputs] here."""
    return Weight(ours, [theirs], lambda tensors: tensors[0].T, lambda array: [array.T])


def _zero(ours: str, size: int) -> Weight:
    """A bias that the module has not."""

    def write(array: Array) -> Sequence[Array]:
        if array.any():
            raise ArgumentError(f"to_torch: '{ours}' is not 0, and the module has no place for it")
        return []

    def read(_: Sequence[Array]) -> Array:
        import numpy

        return numpy.zeros(size, numpy.float32)

    return Weight(ours, [], read, write)


def weights_of(module: Any) -> list[Weight]:
    """Of a module of torch.nn, by the names that the parameters of its layer end in. UnsupportedError for others."""
    torch: Any = importlib.import_module('torch')
    nn = torch.nn
    if isinstance(module, nn.MultiheadAttention):
        return _attention(module)
    if isinstance(module, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)):
        return _transformer(module)
    if isinstance(module, nn.RNNBase):
        return list(_recurrent(module))
    if isinstance(module, nn.RNNCellBase):
        return _of_gates(module, '', '', 'GRU' if isinstance(module, nn.GRUCell) else '')
    if isinstance(module, nn.Linear):
        return [_turned('weight', 'weight'), *([] if module.bias is None else [_same('bias', 'bias')])]
    if isinstance(module, nn.modules.conv._ConvNd):
        return [_same('weight', 'weight'), *([] if module.bias is None else [_same('bias', 'bias')])]
    if isinstance(module, nn.Embedding):
        return [_same('weight', 'weight')]
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return [
            *(_same('gamma', 'weight'), _same('beta', 'bias')),
            *(_same('running_mean', 'running_mean'), _same('running_variance', 'running_var')),
        ]
    if isinstance(module, (nn.LayerNorm, nn.GroupNorm)):
        beta = _zero('beta', module.weight.numel()) if module.bias is None else _same('beta', 'bias')
        return [_same('gamma', 'weight'), beta]
    if hasattr(nn, 'RMSNorm') and isinstance(module, nn.RMSNorm):
        return [_same('gamma', 'weight')]
    if isinstance(module, (nn.TransformerEncoder, nn.TransformerDecoder)):
        norm = [] if module.norm is None else [each.under('norm', 'norm') for each in weights_of(module.norm)]
        parts = enumerate(module.layers)
        return [each.under(f'layers/{i}', f'layers.{i}') for i, part in parts for each in weights_of(part)] + norm
    if isinstance(module, nn.Sequential):
        return [each.under(str(i), str(i)) for i, part in enumerate(module) for each in weights_of(part)]
    if next(module.parameters(), None) is None:
        return []
    raise UnsupportedError(
        f'from_torch: {type(module).__name__} is no module that paoding.nn has\nhint: call it for its parts, one by one'
    )


def _of_gates(module: Any, ours: str, suffix: str, mode: str) -> list[Weight]:
    """w, u and b of one layer in one direction. b is the sum of the two biases there; a GRU's has b_hn apart."""
    made = [_turned(f'{ours}w', f'weight_ih{suffix}'), _turned(f'{ours}u', f'weight_hh{suffix}')]
    rows, hidden = getattr(module, f'weight_hh{suffix}').shape[0], module.hidden_size
    is_gru = mode == 'GRU'
    if not module.bias:
        return [*made, _zero(f'{ours}b', 4 * hidden if is_gru else rows)]

    def read(tensors: Sequence[Array]) -> Array:
        import numpy

        b_ih, b_hh = tensors
        if not is_gru:
            return b_ih + b_hh
        both = b_ih[: 2 * hidden] + b_hh[: 2 * hidden]
        return numpy.concatenate([both, b_ih[2 * hidden :], b_hh[2 * hidden :]])

    def write(array: Array) -> Sequence[Array]:
        import numpy

        b_hh = numpy.zeros(rows, array.dtype)
        if is_gru:
            b_hh[2 * hidden :] = array[3 * hidden :]
        return [array[:rows], b_hh]

    return [*made, Weight(f'{ours}b', [f'bias_ih{suffix}', f'bias_hh{suffix}'], read, write)]


def _recurrent(module: Any) -> Iterator[Weight]:
    for layer in range(module.num_layers):
        for reverse in ('', '_reverse')[: 2 if module.bidirectional else 1]:
            ours = f'l{layer}{reverse}/'
            yield from _of_gates(module, ours, f'_l{layer}{reverse}', module.mode)
            if module.proj_size > 0:
                yield _turned(f'{ours}projection', f'weight_hr_l{layer}{reverse}')


def _attention(module: Any) -> list[Weight]:
    if module.bias_k is not None or module.add_zero_attn:
        raise UnsupportedError('from_torch: MultiheadAttention with add_bias_kv or add_zero_attn')
    if module.in_proj_weight is not None:
        made = [_turned('in/weight', 'in_proj_weight')]
    else:
        made = [_turned(f'{each}/weight', f'{each[0]}_proj_weight') for each in ('query', 'key', 'value')]
    made.append(_turned('out/weight', 'out_proj.weight'))
    if module.in_proj_bias is not None:
        made += [_same('in/bias', 'in_proj_bias'), _same('out/bias', 'out_proj.bias')]
    return made


def _transformer(module: Any) -> list[Weight]:
    parts = {'self': 'self_attn', 'norm1': 'norm1', 'norm2': 'norm2', 'in': 'linear1', 'out': 'linear2'}
    if hasattr(module, 'multihead_attn'):
        parts |= {'memory': 'multihead_attn', 'norm3': 'norm3'}
    return [
        each.under(ours, theirs) for ours, theirs in parts.items() for each in weights_of(getattr(module, theirs))
    ]


def from_torch_weights(module: Any, name: str) -> dict[str, Array]:
    """The weights of a module of torch.nn by the names of the parameters of the layer `name`, in its layouts: for
    `parameters.update(..)` of a store that has them. UnsupportedError as from_torch."""
    state = module.state_dict()
    made = {}
    for weight in weights_of(module):
        tensors = [_array_of(state[each]) for each in weight.theirs]
        made[f'{name}/{weight.ours}'] = weight.read(tensors)
    return made


def _array_of(tensor: Any) -> Array:
    array: Array = (tensor.float() if 'bfloat16' in str(tensor.dtype) else tensor).detach().cpu().numpy()
    return array


def to_torch(parameters: Parameters, module: Any, name: str) -> None:
    """Writes the parameters of the layer `name` into a module of torch.nn of the same extents, where gradients of theirs
    do not see it. Of a recurrent layer's biases bias_ih gets the sum. NotFoundError when the store has not all of them;
    ShapeError when extents differ; in both cases nothing was written."""
    torch: Any = importlib.import_module('torch')
    state = module.state_dict()
    written = []
    for weight in weights_of(module):
        given = parameters[f'{name}/{weight.ours}'].numpy()
        for theirs, array in zip(weight.theirs, weight.write(given), strict=True):
            if tuple(state[theirs].shape) != array.shape:
                raise ShapeError(
                    f"to_torch: '{name}/{weight.ours}' gives {theirs} the shape {array.shape}, it has "
                    f'{tuple(state[theirs].shape)}'
                )
            written.append((theirs, array))
    with torch.no_grad():
        for theirs, array in written:
            state[theirs].copy_(torch.from_numpy(array.copy()))
