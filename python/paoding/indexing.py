# SPDX-License-Identifier: Apache-2.0
"""value[key] with lists, arrays and Values of integers, and bools, as NumPy has it: they are broadcast together, and pick
one element for each of their elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Union

from . import ops
from ._paoding import DType, Value, constant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    # Integers that are known when the graph is built, or when it runs.
    Picks: TypeAlias = Union['NDArray[Any]', Value]


_OF_BOOLS = 'pd.where(mask, value, otherwise); a shape that depends on elements is not known when the graph is built'


def selected(value: Value, key: Any) -> Value:
    keys = _expanded(key if isinstance(key, tuple) else (key,), value.ndim)
    has_picks = any(_is_picking(each) for each in keys)
    basic: list[Any] = []
    picks: list[tuple[int, Any, int]] = []  # with their axis after the basic part, and of the value
    axis = axis_of_value = 0
    for each in keys:
        if each is None:
            basic.append(None)
            axis += 1
            continue
        if isinstance(each, slice) or not has_picks:
            basic.append(each)
        else:  # numbers too, which NumPy broadcasts with the arrays
            basic.append(slice(None))
            picks.append((axis, each, axis_of_value))
        axis += 1
        axis_of_value += 1
    part = value if all(isinstance(each, slice) and each == slice(None) for each in basic) else value[tuple(basic)]
    if len(picks) == 1 and isinstance(picks[0][1], Value):  # gather looks at them itself
        return ops.gather(part, picks[0][1], axis=picks[0][0])
    return _picked(part, [(axis, _integers(each, value.shape[of], of)) for axis, each, of in picks])


def _is_picking(key: Any) -> bool:
    return key is not None and not isinstance(key, (int, slice)) and not _is_number(key)


def _is_number(key: Any) -> bool:
    return hasattr(key, '__index__') and not isinstance(key, (bool, Value)) and getattr(key, 'shape', ()) == ()


def _expanded(keys: tuple[Any, ...], rank: int) -> list[Any]:
    """One key for every axis, and None for new ones: without `...`, and with the places of True for an array of bools."""
    import numpy

    plain: list[Any] = []
    for key in keys:
        if isinstance(key, Value):
            if key.dtype not in (DType.i64, DType.i32, DType.u8):
                hint = _OF_BOOLS if key.dtype == DType.bool else "index.astype('i64')"
                raise TypeError(f'an index is a {key!r}, needed are integers\nhint: {hint}')
            plain.append(key)
        elif isinstance(key, (list, bool)) or hasattr(key, 'shape'):
            array = numpy.asarray(key)
            if array.size == 0 and isinstance(key, list):
                array = array.astype(numpy.int64)
            if array.dtype.kind == 'b':
                if array.ndim == 0:
                    raise TypeError('an index is a single bool; needed are as many as an axis has elements')
                plain.append(array)
            elif array.dtype.kind in 'iu':
                plain.append(array.astype(numpy.int64) if array.ndim > 0 else int(array))
            else:
                raise TypeError(f'an index is an array of {array.dtype}, needed are integers or bools')
        else:
            plain.append(key)
    used = sum(key.ndim if _is_mask(key) else key is not None and key is not Ellipsis for key in plain)
    if used > rank:
        raise IndexError(f'a value of {rank} axes has no {used} axes')
    if sum(key is Ellipsis for key in plain) > 1:
        raise IndexError('an index has more than one ...')
    if not any(key is Ellipsis for key in plain):
        plain.append(Ellipsis)
    made: list[Any] = []
    for key in plain:
        if key is Ellipsis:
            made += [slice(None)] * (rank - used)
        elif _is_mask(key):
            made += [_Places(places, extent) for places, extent in zip(key.nonzero(), key.shape, strict=True)]
        else:
            made.append(key)
    return made


class _Places:
    """Where an array of bools is true along one of its axes, which was as long as `extent`."""

    def __init__(self, places: NDArray[Any], extent: int) -> None:
        self.places = places
        self.extent = extent


def _is_mask(key: Any) -> bool:
    return not isinstance(key, Value) and getattr(key, 'dtype', None) == bool


def _integers(key: Any, extent: int, axis: int) -> Picks:
    """Counted from the start, and within the axis: of a Value this is looked at when it runs."""
    import numpy

    if isinstance(key, Value):
        checked = ops.check_indices(key.astype('i64'), most=extent - 1, may_be_negative=True, what='an index')
        return ops.select(checked < 0, checked + extent, checked)
    if isinstance(key, _Places):
        if key.extent != extent:
            raise IndexError(f'an array of {key.extent} bools stands for axis {axis} with {extent} elements')
        return key.places
    array = numpy.asarray(key, numpy.int64)
    for number in array.ravel():
        if not -extent <= number < extent:
            raise IndexError(f'index {number} is out of range for axis {axis} with {extent} elements')
    return numpy.where(array < 0, array + extent, array)


def _picked(value: Value, picks: list[tuple[int, Picks]]) -> Value:
    axes = [axis for axis, _ in picks]
    if len(picks) == 1:
        return ops.gather(value, _value_of(picks[0][1], value), axis=axes[0])
    are_beside = axes == list(range(axes[0], axes[-1] + 1))
    first = axes[0] if are_beside else 0  # where the picked axes stand in the result: NumPy's rule
    if not are_beside:
        rest = [axis for axis in range(value.ndim) if axis not in axes]
        value = value.transpose(*axes, *rest)
    extents = value.shape[first : first + len(axes)]
    flat: Any = 0
    for (_, integers), extent in zip(picks, extents, strict=True):
        flat = flat * extent + integers
    length = 1
    for extent in extents:
        length *= extent
    rows = value.reshape(*value.shape[:first], length, *value.shape[first + len(axes) :])
    return ops.gather(rows, _value_of(flat, value), axis=first)


def _value_of(integers: Picks, beside: Value) -> Value:
    return integers if isinstance(integers, Value) else constant(integers, 'i64', graph=beside.graph)
