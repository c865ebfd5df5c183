# SPDX-License-Identifier: Apache-2.0
"""Functions of arrays that are traced for the dtypes and shapes that come: nothing is declared."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from .._paoding import DType, Graph, Parameters, Tensor, Value
from ..control import _flat, _found, _mapped, _values
from ..errors import ArgumentError
from ._function import _result_names
from ._programs import Kept

_NARROW = ('int8', 'int16', 'uint16', 'uint32', 'uint64')  # which become i64
_DTYPES = {
    **{'float64': 'f64', 'float32': 'f32', 'float16': 'f16', 'bfloat16': 'bf16', 'bool': 'bool', 'bool_': 'bool'},
    **{'int64': 'i64', 'int32': 'i32', 'uint8': 'u8'},
    **dict.fromkeys(_NARROW, 'i64'),
}


class TracedFunction:
    """A function of Values, as one of arrays: `function` is called, under `with graph:`, once for each structure of its
    arguments, with Values for arrays and numbers; the program of it is kept, and later ones are bound to the same store
    of parameters and the same memory. A structure is how arguments are nested in tuples, lists and dicts, the dtypes and
    shapes of arrays, and what is fixed: strings, None, and arguments named in `static`.

    NumPy's f64 arrays and Python's floats are of the dtype `floats`, other arrays of their own; with 'f64' f64 stays.
    Results are nested as what the function returns, with Tensors for Values. Called with Values, it is the function.

    A method is traced for each instance. Layers and optimizers may be within; `parameters` (made at the first call, with
    `seed`, where none are given) are the same for every structure, so the first is to be one that has them all: training,
    then prediction. `keep_at_most` and `options` are those of Programs.

    >>> import numpy as np
    >>> @pd.function
    ... def spread(x, scale=1.0):
    ...     return {'low': x.min() * scale, 'high': x.max() * scale}
    >>> for n in (3, 5, 3):
    ...     made = spread(np.arange(n), 2.0)
    ...     print(made['low'].item(), made['high'].item())
    0.0 4.0
    0.0 8.0
    0.0 4.0
    >>> spread.traces
    2
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        static: Sequence[str] = (),
        floats: str = 'f32',
        parameters: Parameters | None = None,
        seed: int = 0,
        keep_at_most: int = 256,
        **options: Any,
    ) -> None:
        if floats not in ('f64', 'f32', 'f16', 'bf16'):
            raise ArgumentError(f"function: floats is '{floats}', needed is f64, f32, f16 or bf16")
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, '__name__', 'function')
        self._function = function
        self._signature = inspect.signature(function)
        plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
        self._names = [name for name, each in self._signature.parameters.items() if each.kind in plain]
        unknown = set(static) - set(self._signature.parameters)
        if unknown:
            raise ArgumentError(f'{self.__name__}: static: there is no argument ' + ', '.join(sorted(unknown)))
        self._static = frozenset([*static, 'self'] if self._names[:1] == ['self'] else static)
        self._floats = floats
        self._kept = Kept(parameters, seed, keep_at_most, options)
        self._forms: dict[Hashable, Any] = {}  # how results are nested, by structure
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != '_lock'}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A method, whose `self` is static: what it reads of the instance is as it was when it was traced."""
        return self if instance is None else functools.partial(self, instance)

    @property
    def parameters(self) -> Parameters:
        """Of all structures. ArgumentError before the first call, where none were given."""
        if self._kept.parameters is None:
            raise ArgumentError(
                f'{self.__name__}: there are no parameters before the first call\nhint: call it, or trace it by graph(..)'
            )
        return self._kept.parameters

    @property
    def traces(self) -> int:
        """How often the function was called to make a program."""
        return self._kept.made

    def graph(self, *args: Any, **kwargs: Any) -> Graph:
        """The graph that the function makes for these arguments: inputs have the names of arguments, x, y.0, z.key."""
        leaves = _Leaves(self._floats)
        graph, _ = self._trace(self._structure(args, kwargs, leaves), leaves)
        self._kept.store_for(graph)
        return graph

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves = _Leaves(self._floats)
        structure = self._structure(args, kwargs, leaves)
        if leaves.are_values:
            return self._function(*args, **kwargs)
        key = (structure, tuple(leaves.types))
        with self._lock:
            program = self._kept.at(key, lambda: self._traced(key, structure, leaves))
        results = program.run(dict(zip(leaves.names, leaves.arrays, strict=True))).values()
        return _put(self._forms[key], iter(results))

    def _structure(self, args: Sequence[Any], kwargs: Mapping[str, Any], leaves: _Leaves) -> Hashable:
        made: list[tuple[str, Hashable]] = []
        for name, value in self._bound(args, kwargs):
            if name in self._static:
                made.append((name, ('fixed', value)))
            else:
                made.append((name, leaves.taken(value, name)))
        return tuple(made)

    def _bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """The arguments by name, in the order of the function's: inspect's own way takes as long as a small program."""
        bound = list(zip(self._names, args, strict=False))
        if kwargs:
            bound += [(name, kwargs[name]) for name in self._names[len(args) :] if name in kwargs]
        if len(bound) == len(args) + len(kwargs):
            return bound
        return list(self._signature.bind(*args, **kwargs).arguments.items())

    def _traced(self, key: Hashable, structure: Hashable, leaves: _Leaves) -> Graph:
        graph, self._forms[key] = self._trace(structure, leaves)
        return graph

    def _trace(self, structure: Any, leaves: _Leaves) -> tuple[Graph, Any]:
        with Graph() as graph:
            values = iter(
                [graph.input(name, dtype, shape) for name, (dtype, shape) in zip(leaves.names, leaves.types, strict=True)]
            )
            bound = self._signature.bind_partial()
            for name, spec in structure:
                bound.arguments[name] = _given(spec, values)
            results = self._function(*bound.args, **bound.kwargs)
            results = _values(results, _found(results))
            flat = _flat(results, [])
            for name, value in zip(_result_names(results, len(flat)), flat, strict=True):
                graph.fetch(name, value)
        return graph, _mapped(results, lambda each: each is not None)


class _Leaves:
    """The arrays of a call, with names, dtypes and shapes."""

    def __init__(self, floats: str) -> None:
        self.names: list[str] = []
        self.arrays: list[Any] = []
        self.types: list[tuple[str, tuple[int, ...]]] = []
        self.are_values = False
        self._floats = floats

    def taken(self, tree: Any, path: str) -> Hashable:
        """What is left of an argument where arrays are taken out of it."""
        if tree is None or isinstance(tree, str):
            return ('fixed', tree)
        if isinstance(tree, dict):
            return ('dict', tuple((key, self.taken(each, f'{path}.{key}')) for key, each in tree.items()))
        if isinstance(tree, (tuple, list)):
            return (type(tree), tuple(self.taken(each, f'{path}.{i}') for i, each in enumerate(tree)))
        if isinstance(tree, Value):
            self.are_values = True
            return 'array'
        self.names.append(path)
        if isinstance(tree, (bool, int, float)):
            dtype = 'bool' if isinstance(tree, bool) else 'i64' if isinstance(tree, int) else self._floats
            self.types.append((dtype, ()))
        else:
            tree = _array_of(tree, path)
            dtype = _dtype_of(tree.dtype)
            if dtype == 'f64' and hasattr(tree, '__array_interface__') and not isinstance(tree, Tensor):
                dtype = self._floats
            self.types.append((dtype, tuple(tree.shape)))
        self.arrays.append(tree)
        return 'array'


def _array_of(given: Any, path: str) -> Any:
    dtype = getattr(given, 'dtype', None)
    if dtype is not None and hasattr(given, 'shape') and not _is_narrow(dtype):
        return given
    import numpy

    array = numpy.asarray(given) if hasattr(given, '__array__') else None
    if array is None or array.dtype.kind == 'O':
        raise TypeError(
            f"'{path}' is a {type(given).__name__}, needed are arrays, numbers, and tuples, lists and dicts of them\n"
            "hint: name an argument that is no array in static=['..']"
        )
    return array


@functools.cache
def _is_narrow(dtype: Any) -> bool:
    """Whether it becomes i64: DLPack, by which PyTorch's arrays come, has no such elements for us."""
    return str(dtype).rsplit('.', 1)[-1] in _NARROW


@functools.cache
def _dtype_of(dtype: Any) -> str:
    name = dtype.name if isinstance(dtype, DType) else str(dtype).rsplit('.', 1)[-1]
    return _DTYPES.get(name, name)


def _given(spec: Any, values: Iterator[Value]) -> Any:
    if spec == 'array':
        return next(values)
    kind, parts = spec
    if kind == 'fixed':
        return parts
    if kind == 'dict':
        return {key: _given(part, values) for key, part in parts}
    made = [_given(part, values) for part in parts]
    return kind(*made) if hasattr(kind, '_fields') else kind(made)


def _put(form: Any, results: Iterator[Tensor]) -> Any:
    return _mapped(form, lambda is_there: next(results) if is_there else None)
