# SPDX-License-Identifier: Apache-2.0
"""A part of a graph that paoding computes: for each set of extents a graph that is compiled once, and runs in the memory of
the tensors. Where that fails, for extents of which the example told nothing, PyTorch's ops compute it."""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
import torch
from torch import Tensor, fx

from ..._paoding import Graph
from ...errors import Error
from ._bound import Bound
from ._convert import converted, hint, is_size, value_of
from ._explain import scope_of
from ._layout import Layout, plain_stride
from ._settings import Settings
from ._table import Making, NotTaken, dtype_of

_MOST_BOUND = 64  # of a region


class _BoundRegion(Bound):
    """`has_gaps`: of an input whose memory has them a copy is read, at every call."""

    has_gaps = False


def _bound(region: Region, given: Sequence[tuple[Sequence[int], Sequence[int]] | int], sizes: dict[Any, Any]) -> _BoundRegion:
    graph = Graph()
    making = Making(graph)
    making.device = region.device
    values: dict[fx.Node, Any] = {}
    layouts: list[Layout] = []
    has_gaps = False

    def extents(tensor: Tensor) -> list[int]:
        return [evaluated(each, sizes) for each in tensor.shape]

    with graph:
        for node, each in zip(region.inputs, given):
            if isinstance(each, int):
                values[node] = each
                continue
            layout = Layout(*each)
            if layout.dense is None:
                layout = Layout(each[0], plain_stride(each[0]))
                has_gaps = True
            values[node] = layout.read(graph.input(f'x{len(layouts)}', dtype_of(value_of(node).dtype), layout.held))
            layouts.append(layout)
        for node in region.nodes:
            with graph.scope(scope_of(node)):  # of notes and errors
                values[node] = converted(making, node, values, extents)
        results: list[tuple[Layout, torch.dtype]] = []
        for node in region.results:
            promised = value_of(node)
            layout = Layout(extents(promised), [evaluated(each, sizes) for each in promised.stride()])
            if layout.dense is None:
                raise NotTaken('a result whose memory has gaps')
            graph.fetch(f'y{len(results)}', layout.written(values[node]))
            results.append((layout, promised.dtype))
    bound = _BoundRegion(
        graph, layouts, results, region.device, region.settings.uses_graph, making.has_seed, making.has_layers
    )
    bound.has_gaps = has_gaps
    return bound


def solve(expression: Any, number: int, sizes: dict[Any, Any]) -> None:
    """Adds the symbol of a linear expression that has this value."""
    symbols = list(expression.free_symbols)
    if len(symbols) != 1 or symbols[0] in sizes:
        return
    offset = expression.xreplace({symbols[0]: sympy.Integer(0)})
    factor = expression.xreplace({symbols[0]: sympy.Integer(1)}) - offset
    if factor != 0 and sympy.expand(expression - factor * symbols[0] - offset) == 0:
        sizes[symbols[0]] = (sympy.Integer(number) - offset) / factor


