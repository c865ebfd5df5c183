# SPDX-License-Identifier: Apache-2.0
"""Training of a graph in which a Python loop came unrolled. AOTAutograd differentiates turn by turn, and what the turns keep for
their gradients is as many tensors. Here the forward part becomes a loop again first; paoding's gradient of that is a loop too,
and the two are the forward and the backward graph that AOTAutograd asks a partitioner for. Where something of the graph is not
paoding's, or no loop came unrolled, PyTorch's partitioner decides."""

from __future__ import annotations

import operator
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ... import _paoding
from ...errors import Error
from ._bound import Bound
from ._convert import converted, device_of, tensors_of, value_of, verdicts, writes
from ._explain import scope_of
from ._layout import Layout, plain_stride
from ._settings import Settings
from ._table import DTYPES, Making, NotTaken, dtype_of

_FEWEST_NODES = 24  # of a loop with four turns
_SAVED = 'saved/'
TORCH_DTYPES = {dtype: each for each, dtype in DTYPES.items()}


class Half:
    """A function of tensors whose extents never change, in generated code."""

    def __init__(self, name: str, bound: Bound, nodes: int, loops: list[str], seconds: float) -> None:
        self.__name__ = self.__qualname__ = name
        self.__module__ = __name__
        self.bound, self.nodes, self.loops, self.seconds = bound, nodes, loops, seconds

    def __call__(self, *given: Tensor) -> Sequence[Tensor]:
        return self.bound.run(self.bound.check_layouts(list(given)))


def halves_of(graph: fx.Graph) -> list[Half]:
    """Those that a graph calls; no others."""
    return [node.target for node in graph.nodes if isinstance(node.target, Half)]


def split(
    joint: fx.GraphModule, forward_outputs: int, settings: Settings, results: int
) -> tuple[fx.GraphModule, fx.GraphModule] | None:
    """The forward and the backward graph; nothing where PyTorch's partitioner has to make them. `results`: of the graph as
    Dynamo made it. Where the forward graph has more, inputs are written to after it, or results are views of each other."""
    if forward_outputs != results:
        return None
    try:
        return _Split(joint, forward_outputs, settings).made()
    except (NotTaken, Error):
        return None


