# SPDX-License-Identifier: Apache-2.0
"""A graph that is one region as a function, without the code that torch.fx generates: that gives each input a name and lets
go of it, which takes longer than the rest of a call where there are hundreds."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, fx

from ._region import Region


def direct_call(graph: fx.Graph) -> Callable[[list[Any]], Sequence[Tensor]] | None:
    """Takes the inputs out of its argument, a list. None where the graph is more than a region of inputs whose results are the
    graph's."""
    places = {node: i for i, node in enumerate(node for node in graph.nodes if node.op == 'placeholder')}
    others = [node for node in graph.nodes if node.op != 'placeholder' and node.target is not operator.getitem]
    if len(others) != 2 or others[0].op != 'call_function' or others[1].op != 'output':
        return None
    call, output = others
    region = getattr(call.target, 'region', None)
    results = output.args[0]
    if not isinstance(region, Region) or not isinstance(results, (list, tuple)):
        return None
    if not all(each in places for each in call.args):
        return None
    picks: list[Any] = [each.args[1] for each in results if isinstance(each, fx.Node) and each.args and each.args[0] is call]
    if len(picks) != len(results):
        return None
    order = [places[each] for each in call.args]
    in_order = operator.itemgetter(*order) if len(order) > 1 else None
    takes_all, gives_all = order == list(range(len(places))), picks == list(range(len(region.results)))

    def run(inputs: list[Any]) -> Sequence[Tensor]:
        if takes_all:
            given = inputs[:]
        else:
            given = [inputs[i] for i in order] if in_order is None else [*in_order(inputs)]
        inputs.clear()
        made = region.of(given)
        return made if gives_all else [made[i] for i in picks]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
