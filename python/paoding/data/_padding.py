# SPDX-License-Identifier: Apache-2.0
"""Examples as one batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def stacked(examples: Sequence[Any]) -> Any:
    """Arrays and numbers with a new first axis; examples that are tuples, lists or dicts of them give such a batch.
    ShapeError when shapes differ.

    >>> pd.data.stacked([{'x': [1, 2], 'y': 0}, {'x': [3, 4], 'y': 1}])['y'].tolist()
    [0, 1]
    """
    import numpy

    first = examples[0]
    if isinstance(first, dict):
        return {name: _column([example[name] for example in examples], name) for name in first}
    if isinstance(first, (tuple, list)) and not _is_row(first):
        return tuple(_column(list(column), str(i)) for i, column in enumerate(zip(*examples, strict=True)))
    return _column(list(examples), '') if len(examples) > 0 else numpy.empty(0)


def _is_row(example: Sequence[Any]) -> bool:
    """Whether a tuple or list is of numbers, so one array, and not of several arrays."""
    return isinstance(example, list) and all(isinstance(each, (bool, int, float)) for each in example)


def _column(values: list[Any], name: str) -> NDArray[Any]:
    import numpy

    arrays = [numpy.asarray(value) for value in values]
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        part = f" of '{name}'" if name else ''
        raise ShapeError(
            f'a batch{part} has examples of the shapes {sorted(shapes)[:3]}, needed is one\n'
            'hint: collate=.. makes a batch of examples; pd.data.padded gives sequences one length'
        )
    return numpy.stack(arrays)


def padded(sequences: Sequence[Any], length: int | None = None, value: float = 0) -> tuple[NDArray[Any], NDArray[Any]]:
    """Sequences [T_i, ..] as one array [B, T, ..], with `value` behind their ends, and their lengths, i64 [B]. T is the
    longest, or `length`. ShapeError when one is longer, or they differ in another extent.

    >>> array, lengths = pd.data.padded([[1, 2, 3], [4]], length=4)
    >>> array.tolist(), lengths.tolist()
    ([[1, 2, 3, 0], [4, 0, 0, 0]], [3, 1])
    """
    import numpy

    arrays = [numpy.asarray(each) for each in sequences]
    lengths = numpy.array([len(each) for each in arrays], numpy.int64)
    most = int(lengths.max(initial=0)) if length is None else length
    if (lengths > most).any():
        raise ShapeError(f'padded: a sequence has the length {lengths.max()}, more than {most}')
    kinds = {each.shape[1:] for each in arrays}
    if len(kinds) > 1:
        raise ShapeError(f'padded: elements have the shapes {sorted(kinds)[:3]}, needed is one')
    dtype = numpy.result_type(*arrays) if arrays else numpy.float32
    made = numpy.full((len(arrays), most, *next(iter(kinds), ())), value, dtype)
    for row, each in zip(made, arrays, strict=True):
        row[: len(each)] = each
    return made, lengths
