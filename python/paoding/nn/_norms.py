# SPDX-License-Identifier: Apache-2.0
"""Norms with parameters that are made of ops."""

from __future__ import annotations

from .._paoding import DType, Graph, LayerNorm, Value, constant_initial, group_norm, rms_norm
from ._home import graph_of


class GroupNorm:
    """Images [N, channels, ..], normalized over each of `groups` groups of channels, times gamma plus beta.

    name: of the layer; parameters are <name>/gamma and <name>/beta, [channels], from 1 and 0. `epsilon` 1e-5 is added
    to the variance. ShapeError unless the groups divide the channels.

    >>> with pd.Graph() as graph:
    ...     pd.nn.GroupNorm('norm', 2, 4)(graph.input('x', 'f32', (3, 4, 5, 5)))
    Value(f32[3,4,5,5])
    """

    def __init__(
        self,
        name: str,
        groups: int,
        channels: int,
        *,
        epsilon: float = 1e-5,
        dtype: DType | str = 'f32',
        graph: Graph | None = None,
    ) -> None:
        scales = LayerNorm(name, channels, dtype=dtype, graph=graph)  # of the same names, shapes and first values
        assert scales.gamma is not None and scales.beta is not None
        self.name = name
        self.gamma: Value = scales.gamma
        self.beta: Value = scales.beta
        self.groups = groups
        self.epsilon = epsilon

    def __call__(self, x: Value) -> Value:
        with x.graph.scope(self.name):
            return group_norm(x, self.groups, self.gamma, self.beta, self.epsilon)


class RMSNorm:
    """x / sqrt(mean(x^2) + epsilon) * gamma over the last axis, of `width` elements.

    name: of the layer; the parameter is <name>/gamma, [width], from 1. `epsilon` 1e-6.

    >>> with pd.Graph() as graph:
    ...     pd.nn.RMSNorm('norm', 4)(graph.input('x', 'f32', (3, 4)))
    Value(f32[3,4])
    """

    def __init__(
        self, name: str, width: int, *, epsilon: float = 1e-6, dtype: DType | str = 'f32', graph: Graph | None = None
    ) -> None:
        self.name = name
        self.gamma: Value = graph_of(graph).parameter(f'{name}/gamma', dtype, width, initial=constant_initial(1.0))
        self.epsilon = epsilon

    def __call__(self, x: Value) -> Value:
        with x.graph.scope(self.name):
            return rms_norm(x, self.gamma, self.epsilon)
