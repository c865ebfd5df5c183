# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays whose dtypes and shapes, with names of extents, are declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, Union

from .._paoding import DType, Extents, Graph, Parameters, Tensor, Value, resized
from .._types import ExtentLike
from ..control import _check_alike, _flat, _nested
from ..errors import ArgumentError, ShapeError
from ._programs import ExtentsLike, Programs

# The dtype and shape of an input: integers, and names of extents.
InputLike: TypeAlias = tuple[Union[DType, str], Union[int, str, Sequence[Union[int, str]]]]


class Function:
    """A function of Values, as one of arrays of any size: `function` is called once for every bucket of the sizes that
    come, under `with graph:`, with an input of that size for each of `inputs`, and the program of it is kept.

    `inputs` are dtypes and shapes by name: integers, and names of extents, whose sizes the arrays tell. `extents` (a
    dict, or Extents) gives bounds and buckets of them; of those that a dict leaves out every size from 1 is a bucket.
    The results are nested as what the function returns, with Tensors for Values.

    Where the size of an extent is not its bucket, arrays are padded behind their end with `pad_with[name]` (0 without),
    and results are cut to the size along the axes that are as long as the bucket (`crop=False` leaves them). What
    padding changes, a mean over time as an example, is for the function to mask: an argument with the name of an extent
    is the size of this call, an i64 of no axes.

    Layers and optimizers may be within; `parameters` (made of the first graph, with `seed`, where none are given) are
    the same for every size. `keep_at_most` and `options` are those of Programs.

    >>> import numpy as np
    >>> @pd.function(x=('f32', ['batch', 'time', 3]), extents={'time': (1, 100, pd.multiples_of(8))})
    ... def means(x, time):
    ...     valid = pd.sequence_mask(time.reshape(1), max_length=x.shape[1]).astype('f32')
    ...     return (x * valid.reshape(1, -1, 1)).sum(axis=1) / time.astype('f32')
    >>> means(np.ones((2, 5, 3), np.float32)).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    >>> means.bucket_of(batch=2, time=5)
    {'batch': 2, 'time': 8}
    >>> means(np.ones((2, 500, 3), np.float32))
    Traceback (most recent call last):
        ...
    paoding.errors.ShapeError: time is 500; this class holds 1 to 100
    """

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: Mapping[str, InputLike],
        *,
        extents: ExtentsLike | None = None,
        parameters: Parameters | None = None,
        seed: int = 0,
        keep_at_most: int = 256,
        pad_with: Mapping[str, float] | None = None,
        crop: bool = True,
        **options: Any,
    ) -> None:
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, '__name__', 'function')
        self._function = function
        self._inputs = {name: (dtype, _axes_of(self.__name__, name, shape)) for name, (dtype, shape) in inputs.items()}
        used = [axis for _, shape in self._inputs.values() for axis in shape if isinstance(axis, str)]
        bounds: Mapping[str, ExtentLike] = {} if extents is None or isinstance(extents, Extents) else extents
        given = extents.names if isinstance(extents, Extents) else bounds
        self._fail_on(set(given) - set(used), 'no input has the extent')
        if isinstance(extents, Extents):
            self._fail_on(set(used) - set(given), 'among the extents there is no')
        self._pad_with = dict(pad_with or {})
        self._fail_on(set(self._pad_with) - set(self._inputs), 'pad_with: there is no input')
        self._asked = [name for name in inspect.signature(function).parameters if name in used]
        self._fail_on(set(used) & set(self._inputs), 'an input has the name of the extent')
        self._crop = crop
        self._strict = bool(options.get('strict', False))
        self._like: Any = None  # the results of the function, as they are nested
        self._is_traced = False
        self._cuts: dict[str, list[list[int]]] = {}  # by extent: axes of each result that are as long
        all_bounds = {name: bounds.get(name) for name in dict.fromkeys(used)}
        named = extents if isinstance(extents, Extents) else Extents(all_bounds)
        self.programs = Programs(named, self._graph, parameters, seed=seed, keep_at_most=keep_at_most, **options)

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which calls the function anew: results that it made are values of graphs."""
        return {**self.__dict__, '_like': None, '_is_traced': False}

    def _fail_on(self, names: set[str], problem: str) -> None:
        if names:
            raise ArgumentError(f'{self.__name__}: {problem} ' + ', '.join(f"'{name}'" for name in sorted(names)))

    @property
    def extents(self) -> Extents:
        return self.programs.extents

    @property
    def parameters(self) -> Parameters:
        """Of all sizes. Before the first call the graph of the smallest sizes tells what there are."""
        if self.programs.parameters is None:
            self.programs.at(**{name: self.extents.bounds(name)[0] for name in self.extents.names})
        assert self.programs.parameters is not None
        return self.programs.parameters

    def bucket_of(self, **sizes: int) -> dict[str, int]:
        """The sizes of the program that runs these."""
        return self.programs.bucket_of(**sizes)

    def graph(self, **sizes: int) -> Graph:
        """The graph that the function makes for these sizes, which need not be a bucket."""
        return self._graph(**sizes)

    def __call__(self, *arrays: Any, **feeds: Any) -> Any:
        feeds = self._by_name(arrays, feeds)
        sizes = self._sizes(feeds)
        bucket = self.bucket_of(**sizes)
        program = self.programs.at(**sizes)
        padded = [name for name in bucket if bucket[name] != sizes[name]]
        for name, (dtype, shape) in self._inputs.items():
            if any(axis in padded for axis in shape):
                wanted = [bucket[axis] if isinstance(axis, str) else axis for axis in shape]
                feeds[name] = resized(feeds[name], dtype, wanted, self._pad_with.get(name, 0.0), name, self._strict)
        for name in self._asked:
            feeds[name] = sizes[name]
        results = list(program.run(feeds).values())
        if self._crop:
            for name in padded:
                all_axes = self._axes(name, bucket)
                results = [_cut(result, axes, sizes[name]) for result, axes in zip(results, all_axes, strict=True)]
        return _nested(self._like, iter(results))

    def _by_name(self, arrays: Sequence[Any], feeds: dict[str, Any]) -> dict[str, Any]:
        if len(arrays) > len(self._inputs):
            raise ArgumentError(f'{self.__name__}: {len(arrays)} arrays for {len(self._inputs)} inputs')
        positional = dict(zip(self._inputs, arrays, strict=False))
        self._fail_on(set(positional) & set(feeds), 'given twice is')
        self._fail_on(set(feeds) - set(self._inputs), 'there is no input')
        self._fail_on(set(self._inputs) - set(positional) - set(feeds), 'no value is given for')
        return {**positional, **feeds}

    def _sizes(self, feeds: Mapping[str, Any]) -> dict[str, int]:
        found: dict[str, tuple[int, str]] = {}
        for name, (_, shape) in self._inputs.items():
            given = _shape_of(feeds[name])
            if len(given) != len(shape):
                wanted = ', '.join(map(str, shape))
                raise ShapeError(f"{self.__name__}: '{name}' has the shape {given}, needed is ({wanted})")
            for axis, size in zip(shape, given, strict=True):
                if not isinstance(axis, str):
                    continue
                before, other = found.setdefault(axis, (size, name))
                if before != size:
                    raise ShapeError(f"{self.__name__}: {axis} is {before} in '{other}' and {size} in '{name}'")
        return {axis: size for axis, (size, _) in found.items()}

    def _graph(self, **sizes: int) -> Graph:
        with Graph() as graph:
            values = {
                name: graph.input(name, dtype, [sizes[axis] if isinstance(axis, str) else axis for axis in shape])
                for name, (dtype, shape) in self._inputs.items()
            }
            for name in self._asked:
                values[name] = graph.input(name, 'i64', ())
            results = self._function(**values)
            values_of_results = _flat(results, [])
            for name, value in zip(_result_names(results, len(values_of_results)), values_of_results, strict=True):
                graph.fetch(name, value)
        if self._is_traced:
            _check_alike(f'{self.__name__}: the results for ' + _text_of(sizes), results, self._like)
        self._like = results
        self._is_traced = True
        return graph

    def _axes(self, extent: str, bucket: Mapping[str, int]) -> list[list[int]]:
        """The axes of each result that are as long as the extent: those that change with it."""
        if extent not in self._cuts:
            size = bucket[extent]
            other = self._size_beside(extent, bucket)
            here = self._result_shapes(bucket)
            there = self._result_shapes({**bucket, extent: other})
            self._cuts[extent] = []
            for i, (before, after) in enumerate(zip(here, there, strict=True)):
                axes = [axis for axis, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
                for axis in axes:
                    if (before[axis], after[axis]) != (size, other):
                        raise ArgumentError(
                            f'{self.__name__}: axis {axis} of result {i} is {before[axis]} long where {extent} is '
                            f'{size}, and {after[axis]} where it is {other}: where it ends for another size is not known\n'
                            'hint: crop=False leaves results as the bucket has them'
                        )
                self._cuts[extent].append(axes)
        return self._cuts[extent]

    def _size_beside(self, extent: str, bucket: Mapping[str, int]) -> int:
        """Another bucket where there is one, for the function need not take other sizes."""
        size = bucket[extent]
        low, high = self.extents.bounds(extent)
        for near in (size + 1, low):
            if high is not None and near > high:
                continue
            try:
                other = self.bucket_of(**{**bucket, extent: near})[extent]
            except ShapeError:  # no bucket holds it
                continue
            if other != size:
                return other
        return size - 1

    def _result_shapes(self, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
        self._graph(**sizes)
        return [value.shape for value in _flat(self._like, [])]


def _result_names(results: Any, count: int) -> list[str]:
    """Those of a dict of values; numbers otherwise."""
    if isinstance(results, dict) and all(isinstance(each, Value) for each in results.values()):
        return [str(name) for name in results]
    return [f'result{i}' for i in range(count)]


def _text_of(sizes: Mapping[str, int]) -> str:
    return ', '.join(f'{name}={size}' for name, size in sizes.items())


def _axes_of(function: str, name: str, shape: int | str | Sequence[int | str]) -> tuple[int | str, ...]:
    shape = (shape,) if isinstance(shape, (int, str)) else shape
    for axis in shape:
        if not isinstance(axis, (int, str)):
            raise ArgumentError(
                f"{function}: an axis of '{name}' is {axis!r}, needed is an integer or the name of an extent"
            )
    return tuple(shape)


def _shape_of(array: Any) -> tuple[int, ...]:
    shape = getattr(array, 'shape', None)
    if shape is None:
        import numpy

        shape = numpy.shape(array)
    return tuple(int(each) for each in shape)


def _cut(result: Tensor, axes: Sequence[int], size: int) -> Tensor:
    if not axes:
        return result
    shape = [size if axis in axes else extent for axis, extent in enumerate(result.shape)]
    return resized(result, None, shape, 0.0, 'result')
