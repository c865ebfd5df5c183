# SPDX-License-Identifier: Apache-2.0
"""Which nodes go together, and the graph that calls them. Nodes get stages in the order of the graph: a node that paoding
takes has the stage of its inputs, or the next one after an input that PyTorch computes. Nodes of one stage are a region, and
none can wait for itself: PyTorch's ops of stage -1, region 0, PyTorch's of stage 0, region 1, .. is an order in which all run."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from ._convert import is_size, is_view, tensors_of, value_of, writes
from ._ops_recurrent import recurrent_ops
from ._recurrent import as_direct_call
from ._region import Region, as_function
from ._settings import Settings

_OUTSIDE = -1
_aten = torch.ops.aten
_HEAVY = {
    *recurrent_ops,
    _aten.mm.default,
    _aten.bmm.default,
    _aten.addmm.default,
    _aten.baddbmm.default,
    _aten.convolution.default,
    _aten.convolution_backward.default,
    *(
        getattr(_aten, name).default
        for name in (
            '_scaled_dot_product_flash_attention_for_cpu',
            '_scaled_dot_product_flash_attention_for_cpu_backward',
            '_scaled_dot_product_efficient_attention',
            '_scaled_dot_product_efficient_attention_backward',
        )
        if hasattr(_aten, name)
    ),
}
# Those that draw or check do so in the order of the graph.
_ORDERED = (torch._ops.HigherOrderOperator,)


class Parts:
    """The regions of a graph, and the graph that calls them."""

    def __init__(
        self, root: torch.nn.Module, graph: fx.Graph, verdicts: dict[fx.Node, str | None], settings: Settings
    ) -> None:
        self._root, self._graph, self._settings = root, graph, settings
        self.reasons = dict(verdicts)  # of the nodes that stay PyTorch's
        self.regions: list[Region] = []

    def made(self, device: torch.device) -> fx.Graph:
        """The graph that calls regions and, for the rest, PyTorch's ops."""
        self._drop_small(self._stages())
        stages = self._stages()
        last = max([stage for _, stage in stages.values()], default=0)
        return self._emitted(stages, last, device)

    # ---- stages ----

    def _kind(self, node: fx.Node) -> str:
        if node.op in ('placeholder', 'get_attr'):
            return 'outside'
        if is_size(node):
            return 'size'
        if self.reasons.get(node, '') is not None:
            return 'left'
        if node.target is operator.getitem:
            return 'pick'
        return 'view' if is_view(node) else 'ours'

    def _stages(self) -> dict[fx.Node, tuple[str, int]]:
        """Kind and stage of every node. A view is ready with its base; it is made anew wherever it is read."""
        found: dict[fx.Node, tuple[str, int]] = {}
        ordered = _OUTSIDE
        for node in self._graph.nodes:
            kind = self._kind(node)
            if node.op == 'output' or kind == 'outside':
                found[node] = ('outside', _OUTSIDE)
                continue
            before = [self._base(each, found) for each in node.all_input_nodes]
            if kind in ('view', 'pick'):
                base, stage = found[node.all_input_nodes[0]]
                others = [s + 1 for k, s in before[1:] if k != 'ours']
                found[node] = (kind, max([stage, *others]))
            elif kind == 'ours':
                found[node] = (kind, max([s if k == 'ours' else s + 1 for k, s in before], default=0))
            else:
                stage = max([s for _, s in before], default=_OUTSIDE)
                if _is_ordered(node):
                    stage = ordered = max(stage, ordered)
                found[node] = (kind, stage)
        return found

    def _base(self, node: fx.Node, found: dict[fx.Node, tuple[str, int]]) -> tuple[str, int]:
        """Kind and stage of what computes a node's memory."""
        kind, stage = found[node]
        while found[node][0] in ('view', 'pick'):
            node = node.all_input_nodes[0]
        return found[node][0], stage

    def _drop_small(self, stages: dict[fx.Node, tuple[str, int]]) -> None:
        groups: dict[int, list[fx.Node]] = {}
        for node, (kind, stage) in stages.items():
            if kind == 'ours':
                groups.setdefault(stage, []).append(node)
        weights = {stage: _weight(nodes) for stage, nodes in groups.items()}
        largest = sorted(weights, key=lambda stage: -weights[stage])[: self._settings.max_regions]
        for stage, nodes in groups.items():
            if weights[stage] < self._settings.min_nodes:
                reason = f'its region would have {len(nodes)} ops only'
            elif stage not in largest:
                reason = f'there are {self._settings.max_regions} larger regions'
            else:
                continue
            for node in nodes:
                self.reasons[node] = reason
                for each in node.users:
                    if each.target is operator.getitem:
                        self.reasons[each] = reason

    # ---- the graph that calls them ----

    def _emitted(
        self, stages: dict[fx.Node, tuple[str, int]], last: int, device: torch.device
    ) -> fx.Graph:
        made = fx.Graph()
        new: dict[fx.Node, fx.Node] = {}
        nodes = list(self._graph.nodes)
        output = nodes[-1]
        written = [node for node in nodes if node.op == 'call_function' and writes(node)]
        outside = self._needed_outside(stages)

        def copied(node: fx.Node) -> None:
            new[node] = made.node_copy(node, lambda each: new[each])
            direct = as_direct_call(node)
            if direct is not None:
                new[node].target = direct

        for node in nodes:
            if node.op in ('placeholder', 'get_attr'):
                copied(node)
        for stage in range(_OUTSIDE, last + 1):
            inside = [node for node in nodes if stages[node] == ('ours', stage)]
            if inside:
                self._call(made, new, stages, stage, inside, outside, device)
            for node in nodes:
                kind, at = stages[node]
                if at != stage or node.op != 'call_function' or node in new:
                    continue
                if kind in ('left', 'size') and node not in written:
                    copied(node)
                elif kind in ('view', 'pick') and node in outside:
                    copied(node)
        for node in written:
            copied(node)
        made.output(fx.node.map_arg(output.args[0], lambda each: new[each]))
        new_output = next(iter(reversed(made.nodes)))
        new_output.meta.update(output.meta)
        return made

    def _needed_outside(self, stages: dict[fx.Node, tuple[str, int]]) -> set[fx.Node]:
        """Nodes of ours, views among them, that PyTorch's ops or the graph's results read."""
        needed: set[fx.Node] = set()
        for node in reversed(list(self._graph.nodes)):
            kind = 'left' if node.op == 'output' else stages[node][0]
            if kind in ('left', 'size') or (kind in ('view', 'pick') and node in needed):
                needed.update(node.all_input_nodes)
        return needed

    def _call(
        self,
        made: fx.Graph,
        new: dict[fx.Node, fx.Node],
        stages: dict[fx.Node, tuple[str, int]],
        stage: int,
        computed: list[fx.Node],
        outside: set[fx.Node],
        device: torch.device,
    ) -> None:
        mine = set(computed)
        inputs: dict[fx.Node, None] = {}
        inside: dict[fx.Node, None] = {}

        def take(node: fx.Node) -> None:
            """Puts a node that the region reads inside, if it is a view or one of several results, else among its inputs."""
            if node in inside or node in inputs:
                return
            kind, _ = stages[node]
            if node not in mine and kind not in ('view', 'pick'):
                inputs[node] = None
                return
            if kind == 'pick' and stages[node.all_input_nodes[0]][0] == 'ours' and node.all_input_nodes[0] not in mine:
                inputs[node] = None  # another region's
                return
            for each in node.all_input_nodes:
                take(each)
            inside[node] = None

        for node in computed:
            take(node)
            for each in node.users:
                if stages[each][0] == 'pick':
                    take(each)
        self._add_sizes(inside, inputs)
        results = [node for node in inside if self._is_result(node, stages, stage, mine, outside)]
        region = Region(
            f'region{len(self.regions)}', list(inside), list(inputs), results, device, self._settings
        )
        self.regions.append(region)
        call = made.call_function(as_function(region), tuple(new[node] for node in inputs))
        for i, node in enumerate(results):
            new[node] = made.call_function(operator.getitem, (call, i))
            new[node].meta = dict(node.meta)

    def _add_sizes(
        self, inside: dict[fx.Node, None], inputs: dict[fx.Node, None]
    ) -> None:
        """The extents that symbols in the region stand for, where the graph is given them."""
        wanted = {symbol for node in [*inside, *inputs] for symbol in _symbols(node)}
        for node in self._graph.nodes:
            if node.op == 'placeholder' and is_size(node) and node not in inputs and _symbols(node) & wanted:
                inputs[node] = None

    def _is_result(
        self,
        node: fx.Node,
        stages: dict[fx.Node, tuple[str, int]],
        stage: int,
        mine: set[fx.Node],
        outside: set[fx.Node],
    ) -> bool:
        """Whether a tensor that the region computes is read by PyTorch's ops or another region, itself or by a view."""
        kind, _ = stages[node]
        is_computed = kind == 'ours' or (kind == 'pick' and node.all_input_nodes[0] in mine)
        if not is_computed or not isinstance(value_of(node), torch.Tensor):
            return False
        if node in outside:
            return True
        pending = list(node.users)
        while pending:
            user = pending.pop()
            kind, at = stages[user]
            if kind == 'ours' and at != stage:
                return True
            if kind in ('view', 'pick'):
                pending.extend(user.users)
        return False


