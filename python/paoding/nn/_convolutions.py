# SPDX-License-Identifier: Apache-2.0
"""Convolutions over sequences and volumes, and the transposed one over images, with weights of their own."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .._paoding import DType, Graph, Initializer, Value, conv1d, conv3d, conv_transpose2d, uniform
from .._types import Ints
from ..errors import ArgumentError
from ._home import graph_of


class _Convolution:
    """Weight and bias, uniform in +-1 / sqrt(fan in) as PyTorch has it. `_op` is the function of x, weight and bias."""

    _op: Callable[..., Value]

    def __init__(
        self,
        name: str,
        shape: Sequence[int],
        outputs: int,
        options: dict[str, Any],
        bias: bool,
        dtype: DType | str,
        initial: Initializer | None,
        graph: Graph | None,
    ) -> None:
        groups = options['groups']
        if groups < 1 or shape[0] % groups != 0 or outputs % groups != 0:
            raise ArgumentError(f'{name}: {groups} groups do not divide the channels')
        home = graph_of(graph)
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        start = uniform(-bound, bound)
        self.name = name
        self.weight: Value = home.parameter(f'{name}/weight', dtype, shape, initial=initial or start)
        self.bias: Value | None = home.parameter(f'{name}/bias', dtype, outputs, initial=start) if bias else None
        self._options = options

    def __call__(self, x: Value) -> Value:
        with x.graph.scope(self.name):
            return self._op(x, self.weight, self.bias, **self._options)


def _kernel(given: Ints, axes: int) -> tuple[int, ...]:
    kernel = (given,) * axes if isinstance(given, int) else tuple(given)
    if len(kernel) != axes:
        raise ArgumentError(f'the kernel has {len(kernel)} extents, needed is one number or {axes}')
    return kernel


class Conv1d(_Convolution):
    """conv1d over sequences [N, inputs, L] with windows of `kernel`: [N, outputs, L'].

    Parameters are <name>/weight [outputs, inputs / groups, kernel] and <name>/bias [outputs]. `padding`: one number, or
    (before, after). ArgumentError unless the groups divide inputs and outputs.

    >>> with pd.Graph() as graph:
    ...     pd.nn.Conv1d('conv', 4, 8, 3, padding=(2, 0))(graph.input('x', 'f32', (2, 4, 10)))
    Value(f32[2,8,10])
    """

    _op = staticmethod(conv1d)

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        padding: Ints = 0,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        options = {'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups}
        shape = (outputs, inputs // max(groups, 1), *_kernel(kernel, 1))
        _check_inputs(name, inputs, groups)
        super().__init__(name, shape, outputs, options, bias, dtype, initial, graph)


class Conv3d(_Convolution):
    """conv3d over volumes [N, inputs, D, H, W] with windows of `kernel`, one number or three: [N, outputs, D', H', W'].

    Parameters are <name>/weight [outputs, inputs / groups, KD, KH, KW] and <name>/bias [outputs]. `stride`, `padding`
    and `dilation`: one number, or one for each axis. ArgumentError unless the groups divide inputs and outputs.

    >>> with pd.Graph() as graph:
    ...     pd.nn.Conv3d('conv', 1, 2, 3, padding=1)(graph.input('x', 'f32', (2, 1, 4, 5, 6)))
    Value(f32[2,2,4,5,6])
    """

    _op = staticmethod(conv3d)

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: Ints,
        *,
        stride: Ints = 1,
        padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        options = {'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups}
        shape = (outputs, inputs // max(groups, 1), *_kernel(kernel, 3))
        _check_inputs(name, inputs, groups)
        super().__init__(name, shape, outputs, options, bias, dtype, initial, graph)


class ConvTranspose2d(_Convolution):
    """conv_transpose2d over images [N, inputs, H, W]: [N, outputs, H', W'], as PyTorch's of that name.

    Parameters are <name>/weight [inputs, outputs / groups, KH, KW] and <name>/bias [outputs]. `stride`, `padding`,
    `output_padding` and `dilation`: one number or two. ArgumentError unless the groups divide inputs and outputs.

    >>> with pd.Graph() as graph:
    ...     pd.nn.ConvTranspose2d('up', 3, 2, 2, stride=2)(graph.input('x', 'f32', (1, 3, 4, 5)))
    Value(f32[1,2,8,10])
    """

    _op = staticmethod(conv_transpose2d)

    def __init__(
        self,
        name: str,
        inputs: int,
        outputs: int,
        kernel: Ints,
        *,
        stride: Ints = 1,
        padding: Ints = 0,
        output_padding: Ints = 0,
        dilation: Ints = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        options = {
            'stride': stride,
            'padding': padding,
            'output_padding': output_padding,
            'dilation': dilation,
            'groups': groups,
        }
        shape = (inputs, outputs // max(groups, 1), *_kernel(kernel, 2))
        super().__init__(name, shape, outputs, options, bias, dtype, initial, graph)


def _check_inputs(name: str, inputs: int, groups: int) -> None:
    if groups < 1 or inputs % groups != 0:
        raise ArgumentError(f'{name}: {groups} groups do not divide the {inputs} inputs')
