# SPDX-License-Identifier: Apache-2.0
"""The table of PyTorch's ops that become ops of paoding: one function for each, with the dtypes that it takes. Modules _ops_*
fill it. Whatever a function cannot take it says by NotTaken, with the reason, and the op stays PyTorch's."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Graph, Value

FLOATS = frozenset((DType.f64, DType.f32, DType.f16, DType.bf16))
INTEGERS = frozenset((DType.i64, DType.i32))
NUMBERS = FLOATS | INTEGERS
BOOLS = frozenset((DType.bool,))
ANY = NUMBERS | BOOLS | {DType.u8}

DTYPES = {
    torch.float64: DType.f64,
    torch.float32: DType.f32,
    torch.float16: DType.f16,
    torch.bfloat16: DType.bf16,
    torch.int64: DType.i64,
    torch.int32: DType.i32,
    torch.uint8: DType.u8,
    torch.bool: DType.bool,
}
TORCH_DTYPES = {ours: theirs for theirs, ours in DTYPES.items()}
_HALVES = (DType.f16, DType.bf16)


class NotTaken(Exception):
    """Why an op stays PyTorch's."""


Converter = Callable[..., Any]
_table: dict[Any, tuple[Converter, frozenset[DType]]] = {}


def takes(*overloads: Any, dtypes: Iterable[DType] = NUMBERS | BOOLS) -> Callable[[Converter], Converter]:
    """Registers a function for these overloads, of tensors of these dtypes (inputs and results). It is called with a Making
    and the op's own arguments, tensors being Values, and returns a Value, or a list of them (None: a result that the op
    does not make)."""

    def register(convert: Converter) -> Converter:
        for overload in overloads:
            _table[overload] = (convert, frozenset(dtypes))
        return convert

    return register


def scalars_as_rows(convert: Converter) -> Converter:
    """For ops along an axis: a tensor without axes, which PyTorch takes for a row of one element, is given as that row."""

    @functools.wraps(convert)
    def call(making: Making, first: Value, *given: Any, **options: Any) -> Any:
        if first.ndim > 0:
            return convert(making, first, *given, **options)
        rows = [_as_row(each) for each in (first, *given)]
        made = convert(making, *rows, **{name: _as_row(each) for name, each in options.items()})
        return [_as_scalar(each) for each in made] if isinstance(made, list) else _as_scalar(made)

    return call


def _as_row(given: Any) -> Any:
    return ops.reshape(given, (1,)) if isinstance(given, Value) and given.ndim == 0 else given


def _as_scalar(made: Any) -> Any:
    return ops.reshape(made, ()) if isinstance(made, Value) and made.shape == (1,) else made


def overloads(packet: Any, *names: str) -> list[Any]:
    """Those of an op that this PyTorch has."""
    return [getattr(packet, name) for name in names if name in packet.overloads()]


def found(target: Any) -> tuple[Converter, frozenset[DType]] | None:
    return _table.get(target)


def all_taken() -> list[Any]:
    return list(_table)


def dtype_of(dtype: torch.dtype) -> DType:
    made = DTYPES.get(dtype)
    if made is None:
        raise NotTaken(f'dtype {str(dtype).removeprefix("torch.")}')
    return made


class Making:
    """The graph that is being made, and the node whose op is converted: `dtypes` are those that PyTorch promises of its
    results."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.dtypes: list[DType] = []
        self.device: torch.device | None = None
        self.streams = 0
        self.has_layers = False  # recurrent ones in f32, of which PyTorch has a setting of its own
        self._seed: Value | None = None

    @property
    def dtype(self) -> DType:
        return self.dtypes[0]

    @property
    def has_seed(self) -> bool:
        return self._seed is not None

    def seed(self) -> Value:
        """A number that every call draws anew."""
        if self._seed is None:
            self._seed = self.graph.input('seed', DType.i64, ())
        return self._seed

    def stream(self) -> int:
        """The number of a sequence of random numbers, which no other op of the graph reads."""
        self.streams += 1
        return self.streams - 1

    def is_elsewhere(self, device: Any) -> bool:
        """Whether a tensor that is asked for on this device, if any, is not on the graph's."""
        if device is None:
            return False
        wanted = torch.device(device)
        if self.device is None or wanted.type != self.device.type:
            return True
        # 'cuda' is the GPU that is current; on a CPU there is one.
        current = self.device.index if wanted.type == 'cpu' else torch.cuda.current_device()
        return (current if wanted.index is None else wanted.index) != self.device.index

    def full(self, value: Any, dtype: DType, shape: Sequence[int] = ()) -> Value:
        return _paoding.full(tuple(shape), value, dtype, self.graph)

    def value(self, given: Any, dtype: DType) -> Value:
        """A tensor or number as a value of a dtype."""
        if isinstance(given, Value):
            return cast(given, dtype)
        check_number(given, dtype)
        return self.full(given, dtype)


def check_number(given: Any, dtype: DType) -> None:
    if isinstance(given, (bool, int, float)):
        if dtype in FLOATS or dtype == DType.bool or given == int(given):
            return
    raise NotTaken(f'{given!r} as a number of {name_of(dtype)}')


def name_of(dtype: DType) -> str:
    return str(dtype).split('.')[-1]


def cast(value: Value, dtype: DType) -> Value:
    return value if value.dtype == dtype else value.astype(dtype)


def wide(dtype: DType) -> DType:
    """In which PyTorch computes with numbers of Python: they are not rounded to 16 bits."""
    return DType.f32 if dtype in _HALVES else dtype


def computed(making: Making, given: Sequence[Any]) -> DType:
    """In which an elementwise op that gives `making.dtype` computes."""
    has_number = any(not isinstance(each, Value) for each in given)
    return wide(making.dtype) if has_number else making.dtype


@functools.lru_cache(maxsize=None)
def _promoted(kinds: tuple[Any, ...]) -> torch.dtype:
    of_kinds = [
        kind(1) if isinstance(kind, type) else torch.empty((1,) if kind[1] else (), dtype=kind[0], device='meta')
        for kind in kinds
    ]
    if len(of_kinds) == 1:
        return kinds[0][0]  # type: ignore[no-any-return]
    made = torch.result_type(of_kinds[0], of_kinds[1])
    if len(kinds) == 2:
        return made
    is_scalar = all(isinstance(kind, type) or not kind[1] for kind in kinds[:2])
    return _promoted(((made, not is_scalar), *kinds[2:]))


def promoted(*given: Any) -> DType:
    """The dtype that PyTorch promotes tensors and numbers to."""
    kinds = tuple(
        (TORCH_DTYPES[each.dtype], each.ndim > 0) if isinstance(each, Value) else type(each) for each in given
    )
    return dtype_of(_promoted(kinds))


def gradient_of(function: Callable[[Value], Value], x: Value, grad: Value) -> Value:
    """The gradient of a function at x, whose result is not computed where the gradient does not need it."""
    made: Value = _paoding.gradients([function(x)], [x], [grad])[0]
    return made


def axis_of(axis: int, rank: int) -> int:
    return axis + rank if axis < 0 else axis


def axes_of(axes: Any, rank: int) -> list[int]:
    """All of them where none are given."""
    if axes is None or (not isinstance(axes, int) and len(axes) == 0):
        return list(range(rank))
    return [axis_of(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)]


def has_elements(*values: Any) -> None:
    for each in values:
        if isinstance(each, Value) and each.size == 0:
            raise NotTaken('a tensor without elements')