class _Split:
    def __init__(self, joint: fx.GraphModule, forward_outputs: int, settings: Settings) -> None:
        self._joint, self._settings = joint, settings
        nodes = list(joint.graph.nodes)
        arguments = list(nodes[-1].args[0])
        self._outputs, self._gradients = arguments[:forward_outputs], arguments[forward_outputs:]
        placeholders = [node for node in nodes if node.op == 'placeholder']
        self._tangents = [node for node in placeholders if 'tangents' in str(node.target)]
        self._primals = [node for node in placeholders if node not in self._tangents]
        self._nodes = self._forward_nodes(nodes)
        if len(self._nodes) < _FEWEST_NODES or len(self._gradients) != len(self._primals):
            raise NotTaken('too few nodes for a loop')
        # What the gradient reads of the inputs has to be then what the forward graph read.
        if any(writes(node) for node in nodes):
            raise NotTaken('an input that is written to')
        device = device_of(joint.graph)
        if device is None:
            raise NotTaken('no device')
        self._device = device
        self._check()

    def _forward_nodes(self, nodes: list[fx.Node]) -> list[fx.Node]:
        needed: set[fx.Node] = set()
        waiting = [each for each in self._outputs if isinstance(each, fx.Node)]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                needed.add(node)
                waiting += node.all_input_nodes
        return [node for node in nodes if node in needed and node.op != 'placeholder']

    def _check(self) -> None:
        """Every node is paoding's and has known extents, and each result that is a float has a tangent."""
        found = verdicts(self._joint.graph, self._device)
        for node in self._nodes:
            if found.get(node) is not None:
                raise NotTaken(f'{node.target}: {found[node]}')
        for node in [*self._primals, *self._tangents, *self._nodes]:
            for each in tensors_of(value_of(node)):
                if any(isinstance(size, torch.SymInt) for size in (*each.shape, *each.stride())):
                    raise NotTaken('extents that vary')
            if node.op == 'placeholder' and not isinstance(value_of(node), Tensor):
                raise NotTaken('an input that is no tensor')
        self._seeded = [
            i
            for i, node in enumerate(self._outputs)
            if isinstance(node, fx.Node) and value_of(node).is_floating_point()
        ]
        promised = [value_of(self._outputs[i]) for i in self._seeded]
        tangents = [value_of(node) for node in self._tangents]
        if [(each.shape, each.dtype) for each in promised] != [(each.shape, each.dtype) for each in tangents]:
            raise NotTaken('results without a gradient')

    # ---- paoding's graphs ----

    def _converted(self) -> _paoding.Graph:
        graph = _paoding.Graph()
        making = Making(graph)
        making.device = self._device
        values: dict[fx.Node, Any] = {}
        self._places: dict[str, Layout] = {}
        self._given: dict[str, fx.Node] = {}

        def extents(tensor: Tensor) -> list[int]:
            return list(tensor.shape)

        with graph:
            for i, node in enumerate(self._primals):
                tensor = value_of(node)
                layout = Layout(tuple(tensor.shape), tuple(tensor.stride()))
                if layout.dense is None or layout.stretched:
                    raise NotTaken('an input whose memory has gaps, or is shared by elements')
                name = f'x{i}'
                values[node] = layout.read(graph.input(name, dtype_of(tensor.dtype), layout.dense))
                self._places[name], self._given[name] = layout, node
            for node in self._nodes:
                with graph.scope(scope_of(node)):
                    values[node] = converted(making, node, values, extents)
            for i, node in enumerate(self._outputs):
                if not isinstance(node, fx.Node):
                    continue
                tensor = value_of(node)
                layout = Layout(tuple(tensor.shape), tuple(tensor.stride()))
                if layout.dense is None or layout.stretched:
                    raise NotTaken('a result whose memory has gaps, or is shared by elements')
                graph.fetch(f'y{i}', layout.written(values[node]))
                self._places[f'y{i}'] = layout
                if i in self._seeded:
                    self._places[f'seed/y{i}'] = layout
                    self._given[f'seed/y{i}'] = self._tangents[self._seeded.index(i)]
        if making.has_seed:
            raise NotTaken('random numbers')
        self._has_layers = making.has_layers
        return graph

    def made(self) -> tuple[fx.GraphModule, fx.GraphModule]:
        graph = self._converted()
        wanted = [i for i, node in enumerate(self._gradients) if isinstance(node, fx.Node)]
        forward, backward, loops = _paoding.gradient_halves(
            graph, [f'y{i}' for i in self._seeded], [f'x{i}' for i in wanted]
        )
        if not loops:
            raise NotTaken('no loop')
        self._saved = [name for name in forward.fetches if name.startswith(_SAVED)]
        kept = [self._given[name] for name in backward.inputs if name in self._given and name.startswith('x')]
        first, second = self._half('forward', forward, loops), self._half('backward', backward, [])
        made = self._forward_module(first, forward, kept)
        return made, self._backward_module(second, backward, made, kept)

    def _half(self, kind: str, graph: _paoding.Graph, loops: list[str]) -> Half:
        def place(name: str) -> Layout:
            value = graph.find(name) if name in graph.inputs else graph.fetched(name)
            assert value is not None
            return self._places.get(name.removeprefix('gradient/')) or Layout(value.shape, plain_stride(value.shape))

        def dtype(name: str) -> torch.dtype:
            value = graph.fetched(name)
            assert value is not None
            return TORCH_DTYPES[value.dtype]

        begin = time.perf_counter()
        results = [(place(name), dtype(name)) for name in graph.fetches]
        bound = Bound(
            graph,
            [place(name) for name in graph.inputs],
            results,
            self._device,
            self._settings.uses_graph,
            has_layers=self._has_layers,
        )
        return Half(f'paoding_{kind}_of_loops', bound, len(self._nodes), loops, time.perf_counter() - begin)

    # ---- PyTorch's graphs ----

    def _forward_module(self, half: Half, graph: _paoding.Graph, kept: list[fx.Node]) -> fx.GraphModule:
        """Its results are those of the model, then what the backward graph needs: values of the half, and inputs."""
        made = fx.Graph()
        nodes = {node: made.node_copy(node) for node in self._primals}
        found = self._call(made, half, graph.fetches, [nodes[self._given[name]] for name in graph.inputs])
        outputs = [found[f'y{i}'] if isinstance(node, fx.Node) else node for i, node in enumerate(self._outputs)]
        saved = [found[name] for name in graph.fetches if name.startswith(_SAVED)]
        made.output((*outputs, *saved, *(nodes[node] for node in kept)))
        return fx.GraphModule(self._joint, made)

    def _backward_module(
        self, half: Half, graph: _paoding.Graph, forward: fx.GraphModule, kept: list[fx.Node]
    ) -> fx.GraphModule:
        made = fx.Graph()
        nodes: dict[str, fx.Node] = {}
        saved = list(forward.graph.nodes)[-1].args[0][len(self._outputs) :]
        names = [name for name in self._saved] + [str(node.name) for node in kept]
        for name, node in zip(names, saved, strict=True):
            nodes[name] = made.placeholder(node.name)
            nodes[name].meta['val'] = node.meta['val']
        for node in self._tangents:
            nodes[node.name] = made.node_copy(node)
        arguments = [nodes[name if name in self._saved else self._given[name].name] for name in graph.inputs]
        found = self._call(made, half, graph.fetches, arguments)
        made.output(tuple(found.get(f'gradient/x{i}') for i in range(len(self._primals))))
        return fx.GraphModule(self._joint, made)

    def _call(
        self, made: fx.Graph, half: Half, names: Sequence[str], arguments: Sequence[fx.Node]
    ) -> dict[str, fx.Node]:
        call = made.call_function(half, tuple(arguments))
        mode = value_of(self._primals[0]).fake_mode
        call.meta['val'] = []
        results = {}
        for i, (name, (shape, stride, dtype)) in enumerate(zip(names, half.bound.shapes)):
            with mode:
                value = torch.empty_strided(shape, stride, dtype=dtype, device=self._device)
            call.meta['val'].append(value)
            results[name] = made.call_function(operator.getitem, (call, i))
            results[name].meta['val'] = value
        return results
