# SPDX-License-Identifier: Apache-2.0
"""The sizes of a model's inputs that may vary, by the names that the user gives them: as torch.export wants to be told, as symbols
of the program that it traced, and as extents of graph text."""

from __future__ import annotations

import dataclasses
import inspect
import random
from collections.abc import Mapping
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.export import Dim

from ...errors import ArgumentError, UnsupportedError

_MOST = 1 << 31
_LARGEST_SAMPLE = 4096
_SAMPLES = 5
_PRIMES = (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97, 101, 103, 107)


@dataclasses.dataclass(frozen=True)
class Named:
    """`minimum` is None where the user gave none."""

    name: str
    minimum: int | None
    maximum: int | None


def _named(given: Any, where: str) -> Named | None:
    """The name and bounds that a Dim, a name, or (name, minimum, maximum) gives; None for a size that is fixed."""
    if given is None or isinstance(given, int):
        return None
    if given in (Dim.AUTO, Dim.DYNAMIC, Dim.STATIC):
        return None if given is Dim.STATIC else Named(where, None, None)
    if isinstance(given, str):
        made = Named(given, None, None)
    elif isinstance(given, tuple) and len(given) == 3 and isinstance(given[0], str):
        made = Named(*given)
    elif isinstance(given, Dim):
        if hasattr(given, 'root'):
            raise UnsupportedError(f'export: {where} is {given}, needed is a name: torch finds what follows from another size')
        least = None if given.min == 0 else given.min
        made = Named(given.__name__, least, given.max if isinstance(given.max, int) else None)
    else:
        raise ArgumentError(
            f"export: dynamic_shapes says {given!r} of {where}, needed is a name, ('name', minimum, maximum) or a torch.export.Dim"
        )
    if not made.name.isidentifier() or made.name in ('inf', 'nan', 'extent'):
        raise ArgumentError(f"export: '{made.name}' is no name of an extent, needed is a word as batch or time")
    return made


