# SPDX-License-Identifier: Apache-2.0
"""Layers without parameters of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from .._paoding import RecurrentResult, Value, dropout


class Dropout:
    """0 with `probability`, else x / (1 - probability); x itself without `training`.

    >>> with pd.Graph() as graph:
    ...     pd.nn.Dropout(0.1)(graph.input('x', 'f32', (3, 4)))
    Value(f32[3,4])
    """

    def __init__(self, probability: float = 0.5, *, training: bool = True) -> None:
        self.probability = probability
        self.training = training

    def __call__(self, x: Value) -> Value:
        return dropout(x, self.probability, self.training) if self.training and self.probability > 0 else x


class Sequential:
    """Layers and functions one after the other: each is called with the result of the one before, of which the outputs
    are taken where it is a recurrent layer's.

    >>> with pd.Graph() as graph:
    ...     model = pd.nn.Sequential(pd.nn.Linear('in', 4, 8), pd.relu, pd.nn.Linear('out', 8, 2))
    ...     model(graph.input('x', 'f32', (3, 4)))
    Value(f32[3,2])
    """

    def __init__(self, *layers: Callable[..., Any]) -> None:
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


class Stack(Sequential):
    """Layers of one kind one after the other, each called with what is given besides x too, then `last`, a norm, where there
    is one: what torch.nn's TransformerEncoder and TransformerDecoder are.

    >>> with pd.Graph() as graph:
    ...     x, lengths = graph.input('x', 'f32', (2, 5, 8)), graph.input('lengths', 'i64', 2)
    ...     layers = [pd.nn.TransformerEncoderLayer(f'layer{i}', 8, 2) for i in range(3)]
    ...     pd.nn.Stack(*layers, last=pd.nn.LayerNorm('norm', 8))(x, lengths=lengths)
    Value(f32[2,5,8])
    """

    def __init__(self, *layers: Callable[..., Any], last: Callable[[Any], Any] | None = None) -> None:
        super().__init__(*layers)
        self.last = last

    def __call__(self, x: Value, *others: Any, **options: Any) -> Value:
        for layer in self.layers:
            x = layer(x, *others, **options)
        return x if self.last is None else self.last(x)
