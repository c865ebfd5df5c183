# SPDX-License-Identifier: Apache-2.0
"""Recurrent models that are served: many independent sequences, of which some get a step or a chunk of steps in a call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ._paoding import DType, Parameters, StreamingOfLists, Tensor, Value
from .control import _check_alike, _flat, _mapped
from .errors import ArgumentError

__all__ = ['Streaming']


class Streaming:
    """Sequences that join, take steps and leave; their states stay on the device between calls.

    build(xs, lengths, states): the model for T steps of all sequences: xs [T, capacity, ..], lengths i32 [capacity], how
    many of the steps count for each (0: none in this call), and states, nested as `states` is, each [capacity, ..]. It
    returns the states after that, those of sequences without a step unchanged, and its outputs, [T, capacity, ..] each,
    nested in any way. Recurrent layers do so when they get lengths and first states. `input` and `states`: dtypes and
    shapes of one step, and of the states, of one sequence. A program is made for every T. One thread uses it at a time.

    >>> import numpy as np
    >>> def build(xs, lengths, states):
    ...     made = pd.nn.LSTM('lstm', 3, 4)(xs, lengths=lengths, initial_h=[states['h']], initial_c=[states['c']])
    ...     return {'h': made.last_h[0], 'c': made.last_c[0]}, made.outputs
    >>> streaming = pd.Streaming(build, 8, input=('f32', 3), states={'h': ('f32', 4), 'c': ('f32', 4)})
    >>> one, other = streaming.join(), streaming.join()
    >>> made = streaming.run({one: np.ones((5, 3)), other: np.zeros((2, 3))})
    >>> made[one].shape, made[other].shape
    ((5, 4), (2, 4))
    >>> streaming.leave(one)
    """

    def __init__(
        self,
        build: Callable[[Value, Value, Any], tuple[Any, Any]],
        capacity: int,
        *,
        input: tuple[DType | str, Any],
        states: Any,
        device: str = 'cpu',
        seed: int = 0,
        precision: DType | str = 'f32',
        allow_tf32: bool = False,
    ) -> None:
        types = _Types(states)
        self._input = input
        self._like: Any = None  # outputs, as they are nested

        def of_lists(xs: Value, lengths: Value, given: list[Value]) -> tuple[list[Value], list[Value]]:
            nested = types.nested(given)
            made = build(xs, lengths, nested)
            if not (isinstance(made, tuple) and len(made) == 2):
                raise ArgumentError(f'Streaming: the model gave {made!r}, needed are states and outputs')
            _check_alike('Streaming: the states that the model gives', made[0], nested)
            self._like = _mapped(made[1], lambda each: each is not None)
            return _flat(made[0], []), _flat(made[1], [])

        self._of_lists = StreamingOfLists(of_lists, capacity, input, types.flat, device, seed, precision, allow_tf32)

    @property
    def parameters(self) -> Parameters:
        """The model's weights, beside the states."""
        return self._of_lists.parameters

    @property
    def sequences(self) -> int:
        """How many there are."""
        return self._of_lists.sequences

    @property
    def capacity(self) -> int:
        return self._of_lists.capacity

    def prepare(self, steps: int) -> None:
        """Compiles for calls of so many steps; else the first of them does."""
        self._of_lists.prepare(steps)

    def join(self) -> int:
        """A sequence that begins, with states of 0: its number, below the capacity. ArgumentError when all are there."""
        return self._of_lists.join()

    def leave(self, sequence: int) -> None:
        """Its number is free. ArgumentError when there is no such sequence."""
        self._of_lists.leave(sequence)

    def run_all(self, xs: Any, lengths: Sequence[int]) -> Any:
        """Takes the first lengths[s] of the steps xs[:, s] further for every number s: the outputs, [T, capacity, ..],
        where steps that do not count hold whatever the model gives. ShapeError, DtypeError: xs is not [T, capacity, ..];
        ArgumentError: a length is not in 0 .. T, or not 0 for a number that no sequence has."""
        self._of_lists.run(xs, list(lengths))
        return self._outputs()

    def run(self, steps: Mapping[int, Any]) -> dict[int, Any]:
        """Takes sequences further, each by steps [T_s, ..] of its own: its outputs, [T_s, ..], by its number."""
        import numpy

        if not steps:
            return {}
        arrays = {sequence: numpy.asarray(each) for sequence, each in steps.items()}
        most = max(len(each) for each in arrays.values())
        first = next(iter(arrays.values()))
        xs = numpy.zeros((most, self.capacity, *first.shape[1:]), first.dtype)
        lengths = [0] * self.capacity
        for sequence, each in arrays.items():
            if not 0 <= sequence < self.capacity:
                raise ArgumentError(f'Streaming: there is no sequence {sequence}')
            if each.shape[1:] != first.shape[1:]:
                raise ArgumentError(f'Streaming: steps have the shapes {first.shape[1:]} and {each.shape[1:]}')
            xs[: len(each), sequence] = each
            lengths[sequence] = len(each)
        outputs = self.run_all(xs, lengths)

        def of(sequence: int) -> Any:
            count = lengths[sequence]
            return _mapped(outputs, lambda each: each if each is None else each.numpy()[:count, sequence])

        return {sequence: of(sequence) for sequence in arrays}

    def _outputs(self) -> Any:
        place = iter(range(1 << 30))

        def output(is_there: bool) -> Tensor | None:
            return self._of_lists.output(next(place)) if is_there else None

        return _mapped(self._like, output)


class _Types:
    """States of one sequence: (dtype, shape), nested in lists, tuples and dicts."""

    def __init__(self, states: Any) -> None:
        self.flat: list[tuple[Any, Any]] = []
        self._like = self._taken(states)

    def _taken(self, each: Any) -> Any:
        if isinstance(each, dict):
            return {name: self._taken(part) for name, part in each.items()}
        is_type = isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], (str, DType))
        if is_type:
            self.flat.append(each)
            return True
        if isinstance(each, (list, tuple)):
            return [self._taken(part) for part in each]
        raise ArgumentError(f'Streaming: a state is {each!r}, needed is (dtype, shape)')

    def nested(self, values: list[Value]) -> Any:
        left = iter(values)
        return _mapped(self._like, lambda _: next(left))
