# SPDX-License-Identifier: Apache-2.0
"""Gradients held against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._paoding import Graph, Parameters, Program, gradients
from .control import _flat
from .errors import ArgumentError, Error

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ['GradientError', 'check_gradient']


class GradientError(Error, AssertionError):
    """A gradient that finite differences are not near."""


def check_gradient(
    function: Callable[..., Any],
    *arrays: Any,
    step: float = 1e-5,
    relative: float = 1e-4,
    absolute: float = 1e-6,
    at_most: int = 64,
    seed: int = 0,
    device: str = 'cpu',
) -> float:
    """Compares the gradient of function(*values) with central differences in f64, and returns the largest difference.

    Arrays of floats are given as f64, and are differentiated; others stay as they are. The results, nested in any way,
    are added up with random factors (of `seed`); at `at_most` elements of each array, drawn at random where it has more,
    the gradient g and the difference d of a `step` to both sides must have |g - d| <= absolute + relative |d|.
    GradientError names the element that is furthest off. ArgumentError where there is no float, or two runs differ, as
    with dropout. Layers may be within; where an element is a kink, as of relu at 0, give other arrays.

    >>> import numpy as np
    >>> pd.check_gradient(lambda x, w: pd.tanh(x @ w), np.ones((2, 3)), np.full((3, 2), 0.1)) < 1e-6
    True
    """
    import numpy

    given = [numpy.asarray(each) for each in arrays]
    given = [each.astype(numpy.float64) if each.dtype.kind == 'f' else each for each in given]
    floats = [i for i, each in enumerate(given) if each.dtype.kind == 'f']
    if not floats:
        raise ArgumentError('check_gradient: no array has floats')
    random = numpy.random.default_rng(seed)
    with Graph() as graph:
        values = [graph.input(f'x{i}', str(each.dtype), each.shape) for i, each in enumerate(given)]
        results = [each for each in _flat(function(*values), []) if each.dtype.name in ('f64', 'f32', 'f16', 'bf16')]
        if not results:
            raise ArgumentError('check_gradient: the function gives no float')
        terms = [(each.astype('f64') * random.uniform(0.5, 1.5, each.shape)).sum() for each in results]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        graph.fetch('total', total)
        for i, derivative in zip(floats, gradients([total], [values[i] for i in floats]), strict=True):
            graph.fetch(f'd{i}', derivative)
    program = Program(graph, Parameters(graph, device=device, seed=seed), device=device)

    def total_of(feeds: list[NDArray[Any]]) -> float:
        return float(program.run({f'x{i}': each for i, each in enumerate(feeds)})['total'].item())

    made = {name: each.numpy() for name, each in program.run({f'x{i}': each for i, each in enumerate(given)}).items()}
    if total_of(given) != made['total']:
        raise ArgumentError('check_gradient: two runs give different results\nhint: without dropout and random numbers')
    largest, worst, excess = 0.0, '', 0.0
    for i in floats:
        size = given[i].size
        places = numpy.arange(size) if size <= at_most else numpy.sort(random.choice(size, at_most, replace=False))
        for place in places:
            ends = []
            for sign in (1, -1):
                feeds = list(given)
                feeds[i] = given[i].copy()
                feeds[i].flat[place] += sign * step
                ends.append(total_of(feeds))
            difference, gradient = (ends[0] - ends[1]) / (2 * step), float(made[f'd{i}'].flat[place])
            off = abs(gradient - difference)
            largest = max(largest, off)
            if not off - absolute - relative * abs(difference) <= excess:
                excess = off - absolute - relative * abs(difference)
                index = [int(each) for each in numpy.unravel_index(place, given[i].shape)]
                worst = f'check_gradient: the gradient for array {i} at {index} is {gradient:.8g}, differences give {difference:.8g}'
    if worst:
        raise GradientError(worst)
    return largest
