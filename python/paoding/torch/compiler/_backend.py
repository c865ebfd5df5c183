# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend='paoding'): a graph of Dynamo's by AOTAutograd, and each of the graphs that come of it, for
inference, forward and backward, in regions that paoding computes and ops that stay PyTorch's."""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from ...errors import UnsupportedError
from . import _all_ops as _all_ops  # fills the table
from ._constants import make_numbers_on
from ._convert import device_of, is_view, verdicts
from ._direct import direct_call
from ._explain import GraphReport, Listener, left_of
from ._halves import halves_of, split
from ._partition import Parts, written_too_early
from ._recurrent import compiling_for_paoding
from ._settings import Settings, by_aot


def backend(
    gm: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    options: dict[str, Any] | None = None,
    mode: str | None = None,
    **_: Any,
) -> Callable[..., Any]:
    """The backend `paoding` of torch.compile. options: strict (an op that stays PyTorch's is an error), min_nodes,
    max_regions, uses_graph: docs/howto/torch_compile.md. Errors: (argument) an option or mode that is unknown;
    (unsupported) with strict, which op and why."""
    return compiled(gm, example_inputs, Settings.of(options, mode), None)


def compiled(
    gm: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings, listener: Listener | None
) -> Callable[..., Any]:
    forward, backward, inference = (
        functools.partial(_compile, kind=kind, settings=settings, listener=listener)
        for kind in ('forward', 'backward', 'inference')
    )
    with compiling_for_paoding():
        results = len(torch.utils._pytree.tree_leaves(next(iter(reversed(gm.graph.nodes))).args))
        split_loops = functools.partial(split, settings=settings, results=results)
        made: Callable[..., Any] = by_aot(forward, backward, inference, split_loops)(gm, example_inputs)
    return made


def _compile(
    gm: fx.GraphModule, example_inputs: Sequence[Any], *, kind: str, settings: Settings, listener: Listener | None
) -> Callable[..., Any]:
    """One graph of ATen ops as a function of a list of its inputs."""
    begin = time.perf_counter()
    report = GraphReport(kind)
    try:
        graph = _taken_apart(gm, settings, report)
    except UnsupportedError:
        raise
    except Exception as mistake:
        if settings.strict:
            raise
        warnings.warn(
            f'paoding: a {kind} graph stays PyTorch\'s: {type(mistake).__name__}: {mistake}', RuntimeWarning, stacklevel=2
        )
        report.whole = f'{type(mistake).__name__}: {mistake}'
        graph = gm.graph
    made = _as_boxed(gm, graph)
    report.seconds = time.perf_counter() - begin
    if listener is not None:
        listener(report)
    return made


def _taken_apart(gm: fx.GraphModule, settings: Settings, report: GraphReport) -> fx.Graph:
    graph = gm.graph
    halves = halves_of(graph)
    if halves:
        report.regions = [half.nodes for half in halves]
        report.loops = [loop for half in halves for loop in half.loops]
        report.bind_seconds = sum(half.seconds for half in halves)
        return graph
    device = device_of(graph)
    report.whole = 'it has no tensor of a CPU or an NVIDIA GPU' if device is None else written_too_early(graph)
    if report.whole is not None or device is None:
        return graph
    make_numbers_on(graph, device)
    found = verdicts(graph, device)
    if settings.strict:
        _refuse(left_of(graph, found))
    parts = Parts(gm, graph, found, settings)
    made = parts.made(device)
    report.regions = [
        sum(1 for node in region.nodes if not is_view(node) and str(node.target) != '<built-in function getitem>')
        for region in parts.regions
        if region.refusal is None
    ]
    for region in parts.regions:
        if region.refusal is not None:
            parts.reasons.update(dict.fromkeys(region.nodes, region.refusal))
    report.left = left_of(graph, parts.reasons)
    report.loops = [loop for region in parts.regions for loop in region.loops]
    report.bind_seconds = sum(region.seconds for region in parts.regions)
    return made


def _refuse(left: Sequence[Any]) -> None:
    if left:
        raise UnsupportedError(
            "torch.compile(backend='paoding', options={'strict': True}): these ops stay PyTorch's\n"
            + '\n'.join(map(str, left))
        )


def _as_boxed(gm: fx.GraphModule, graph: fx.Graph) -> Callable[..., Any]:
    """The graph's own code, which takes its inputs out of a list, so that they may end before it does."""
    direct = direct_call(graph)
    if direct is not None:
        return direct
    boxed = getattr(fx.graph, '_BoxedCodeGen', None)
    if boxed is None:
        from torch._functorch._aot_autograd.utils import make_boxed_func

        made: Callable[..., Any] = make_boxed_func(fx.GraphModule(gm, graph).forward)
        return made
    graph.set_codegen(boxed())
    module = fx.GraphModule(gm, graph)
    call: Any = functools.partial(type(module).forward, module)
    call._boxed_call = True
    result: Callable[..., Any] = call
    return result
