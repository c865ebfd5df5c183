# SPDX-License-Identifier: Apache-2.0
"""A model of PyTorch's beside the graph that paoding makes of it, node by node: where they begin to differ."""

from __future__ import annotations

import dataclasses
import operator
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx

from ..._paoding import Parameters, Program, load_safetensors
from ...errors import ArgumentError
from ._explain import line_of
from ._export import TOLERANCES, check_call, difference_of, distances_of, program_of
from ._named_sizes import NamedSizes
from ._traced_program import TracedProgram


@dataclasses.dataclass(frozen=True)
class Differing:
    """A value that differs. `op`: PyTorch's, `node`: its name in the traced program, `line`: of yours that called it ('' where
    nobody knows), `layer`: the module of it ('encoder.layers.0'). `index`: of the element that differs most, `ours` and
    `theirs`: its values, paoding's and PyTorch's. `absolute`: |ours - theirs| there; `relative`: that by the largest finite
    number of PyTorch's."""

    op: str
    node: str
    line: str
    layer: str
    dtype: str
    shape: tuple[int, ...]
    index: tuple[int, ...]
    ours: float
    theirs: float
    absolute: float
    relative: float

    def __str__(self) -> str:
        where = f' ({self.line})' if self.line else ''
        layer = f' in {self.layer}' if self.layer else ''
        place = f'element {list(self.index)}' if self.index else 'its value'
        return (
            f'{self.op}{layer}{where}: {place} of {self.dtype}{list(self.shape)} is {self.ours:.9g}, '
            f"PyTorch's {self.theirs:.9g}; relative difference {self.relative:.2g}"
        )


@dataclasses.dataclass(frozen=True)
class Comparison:
    """`is_equal`: no result differs by more than the tolerance. `results`: of each the largest absolute and relative difference;
    `first`: the first node of the model that differs, None where none does; `nodes`: how many were compared, `differing`: how
    many of them differ."""

    is_equal: bool
    results: dict[str, tuple[float, float]]
    first: Differing | None
    nodes: int
    differing: int

    def __str__(self) -> str:
        lines = [
            f'{name}: {absolute:.2g} from PyTorch, {relative:.2g} relative' for name, (absolute, relative) in self.results.items()
        ]
        lines.append('equal' if self.is_equal else 'different')
        if self.first is not None:
            lines.append(f'{self.differing} of {self.nodes} nodes differ; the first: {self.first}')
        return '\n'.join(lines)


def compare(
    model: torch.nn.Module,
    args: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    path: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    device: str = 'cpu',
    precision: str = 'f32',
) -> Comparison:
    """paoding.torch.compare, which says what it does."""
    check_call('compare', model, args)
    if tolerance is not None and not tolerance >= 0:
        raise ArgumentError(f'compare: tolerance is {tolerance}, needed is a number from 0')
    given, more = tuple(args), dict(kwargs or {})
    sizes = NamedSizes.of(model, given, more, None)
    traced = TracedProgram(program_of('compare', model, given, more, sizes), sizes, None)
    parameters = _parameters(traced, path)
    graph, values = traced.graph_at({})
    nodes = [node for node, value in values.items() if node.op == 'call_function' and hasattr(value, 'dtype')]
    for i, node in enumerate(nodes):
        graph.fetch(f'node {i}', values[node])
    store = Parameters(graph, device)
    for name in store:
        store[name] = parameters[name]
    feeds = traced.feeds(given, more)
    made = Program(graph, store, device=device, precision=precision).run(feeds)

    module, inputs = traced.module_and_inputs(given, more)
    eager = _Eager(module, set(nodes))
    with torch.no_grad():
        eager.run(*inputs)
    narrow = {'bf16': torch.bfloat16, 'f16': torch.float16}.get(precision, torch.float32)

    def most(dtype: torch.dtype) -> float:
        if not dtype.is_floating_point:
            return 0.0
        return tolerance if tolerance is not None else TOLERANCES.get(narrow if dtype == torch.float32 else dtype, 0.0)

    first, differing = None, 0
    for i, node in enumerate(nodes):
        theirs = eager.seen[node]
        ours = _as_torch(made[f'node {i}']).to(theirs.dtype)
        if difference_of(ours, theirs) <= most(theirs.dtype):
            continue
        differing += 1
        first = first or _differing(node, ours, theirs)
    # What fusing does is in a program of the results alone.
    alone = Program(graph, store, device=device, precision=precision, fetches=traced.results).run(feeds)
    results, is_equal = {}, True
    for name, theirs in zip(traced.results, eager.results):
        results[name] = _largest(_as_torch(alone[name]).to(theirs.dtype), theirs)
        is_equal = is_equal and results[name][1] <= most(theirs.dtype)
    return Comparison(is_equal, results, first, len(nodes), differing)