class NamedSizes:
    """`for_torch`: the argument dynamic_shapes of torch.export; `axes`: per tensor of the inputs in their order, the names of
    axes that vary."""

    def __init__(self, for_torch: Any, axes: list[dict[int, Named]], tensors: list[Tensor]) -> None:
        self.for_torch, self.axes, self._tensors = for_torch, axes, tensors
        self.symbols: dict[Any, str] = {}  # of the traced program
        self.bounds: dict[str, tuple[int, int]] = {}
        self.has_minimum: set[str] = set()  # that the user gave
        self.example: dict[str, int] = {}

    @staticmethod
    def of(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], given: Any) -> NamedSizes:
        try:
            bound = inspect.signature(model.forward).bind(*args, **kwargs)
        except TypeError as mistake:
            raise ArgumentError(f'export: the model cannot be called with these arguments: {mistake}') from None
        names = list(bound.arguments)
        if given is None:
            given = {}
        if not isinstance(given, Mapping):
            if len(given) != len(names):
                raise ArgumentError(f'export: dynamic_shapes has {len(given)} entries, needed is one for each of {names}')
            given = dict(zip(names, given))
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ArgumentError(f"export: dynamic_shapes names '{unknown[0]}'; the model is called with {', '.join(names)}")
        made = NamedSizes(None, [], [])
        made.for_torch = {name: made._walked(value, given.get(name), name) for name, value in bound.arguments.items()}
        made._check()
        return made

    def _walked(self, value: Any, given: Any, where: str) -> Any:
        if isinstance(value, Tensor):
            axes = dict(enumerate(given)) if isinstance(given, (list, tuple)) else dict(given or {})
            found: dict[int, Named] = {}
            for axis, each in axes.items():
                if not isinstance(axis, int) or not -value.ndim <= axis < value.ndim:
                    raise ArgumentError(f'export: dynamic_shapes names axis {axis!r} of {where}, which has {value.ndim} axes')
                named = _named(each, f'{where}_{axis % value.ndim}'.replace('.', '_'))
                if named is not None:
                    found[axis % value.ndim] = named
            self.axes.append(found)
            self._tensors.append(value)
            return {axis: Dim.AUTO for axis in found} or None
        if isinstance(value, (list, tuple)):
            parts = [None] * len(value) if given is None else list(given)
            if len(parts) != len(value):
                raise ArgumentError(f'export: dynamic_shapes has {len(parts)} entries for {where}, which has {len(value)}')
            return type(value)(
                [self._walked(each, part, f'{where}.{i}') for i, (each, part) in enumerate(zip(value, parts))]
            )
        if isinstance(value, Mapping):
            return {key: self._walked(each, (given or {}).get(key), f'{where}.{key}') for key, each in value.items()}
        return None

    def _check(self) -> None:
        for tensor, axes in zip(self._tensors, self.axes):
            for axis, named in axes.items():
                size = tensor.shape[axis]
                if size < 2:
                    raise ArgumentError(
                        f'export: {named.name} is {size} in the example; PyTorch takes 0 and 1 for constants: give an example '
                        'with 2 or more'
                    )
                if self.example.setdefault(named.name, size) != size:
                    raise ArgumentError(f'export: {named.name} is {self.example[named.name]} and {size} in the example')
                low, high = self.bounds.get(named.name, (1, _MOST))
                low, high = max(low, named.minimum or 1), min(high, named.maximum or _MOST)
                if not low <= size <= high:
                    raise ArgumentError(f'export: {named.name} is {size} in the example, outside of {low} to {high}')
                self.bounds[named.name] = low, high
                if named.minimum is not None:
                    self.has_minimum.add(named.name)

    def meet(self, program: Any) -> None:
        """Finds the symbols of the traced program. UnsupportedError: the model fixes a size, or ties two."""
        placeholders = [node for node in program.graph.nodes if node.op == 'placeholder']
        by_name = {node.name: node for node in placeholders}
        inputs = [by_name[name] for name in program.graph_signature.user_inputs if name in by_name]
        tensors = [node for node in inputs if isinstance(node.meta.get('val'), Tensor)]
        if len(tensors) != len(self.axes):
            raise UnsupportedError(f'export: the traced program takes {len(tensors)} tensors, the example has {len(self.axes)}')
        for node, axes in zip(tensors, self.axes):
            for axis, named in axes.items():
                size = node.meta['val'].shape[axis]
                if not isinstance(size, torch.SymInt) or size.node.expr.is_number:
                    raise UnsupportedError(
                        f'export: the model fixes {named.name} to {size} (axis {axis} of {node.name}): something in it takes the '
                        'size as a number of Python, or another input has the same size; leave it out of dynamic_shapes'
                    )
                expression = size.node.expr
                if not expression.is_Symbol:
                    raise UnsupportedError(f'export: {named.name} (axis {axis} of {node.name}) has to be {expression}')
                known = self.symbols.setdefault(expression, named.name)
                if known != named.name:
                    raise UnsupportedError(
                        f'export: the model takes {known} and {named.name} for one size: give them one name in dynamic_shapes'
                    )
        for symbol, held in program.range_constraints.items():
            name = self.symbols.get(symbol)
            if name is None:
                continue
            low, high = self.bounds[name]
            # 2 is what PyTorch says of every size that is none of its constants 0 and 1.
            low = low if held.lower <= 2 else max(low, int(held.lower))
            self.bounds[name] = low, int(min(high, held.upper))

    def with_least(self, name: str, least: int) -> NamedSizes:
        made = NamedSizes(self.for_torch, self.axes, self._tensors)
        made.__dict__.update(self.__dict__)
        made.bounds = {**self.bounds, name: (least, self.bounds[name][1])}
        return made

    def declarations(self) -> list[str]:
        return [f'extent {name} = {low}..{high}' for name, (low, high) in self.bounds.items()]

    def renamed(self, expression: Any) -> Any | None:
        """The expression with names in place of the program's symbols; None where it has symbols without a name."""
        if any(symbol not in self.symbols for symbol in expression.free_symbols):
            return None
        return expression.xreplace({symbol: sympy.Symbol(name, integer=True) for symbol, name in self.symbols.items()})

    def of_symbols(self, sizes: Mapping[str, int]) -> dict[Any, Any]:
        return {symbol: sympy.Integer(sizes[name]) for symbol, name in self.symbols.items()}

    def samples(self) -> list[dict[str, int]]:
        """Sizes to learn from: no two extents grow alike."""
        if not self.bounds:
            return [{}]
        count = _SAMPLES + 2 * len(self.bounds)
        columns = {}
        for i, (name, (low, high)) in enumerate(self.bounds.items()):
            top = min(high, max(low, 1) + _LARGEST_SAMPLE)
            inside = [each for each in _PRIMES if low <= each <= top] or list(range(low, min(top, low + count) + 1))
            shuffled = random.Random(i + 1).sample(inside, len(inside))
            columns[name] = [shuffled[k % len(shuffled)] for k in range(count)]
        return [self.example, *({name: column[k] for name, column in columns.items()} for k in range(count))]

    def others(self) -> list[dict[str, int]]:
        """Sizes to check at: the bounds, and some between."""
        made = []
        rng = random.Random(17)
        for kind in ('low', 'high', 'random', 'random', 'random'):
            sizes = {}
            for name, (low, high) in self.bounds.items():
                top = min(high, low + _LARGEST_SAMPLE)
                sizes[name] = low if kind == 'low' else top if kind == 'high' else rng.randint(low, min(top, low + 200))
            made.append(sizes)
        for name in self.bounds:  # one at its least, the others as in the example
            made.append({**self.example, name: self.bounds[name][0]})
        return made if self.bounds else []


