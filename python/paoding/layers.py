# SPDX-License-Identifier: Apache-2.0
"""Layers of paoding.nn that are made of others, of ops and of parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ._paoding import DType, Graph, LayerNorm, RecurrentResult, Value, constant_initial, dropout, group_norm, rms_norm, zeros


class GroupNorm:
    """group_norm of images [N, channels, ..]: layer_norm of each of `groups` groups of channels, with a gamma and beta for
    every channel. `epsilon` 1e-5."""

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
        self.gamma: Value = scales.gamma
        self.beta: Value = scales.beta
        self.groups = groups
        self.epsilon = epsilon

    def __call__(self, x: Value) -> Value:
        return group_norm(x, self.groups, self.gamma, self.beta, self.epsilon)


class RMSNorm:
    """x / sqrt(mean(x^2) + epsilon) * gamma over the last axis, of `width` elements. `epsilon` 1e-6."""

    def __init__(
        self, name: str, width: int, *, epsilon: float = 1e-6, dtype: DType | str = 'f32', graph: Graph | None = None
    ) -> None:
        home = zeros((), graph=graph).graph if graph is None else graph  # of the `with` around it
        self.gamma: Value = home.parameter(f'{name}/gamma', dtype, width, initial=constant_initial(1.0))
        self.epsilon = epsilon

    def __call__(self, x: Value) -> Value:
        return rms_norm(x, self.gamma, self.epsilon)


class Dropout:
    """0 with `probability`, else x / (1 - probability); x itself without `training`."""

    def __init__(self, probability: float = 0.5, *, training: bool = True) -> None:
        self.probability = probability
        self.training = training

    def __call__(self, x: Value) -> Value:
        return dropout(x, self.probability, self.training) if self.training and self.probability > 0 else x


class Sequential:
    """Layers and functions one after the other: each is called with the result of the one before, of which the outputs
    are taken where it is a recurrent layer's."""

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        self.layers = layers

    def __call__(self, x: Value) -> Value:
        for layer in self.layers:
            made = layer(x)
            x = made.outputs if isinstance(made, RecurrentResult) else made
        return x

    def __len__(self) -> int:
        return len(self.layers)

    def __getitem__(self, index: int) -> Any:
        return self.layers[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.layers)
