# SPDX-License-Identifier: Apache-2.0
"""One step of the recurrences, with weights of its own: for loops that a recurrent layer does not have."""

from __future__ import annotations

import math

from .. import ops
from .._paoding import DType, Graph, Initializer, Value, uniform, zeros
from ..errors import ShapeError
from ._home import graph_of


class _Cell:
    def __init__(
        self,
        name: str,
        inputs: int,
        hidden: int,
        gates: int,
        biases: int,
        dtype: DType | str,
        initial: Initializer | None,
        graph: Graph | None,
    ) -> None:
        home = graph_of(graph)
        bound = 1 / math.sqrt(hidden)
        start = initial or uniform(-bound, bound)
        self.name = name
        self.inputs = inputs
        self.hidden = hidden
        self.w: Value = home.parameter(f'{name}/w', dtype, (inputs, gates * hidden), initial=start)
        self.u: Value = home.parameter(f'{name}/u', dtype, (hidden, gates * hidden), initial=start)
        self.b: Value = home.parameter(f'{name}/b', dtype, biases * hidden, initial=start)

    def _state(self, x: Value, given: Value | None) -> Value:
        if x.ndim != 2 or x.shape[1] != self.inputs:
            raise ShapeError(f'{self.name}: x is {x!r}, needed is [B, {self.inputs}]')
        return zeros((x.shape[0], self.hidden), x.dtype, graph=x.graph) if given is None else given


class _CellOfOneState(_Cell):
    def start(self, batch: int) -> Value:
        """The state before the first step, zeros."""
        return zeros((batch, self.hidden), self.w.dtype, graph=self.w.graph)


class LSTMCell(_Cell):
    """One LSTM step: c' = f c + i g, h' = o tanh(c'), of the gates i, f, g, o of x w + h u + b.

    Called with x [B, inputs] and the state (h, c), [B, hidden] both, zeros without: the next (h, c). Parameters are
    <name>/w [inputs, 4 hidden], <name>/u [hidden, 4 hidden] and <name>/b [4 hidden], uniform in +-1 / sqrt(hidden)
    unless `initial` says otherwise.

    >>> with pd.Graph() as graph:
    ...     cell = pd.nn.LSTMCell('cell', 3, 4)
    ...     (h, c), states = pd.scan(lambda s, x: (cell(x, s), s[0]), cell.start(2), graph.input('x', 'f32', (5, 2, 3)))
    ...     h, states
    (Value(f32[2,4]), Value(f32[5,2,4]))
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        hidden: int,
        *,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(name, inputs, hidden, 4, 4, dtype, initial, graph)

    def start(self, batch: int) -> tuple[Value, Value]:
        """The state before the first step, zeros."""
        zero = zeros((batch, self.hidden), self.w.dtype, graph=self.w.graph)
        return zero, zero

    def __call__(self, x: Value, state: tuple[Value, Value] | None = None) -> tuple[Value, Value]:
        h, c = (None, None) if state is None else state
        with x.graph.scope(self.name):
            h, c = ops.lstm_cell(x, self._state(x, h), self._state(x, c), self.w, self.u, self.b)
        return h, c


class GRUCell(_CellOfOneState):
    """One GRU step: h' = (1 - z) n + z h, of the gates r, z, n of x w + h u + b (ops.gru_cell has the formula).

    Called with x [B, inputs] and h [B, hidden], zeros without: the next h. Parameters are <name>/w [inputs, 3 hidden],
    <name>/u [hidden, 3 hidden] and <name>/b, [4 hidden] with `reset_after` (PyTorch's GRU), else [3 hidden].

    >>> with pd.Graph() as graph:
    ...     pd.nn.GRUCell('cell', 3, 4)(graph.input('x', 'f32', (2, 3)))
    Value(f32[2,4])
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        hidden: int,
        *,
        reset_after: bool = True,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(name, inputs, hidden, 3, 4 if reset_after else 3, dtype, initial, graph)
        self.reset_after = reset_after

    def __call__(self, x: Value, h: Value | None = None) -> Value:
        with x.graph.scope(self.name):
            return ops.gru_cell(x, self._state(x, h), self.w, self.u, self.b, self.reset_after)


class RNNCell(_CellOfOneState):
    """One step of the plain recurrence: h' = tanh(x w + h u + b), or the larger of the sum and 0 with `relu`.

    Called with x [B, inputs] and h [B, hidden], zeros without: the next h. Parameters are <name>/w [inputs, hidden],
    <name>/u [hidden, hidden] and <name>/b [hidden].

    >>> with pd.Graph() as graph:
    ...     pd.nn.RNNCell('cell', 3, 4)(graph.input('x', 'f32', (2, 3)))
    Value(f32[2,4])
    """

    def __init__(
        self,
        name: str,
        inputs: int,
        hidden: int,
        *,
        relu: bool = False,
        dtype: DType | str = 'f32',
        initial: Initializer | None = None,
        graph: Graph | None = None,
    ) -> None:
        super().__init__(name, inputs, hidden, 1, 1, dtype, initial, graph)
        self.relu = relu

    def __call__(self, x: Value, h: Value | None = None) -> Value:
        with x.graph.scope(self.name):
            return ops.rnn_cell(x, self._state(x, h), self.w, self.u, self.b, self.relu)
