# SPDX-License-Identifier: Apache-2.0
"""Where a NaN or an infinity came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._paoding import NonfiniteReport, NonfiniteValue, Program, ValueRead, nonfinite_of

__all__ = ['NonfiniteReport', 'NonfiniteValue', 'ValueRead', 'find_nonfinite']


def find_nonfinite(program: Program, feeds: Mapping[str, Any], *, rewind_random: int = 0) -> NonfiniteReport | None:
    """Runs the program's graph once more on the values that its store holds now, step by step, on a copy of them, and
    follows a non-finite result back to the first value that is: None when all fetches, and all parameters after the run,
    are finite. `rewind_random`: how many runs the store has counted since its values were those of the run in question,
    so that the same random numbers are drawn: 1 right after a run whose update was skipped (skip_nonfinite), 0 where
    values were put back. It takes two compilations, and some times as long as a run.

    >>> with pd.Graph() as graph:
    ...     x = graph.input('x', 'f32', 3)
    ...     with graph.scope('model'):
    ...         graph.fetch('loss', pd.log(x - 1.0).sum())
    >>> program = pd.Program(graph)
    >>> found = pd.find_nonfinite(program, {'x': [3.0, 2.0, 1.0]})
    >>> found.first.members or [found.first.name], found.first.scope
    (['sub', 'log', 'sum'], 'model')
    >>> found.unfused.name, found.unfused.index, found.unfused.value
    ('log', [2], -inf)
    >>> print(pd.find_nonfinite(program, {'x': [3.0, 2.0, 1.5]}))
    None
    """
    options = program.options
    return nonfinite_of(
        program.graph,
        program.parameters,
        dict(feeds),
        options['device'],
        options['fetches'],
        options['assign'],
        options['precision'],
        options['allow_tf32'],
        options['disabled_passes'],
        rewind_random,
    )
