# SPDX-License-Identifier: Apache-2.0
"""Some steps of a loop are recorded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TypeVar

from ._paoding import StepsInWindow

__all__ = ['ProfiledSteps']

T = TypeVar('T')


class ProfiledSteps:
    """Records steps `first` to `end` - 1 of a loop, counted from 0: of one that goes through over(..), or that calls
    before(step) in front of every step and, with the number of the next, after the last. The report compares recorded
    steps with those around them, where there are five of either. `by_cupti`: those of them in which NVIDIA's CUPTI
    records the kernels of GPUs. `state`: 'all', 'cpu' or 'gpu'; `detail`: 'op', 'phases' or 'instances'.

    >>> with pd.Graph() as graph:
    ...     graph.fetch('y', pd.tanh(graph.input('x', 'f32', 3)))
    >>> program, seen = pd.Program(graph), pd.ProfiledSteps(2, 4)
    >>> for x in seen.over([[1.0, 2.0, 3.0]] * 6):
    ...     y = program(x=x)['y']
    >>> 'tanh' in seen.report()
    True
    """

    def __init__(
        self, first: int, end: int, *, state: str = 'all', detail: str = 'op', by_cupti: tuple[int, int] = (0, 0)
    ) -> None:
        self._steps = StepsInWindow((first, end), state, detail, by_cupti)

    def before(self, step: int) -> None:
        """The step of this number begins."""
        self._steps.before(step)

    def over(self, steps: Iterable[T]) -> Iterator[T]:
        """What it is given, one after the other, as the steps of the loop."""
        count = 0
        for count, each in enumerate(steps, 1):
            self._steps.before(count - 1)
            yield each
        self._steps.before(count)

    @property
    def is_begun(self) -> bool:
        """Whether one of the steps that are recorded has begun."""
        return self._steps.is_begun

    def report(
        self,
        sort: str = 'total',
        path: str | os.PathLike[str] = '',
        nesting: str = 'op',
        format: str = 'text',
    ) -> str:
        """As Profiler.report; it ends the recording. ArgumentError when none of the steps has begun."""
        return self._steps.report(sort, path, nesting, format)