def evaluated(size: Any, sizes: dict[Any, Any]) -> int:
    """An extent or stride, of the extents that symbols stand for."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    made = size.node.expr.xreplace(sizes)
    if made.free_symbols:
        raise NotTaken('extents that do not follow from those of the inputs')
    return int(made)


class Region:
    """Nodes that paoding computes, of values from outside (`inputs`: tensors and sizes), and those of them that are needed
    outside (`results`)."""

    def __init__(
        self,
        name: str,
        nodes: list[fx.Node],
        inputs: list[fx.Node],
        results: list[fx.Node],
        device: torch.device,
        settings: Settings,
    ) -> None:
        self.name, self.nodes, self.inputs, self.results = name, nodes, inputs, results
        self.device, self.settings = device, settings
        self.seconds = 0.0
        self.loops: list[str] = []  # that Dynamo unrolled: "64 turns of 12 nodes of model.py:41 are one loop, .."
        self.refusal: str | None = None  # why PyTorch's ops compute it after all
        self._lock = threading.Lock()
        self._by_aten: fx.GraphModule | None = None
        self._bound: OrderedDict[Any, _BoundRegion | None] = OrderedDict()
        self._tensors = [i for i, node in enumerate(inputs) if not is_size(node)]
        self._has_only_tensors = len(self._tensors) == len(inputs)
        self._is_static = all(not isinstance(each, torch.SymInt) for node in inputs for each in _sizes(node))
        self._at_call = [
            at for at, i in enumerate(self._tensors) if inputs[i].op not in ('placeholder', 'get_attr')
        ]
        # Parameters have the extents and strides that Dynamo guards.
        self._varying = [
            i
            for i, node in enumerate(inputs)
            if node.op not in ('placeholder', 'get_attr') or any(isinstance(each, torch.SymInt) for each in _sizes(node))
        ]
        self._static: _BoundRegion | None = None
        self._seen = False
        if self._is_static:
            given = [_described(value_of(node)) for node in inputs]
            try:
                self._static = self._bind(given)
            except (NotTaken, Error) as refusal:
                if settings.strict:
                    raise
                self.refusal = str(refusal).splitlines()[0]

    def _bind(self, given: list[Any]) -> _BoundRegion:
        begin = time.perf_counter()
        sizes: dict[Any, Any] = {}
        for node, each in zip(self.inputs, given):
            promised = value_of(node)
            symbols = [promised] if isinstance(each, int) else [*promised.shape, *promised.stride()]
            for symbol, number in zip(symbols, [each] if isinstance(each, int) else [*each[0], *each[1]]):
                if isinstance(symbol, torch.SymInt):
                    solve(symbol.node.expr, number, sizes)
        try:
            bound = _bound(self, given, sizes)
            if not self.loops:
                self.loops = bound.loops
            return bound
        finally:
            self.seconds += time.perf_counter() - begin

    def of(self, given: list[Any]) -> Sequence[Tensor]:
        """The results, of inputs in a list that nobody else needs."""
        bound = self._static
        if bound is None:
            return self._call_of_sizes(given) if self.refusal is None else self.by_aten(*given)
        tensors = given if self._has_only_tensors else [given[i] for i in self._tensors]
        for i in self._at_call:
            # PyTorch promises extents of some ops (_unique) that it does not keep.
            if tensors[i].shape != bound.layouts[i].size:
                return self.by_aten(*given)
        if not self._seen:
            # Dynamo guards the strides of what the user gave: they are looked at once.
            laid = bound.check_layouts(tensors)
            self._seen = all(a is b for a, b in zip(tensors, laid))
            tensors = laid
        else:
            for i in self._at_call:
                if tensors[i].stride() != bound.wanted[i]:
                    tensors = bound.check_layouts(tensors)
                    break
        return bound.run(tensors)

    def _call_of_sizes(self, given: Sequence[Any]) -> Sequence[Tensor]:
        key = tuple([_described(given[i]) for i in self._varying])
        try:
            bound = self._bound[key]
            self._bound.move_to_end(key)
        except KeyError:
            bound = self._bound_anew(key, [_described(each) for each in given])
        if bound is None:
            return self.by_aten(*given)
        tensors = [given[i] for i in self._tensors]
        return bound.run(bound.check_layouts(tensors) if bound.has_gaps else tensors)

    def _bound_anew(self, key: Any, described: list[Any]) -> _BoundRegion | None:
        bound: _BoundRegion | None = None
        try:
            bound = self._bind(described)
        except (NotTaken, Error) as refusal:
            if self.settings.strict:
                raise
            warnings.warn(
                f'paoding: {self.name} is computed by PyTorch for {described}: {refusal}', RuntimeWarning, stacklevel=2
            )
        with self._lock:
            self._bound[key] = bound
            if len(self._bound) > _MOST_BOUND:
                self._bound.popitem(last=False)
        return bound

    def by_aten(self, *given: Any) -> Sequence[Tensor]:
        """The same by PyTorch's ops."""
        if self._by_aten is None:
            graph = fx.Graph()
            made: dict[fx.Node, fx.Node] = {}
            for i, node in enumerate(self.inputs):
                made[node] = graph.placeholder(f'given{i}')
            for node in self.nodes:
                made[node] = graph.node_copy(node, lambda each: made[each])
            graph.output([made[node] for node in self.results])
            self._by_aten = fx.GraphModule(torch.nn.Module(), graph)
        results: Sequence[Tensor] = self._by_aten(*given)
        return results


def _described(given: Any) -> Any:
    return given if isinstance(given, int) else (tuple(given.shape), tuple(given.stride()))


def _sizes(node: fx.Node) -> Sequence[Any]:
    promised = value_of(node)
    return [*promised.shape, *promised.stride()] if isinstance(promised, Tensor) else [promised]


def as_function(region: Region) -> Callable[..., Sequence[Tensor]]:
    """For generated code, which knows functions by their names."""

    def call(*given: Any) -> Sequence[Tensor]:
        return region.of(list(given))

    call.region = region  # type: ignore[attr-defined]
    call.__name__ = call.__qualname__ = region.name
    call.__module__ = __name__
    return call
