# SPDX-License-Identifier: Apache-2.0
"""What became of a model: its graphs, their regions, and the ops that stay PyTorch's, with the reason and the line."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from ._convert import is_size, is_view
from ._settings import Settings


@dataclasses.dataclass(frozen=True)
class Left:
    """An op that stays PyTorch's, why, and the line of the user's that called it ('' where nobody knows)."""

    op: str
    why: str
    line: str = ''

    def __str__(self) -> str:
        return f'{self.op}: {self.why}' + (f' ({self.line})' if self.line else '')


@dataclasses.dataclass
class GraphReport:
    """One graph of ATen ops. `regions`: of each the ops that compute. `loops`: those that Dynamo unrolled and paoding runs as
    loops. `whole`: why none was made of it. `seconds`: ours, `bind_seconds` of them for paoding's own compiler."""

    kind: str
    regions: list[int] = dataclasses.field(default_factory=list)
    left: list[Left] = dataclasses.field(default_factory=list)
    loops: list[str] = dataclasses.field(default_factory=list)
    whole: str | None = None
    seconds: float = 0.0
    bind_seconds: float = 0.0

    def __str__(self) -> str:
        if self.whole is not None:
            return f"{self.kind}: PyTorch's, {self.whole}"
        ops = ' + '.join(map(str, self.regions)) or 'none'
        lines = [f"{self.kind}: ops in regions of paoding's: {ops}; {len(self.left)} stay PyTorch's"]
        lines += [f'  {loop}' for loop in self.loops]
        for left, count in Counter(self.left).most_common():
            lines.append(f'  {left}' + (f', {count} times' if count > 1 else ''))
        return '\n'.join(lines)


@dataclasses.dataclass
class Explanation:
    """`graphs` in the order in which they were compiled; `breaks`: why Dynamo ended a graph, with how often."""

    graphs: list[GraphReport] = dataclasses.field(default_factory=list)
    breaks: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def left(self) -> list[Left]:
        return [each for graph in self.graphs for each in graph.left]

    def __str__(self) -> str:
        lines = [str(each) for each in self.graphs] or ['no graph was compiled']
        lines += [f'graph break: {why}' + (f', {count} times' if count > 1 else '') for why, count in self.breaks.items()]
        return '\n'.join(lines)


Listener = Callable[[GraphReport], None]
_FILE_LINE = re.compile(r'File "([^"]+)", line (\d+)')


def line_of(node: fx.Node) -> str:
    """The innermost line that is not PyTorch's own, else the innermost."""
    trace = node.meta.get('stack_trace')
    places = _FILE_LINE.findall(trace) if isinstance(trace, str) else []
    if not places:
        return ''
    own = [place for place in places if '/torch/' not in place[0]] or places
    file, number = own[-1]
    return f'{file}:{number}'


def scope_of(node: fx.Node) -> str:
    """The scope of a node's values: 'model.py:41'; '' where nobody knows the line."""
    return line_of(node).rpartition('/')[2]


def left_of(graph: fx.Graph, reasons: Mapping[fx.Node, str | None]) -> list[Left]:
    """The ops that PyTorch computes: views, sizes and writes of results that stand in the graph are no computation, and
    recurrent layers are paoding's own ops."""
    return [
        Left(str(node.target), why, line_of(node))
        for node in graph.nodes
        if (why := reasons.get(node)) is not None and _computes(node) and not is_size(node)
    ]


def _computes(node: fx.Node) -> bool:
    target = node.target
    if target is operator.getitem or is_view(node):
        return False
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace != 'paoding' and target is not torch.ops.aten.copy_.default
    return True


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Calls the model once, compiled, and its backward pass if its results have one, and tells what became of it: the
    graphs, what paoding computes of each, what stays PyTorch's, why, and on which line of yours. The model is not changed,
    but for what a call does to it; gradients that were there are put back."""
    from torch._dynamo.utils import counters

    from ._backend import compiled

    made = Explanation()
    settings = Settings()

    def listening(gm: fx.GraphModule, example_inputs: Any, **_: Any) -> Callable[..., Any]:
        return compiled(gm, example_inputs, settings, made.graphs.append)

    before = Counter(counters['graph_break'])
    _pass_back(torch.compile(model, backend=listening)(*args, **kwargs))
    made.breaks = dict(Counter(counters['graph_break']) - before)
    return made


def _pass_back(results: Any) -> None:
    """Gradients of all tensors that the results depend on; those that were there are put back."""
    tensors = [
        each
        for each in torch.utils._pytree.tree_leaves(results)
        if isinstance(each, torch.Tensor) and each.grad_fn is not None
    ]
    pending, seen = [each.grad_fn for each in tensors], set()
    kept: list[tuple[torch.Tensor, torch.Tensor | None]] = []
    while pending:
        node: Any = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, 'variable'):
            kept.append((node.variable, node.variable.grad))
            node.variable.grad = None
        pending.extend(before for before, _ in node.next_functions)
    try:
        if tensors:
            torch.autograd.backward([each.sum() for each in tensors])
    finally:
        for variable, gradient in kept:
            variable.grad = gradient