def _as_torch(made: Any) -> Tensor:
    return torch.utils.dlpack.from_dlpack(made).cpu()


def _parameters(traced: TracedProgram, path: str | os.PathLike[str] | None) -> dict[str, Any]:
    """Of the model, or those of a file that was written of it."""
    if path is None:
        return dict(traced.parameters)
    held = load_safetensors(path)
    missing = [name for name in traced.parameters if name not in held]
    if missing:
        raise ArgumentError(f"compare: {os.fspath(path)} has no '{missing[0]}', which the model has: it is of another model")
    for name, tensor in traced.parameters.items():
        if tuple(held[name].shape) != tuple(tensor.shape):
            raise ArgumentError(
                f"compare: '{name}' has the shape {list(held[name].shape)} in {os.fspath(path)}, {list(tensor.shape)} in the model"
            )
    return {name: held[name] for name in traced.parameters}


class _Eager(fx.Interpreter):
    """Runs a program by PyTorch's ops and keeps what the nodes in question give. Recurrent layers, which are ops of paoding's in
    it, are PyTorch's."""

    def __init__(self, module: fx.GraphModule, wanted: set[fx.Node]) -> None:
        super().__init__(module)
        self._wanted = wanted
        self.seen: dict[fx.Node, Tensor] = {}
        self.results: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        made = super().run_node(n)
        if n in self._wanted:
            self.seen[n] = made.detach().cpu().clone()  # a later op may write to its memory
        return made

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is torch.ops.paoding.recurrent.default:
            return _layer(*args, **kwargs)
        return super().call_function(target, args, kwargs)

    def output(self, target: Any, args: Any, kwargs: Any) -> Any:
        self.results = [each.detach().cpu() for each in torch.utils._pytree.tree_leaves(args) if isinstance(each, Tensor)]
        return super().output(target, args, kwargs)


def _layer(
    x: Tensor,
    w: Tensor,
    u: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
    h0: Tensor | None,
    c0: Tensor | None,
    lengths: Tensor | None,
    cell: str,
    is_reverse: bool,
    is_training: bool,
) -> tuple[Any, ...]:
    """paoding::recurrent by PyTorch's kernels: states with the first in front (in reverse behind), last h and c."""
    if lengths is not None:
        raise ArgumentError('compare: a recurrent layer with lengths has no counterpart among the ops of PyTorch')
    weights = [each for each in (w, u, b_ih, b_hh) if each is not None]
    shape = (1, x.shape[1], u.shape[1])
    first = x.new_zeros(shape) if h0 is None else h0
    xs = x.flip(0) if is_reverse else x
    hx: Any = first
    if cell == 'lstm':
        hx = [first, x.new_zeros(shape) if c0 is None else c0.to(x.dtype)]
    states, last_h, *last_c = getattr(torch._VF, cell)(xs, hx, weights, len(weights) == 4, 1, 0.0, False, False, False)
    states = torch.cat([states.flip(0), first] if is_reverse else [first, states])
    return states, last_h, last_c[0] if last_c else x.new_empty(0), None, None


def _largest(ours: Tensor, theirs: Tensor) -> tuple[float, float]:
    if ours.shape != theirs.shape or not ours.numel():
        return (0.0, difference_of(ours, theirs))
    return float(_distances(ours, theirs).max()), difference_of(ours, theirs)


def _distances(ours: Tensor, theirs: Tensor) -> Tensor:
    return distances_of(ours, theirs).nan_to_num(nan=float('inf'))


def _differing(node: fx.Node, ours: Tensor, theirs: Tensor) -> Differing:
    distances = _distances(ours, theirs)
    index = tuple(int(each) for each in torch.unravel_index(distances.argmax(), theirs.shape)) if theirs.ndim else ()
    return Differing(
        op=_op_of(node),
        node=node.name,
        line=line_of(node),
        layer=_layer_of(node),
        dtype=str(theirs.dtype).removeprefix('torch.'),
        shape=tuple(theirs.shape),
        index=index,
        ours=float(ours[index]),
        theirs=float(theirs[index]),
        absolute=float(distances[index]),
        relative=difference_of(ours, theirs),
    )


def _op_of(node: fx.Node) -> str:
    """PyTorch's op; of several results which: 'aten.max.dim, result 1'."""
    if node.target is not operator.getitem:
        return str(node.target)
    source, index = node.args
    assert isinstance(source, fx.Node)
    return f'{source.target}, result {index}'


def _layer_of(node: fx.Node) -> str:
    """The innermost module that the node was called in, by its name in the model."""
    stack = node.meta.get('nn_module_stack') or {}
    names = [str(path) for path, _ in stack.values()]
    return names[-1] if names else ''
