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

from ..._paoding import Graph, PlacedGraph
from ...errors import Error
from .._faults import faults_of
from .._kernels import Kernels
from .._memory import address, at, current_stream, may_round_products, workspace
from ._convert import converted, hint, is_size, value_of
from ._explain import scope_of
from ._layout import Layout, plain_stride
from ._settings import Settings
from ._table import Making, NotTaken, dtype_of

_LOOP = 'reroll_loops: '
_MOST_BOUND = 64  # of a region


def _new_slowly(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


_new_on_cpu = getattr(torch._C._dynamo.guards, '_empty_strided_cpu', _new_slowly)


class _Placed:
    """A graph on a device, with what its calls on a GPU need besides. One call at a time."""

    def __init__(self, graph: Graph, device: torch.device, allow_tf32: bool, uses_graph: bool) -> None:
        reports = device.type == 'cuda'
        self.graph = PlacedGraph(graph, str(device), allow_tf32, graph.fetches, reports, reports and uses_graph)
        self.faults = faults_of(self.graph, device)
        self.bytes = self.graph.workspace_bytes
        self.run = self.graph.run
        self.lock = threading.Lock()


class _Bound:
    """A region for tensors of given extents and layouts."""

    def __init__(
        self, region: Region, inputs: Sequence[tuple[Sequence[int], Sequence[int]] | int], sizes: dict[Any, Any]
    ) -> None:
        self._device, self._uses_graph = region.device, region.settings.uses_graph
        self.layouts: list[Layout] = []
        self.wanted: list[tuple[int, ...]] = []
        self.has_gaps = False
        self._graph = graph = Graph()
        making = Making(graph)
        making.device = region.device
        values: dict[fx.Node, Any] = {}

        def extents(tensor: Tensor) -> list[int]:
            return [evaluated(each, sizes) for each in tensor.shape]

        with graph:
            for node, given in zip(region.inputs, inputs):
                if isinstance(given, int):
                    values[node] = given
                    continue
                layout = Layout(*given)
                if layout.dense is None:  # it is copied at every call
                    layout = Layout(given[0], plain_stride(given[0]))
                    self.has_gaps = True
                name = f'x{len(self.layouts)}'
                assert layout.dense is not None
                values[node] = layout.read(graph.input(name, dtype_of(value_of(node).dtype), layout.dense))
                self.layouts.append(layout)
                self.wanted.append(layout.stride)
            for node in region.nodes:
                with graph.scope(scope_of(node)):  # of notes and errors
                    values[node] = converted(making, node, values, extents)
            self._results: list[tuple[Layout, torch.dtype]] = []
            for node in region.results:
                promised = value_of(node)
                layout = Layout(extents(promised), [evaluated(each, sizes) for each in promised.stride()])
                if layout.dense is None:
                    raise NotTaken('a result whose memory has gaps')
                graph.fetch(f'y{len(self._results)}', layout.written(values[node]))
                self._results.append((layout, promised.dtype))
        self._shapes = [
            (layout.held if layout.stretched else layout.size, _stride(layout), dtype)
            for layout, dtype in self._results
        ]
        self._stretched = [i for i, (layout, _) in enumerate(self._results) if layout.stretched]
        self._has_seed = making.has_seed
        self._is_on_cpu = self._device.type == 'cpu'
        self._mask = 63 if self._is_on_cpu else 255
        self._free: list[_Placed] = []
        self._on_gpu: Kernels[_Placed] = Kernels(16)
        # It is compiled now, so that an op that cannot be planned is PyTorch's and not an error of the first call.
        if self._is_on_cpu:
            first = self._placed(False)
            self._free.append(first)
        else:
            with at(self._device):
                first = self._of_stream()
        self.loops = [note.removeprefix(_LOOP) for note in first.graph.notes if note.startswith(_LOOP)]

    def _placed(self, allow_tf32: bool) -> _Placed:
        return _Placed(self._graph, self._device, allow_tf32, self._uses_graph)

    def _of_stream(self) -> _Placed:
        """On a GPU that is PyTorch's current device: what runs in its current stream, with products as they are allowed now."""
        allow_tf32 = may_round_products(self._device)
        return self._on_gpu.at(allow_tf32, self._device, lambda: self._placed(allow_tf32))

    def check_layouts(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors as the graph reads them: those that lie otherwise than the example did are copied."""
        made = list(tensors)
        for i, (tensor, layout) in enumerate(zip(tensors, self.layouts)):
            if tensor.stride() != layout.stride and Layout(tensor.shape, tensor.stride()).__dict__ != layout.__dict__:
                laid = torch.empty_strided(layout.size, plain_stride(layout.size), dtype=tensor.dtype, device=self._device)
                if not layout.is_plain:
                    laid = _like(layout, tensor.dtype, self._device)
                made[i] = laid.copy_(tensor)
        return made

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        addresses = [each.data_ptr() for each in tensors]
        mask = self._mask
        for i, each in enumerate(addresses):
            if each & mask:
                layout = self.layouts[i]
                tensors[i] = tensors[i].as_strided(layout.held, plain_stride(layout.held)).clone()
                addresses[i] = tensors[i].data_ptr()
        if self._has_seed:
            seed = torch.empty((), dtype=torch.int64, device=self._device).random_(0, 1 << 48)
            addresses.append(seed.data_ptr())
            tensors.append(seed)  # kept until the call is made
        results = self._run_on_cpu(addresses) if self._is_on_cpu else self._run_on_gpu(addresses)
        for i in self._stretched:
            layout = self._results[i][0]
            results[i] = results[i].as_strided(layout.size, layout.stride)
        return results

    def _run_on_cpu(self, addresses: list[int]) -> list[Tensor]:
        results = [_new_on_cpu(size, stride, dtype) for size, stride, dtype in self._shapes]
        places = [each.data_ptr() for each in results]
        try:
            placed = self._free.pop()  # threads that are there at the same time have one each
        except IndexError:
            placed = self._placed(False)
        room = workspace(placed.bytes, self._device)  # a large one is nobody else's: it is held until the call returns
        try:
            placed.run(addresses, places, room.data_ptr())
        finally:
            self._free.append(placed)
        return results

    def _run_on_gpu(self, addresses: list[int]) -> list[Tensor]:
        device = self._device
        with at(device):
            placed = self._of_stream()
            if placed.faults is not None:
                placed.faults.raise_ended()
            results = [
                torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype in self._shapes
            ]
            room = workspace(placed.bytes, device)
            with placed.lock:
                placed.run(addresses, [address(each) for each in results], address(room), current_stream(device))
                if placed.faults is not None:
                    placed.faults.follow(room)
        return results


def _stride(layout: Layout) -> tuple[int, ...]:
    return plain_stride(layout.held) if layout.stretched else layout.stride


def _like(layout: Layout, dtype: torch.dtype, device: torch.device) -> Tensor:
    made = torch.empty(layout.held, dtype=dtype, device=device)
    return made.permute([layout.order.index(i) for i in range(len(layout.order))])


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
        self._bound: OrderedDict[Any, _Bound | None] = OrderedDict()
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
        self._static: _Bound | None = None
        self._seen = False
        if self._is_static:
            given = [_described(value_of(node)) for node in inputs]
            try:
                self._static = self._bind(given)
            except (NotTaken, Error) as refusal:
                if settings.strict:
                    raise
                self.refusal = str(refusal).splitlines()[0]

    def _bind(self, given: list[Any]) -> _Bound:
        begin = time.perf_counter()
        sizes: dict[Any, Any] = {}
        for node, each in zip(self.inputs, given):
            promised = value_of(node)
            symbols = [promised] if isinstance(each, int) else [*promised.shape, *promised.stride()]
            for symbol, number in zip(symbols, [each] if isinstance(each, int) else [*each[0], *each[1]]):
                if isinstance(symbol, torch.SymInt):
                    solve(symbol.node.expr, number, sizes)
        try:
            bound = _Bound(self, given, sizes)
            if not self.loops:
                self.loops = bound.loops
            return bound
        finally:
            self.seconds += time.perf_counter() - begin

    def __call__(self, *given: Any) -> Sequence[Tensor]:
        bound = self._static
        if bound is None:
            return self._call_of_sizes(given) if self.refusal is None else self.by_aten(*given)
        tensors = list(given) if self._has_only_tensors else [given[i] for i in self._tensors]
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

    def _bound_anew(self, key: Any, described: list[Any]) -> _Bound | None:
        bound: _Bound | None = None
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
        return region(*given)

    call.__name__ = call.__qualname__ = region.name
    call.__module__ = __name__
    return call