def _symbols(node: fx.Node) -> set[Any]:
    """Those that its extents and strides are made of."""
    value = value_of(node)
    numbers: list[Any] = [value] if isinstance(value, torch.SymInt) else []
    for each in tensors_of(value):
        numbers += [*each.shape, *each.stride()]
    return {symbol for each in numbers if isinstance(each, torch.SymInt) for symbol in each.node.expr.free_symbols}


def _weight(nodes: list[fx.Node]) -> int:
    return sum(1000 if node.target in _HEAVY else 1 for node in nodes)


def _is_ordered(node: fx.Node) -> bool:
    target: Any = node.target
    if isinstance(target, _ORDERED):
        return True
    if isinstance(target, torch._ops.OpOverload):
        return torch.Tag.nondeterministic_seeded in target.tags or node.is_impure()
    return node.is_impure() if node.op == 'call_function' and isinstance(target, Callable) else False  # type: ignore[arg-type]


def written_too_early(graph: fx.Graph) -> str | None:
    """Why the graph is not to be taken apart: something is computed after a write."""
    seen: fx.Node | None = None
    for node in graph.nodes:
        if node.op != 'call_function':
            continue
        if writes(node):
            seen = node
        elif seen is not None and not is_view(node):
            return f'{seen.target} writes in the middle of the graph'
    return None
