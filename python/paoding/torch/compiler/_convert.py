# SPDX-License-Identifier: Apache-2.0
"""One node of a graph of PyTorch's as values of a paoding graph, and the verdict, for every node, whether that works: it is
tried, with the extents of the example, and what comes out is held against what PyTorch promises."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from ..._paoding import Graph, Value
from ...errors import Error
from ._layout import Layout
from ._table import Making, NotTaken, dtype_of, found, name_of


def value_of(node: fx.Node) -> Any:
    """What PyTorch promises of a node: fake tensors, sizes."""
    if node.op == 'get_attr' and 'val' not in node.meta:
        return held_by(node)
    return node.meta.get('val')


def held_by(node: fx.Node) -> Any:
    """The attribute of its graph's module that a get_attr node reads."""
    owner: Any = node.graph.owning_module
    for part in str(node.target).split('.'):
        owner = getattr(owner, part)
    return owner


def tensors_of(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [each for each in value if isinstance(each, torch.Tensor)] if isinstance(value, (list, tuple)) else []


def is_size(node: fx.Node) -> bool:
    """A number that is known only when the graph is called."""
    return isinstance(node.meta.get('val'), (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool))


def is_view(node: fx.Node) -> bool:
    """Its results lie in the memory of its input."""
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return False
    # Of lists of views (split) the results tell nothing.
    aliases = [each.alias_info for each in (*target._schema.returns, *target._schema.arguments)]
    return any(each is not None for each in aliases) and not target._schema.is_mutable


def writes(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and bool(node.target._schema.is_mutable)


def hint(size: Any) -> int:
    """An extent of the example, without a guard."""
    if isinstance(size, torch.SymInt):
        known = size.node.hint if size.node.has_hint() else None
        if known is None:
            raise NotTaken('extents that depend on data')
        return int(known)
    return int(size)


def _checked(made: Any, promised: Any, extents: Callable[[torch.Tensor], list[int]]) -> Any:
    """What was made, if its dtypes and extents are those that PyTorch promises."""
    pairs = [(made, promised)] if isinstance(promised, torch.Tensor) else list(zip(made, promised, strict=True))
    for value, wanted in pairs:
        if value is None or not isinstance(wanted, torch.Tensor):
            continue
        shape = extents(wanted)
        if value.dtype != dtype_of(wanted.dtype) or list(value.shape) != shape:
            raise NotTaken(
                f'ours gives {name_of(value.dtype)}{list(value.shape)}, promised is '
                f'{name_of(dtype_of(wanted.dtype))}{shape}'
            )
    return made


def converted(
    making: Making,
    node: fx.Node,
    values: Mapping[fx.Node, Any],
    extents: Callable[[torch.Tensor], list[int]],
) -> Any:
    """The values of a node's results. Raises NotTaken, or an Error of the graph's."""
    if node.target is operator.getitem:
        source, index = node.args
        made = values[source][index]  # type: ignore[index]
        if made is None:
            raise NotTaken('a result that ours does not make')
        return made
    promised = value_of(node)
    entry = found(node.target)
    if entry is None:
        raise NotTaken('there is no such op')
    convert, dtypes = entry
    tensors = tensors_of(promised)
    if tensors and all(0 in extents(each) for each in tensors) and not is_view(node):
        made = [making.full(0, dtype_of(each.dtype), extents(each)) for each in tensors]
        return made if isinstance(promised, (list, tuple)) else made[0]
    making.dtypes = [
        dtype_of(each.dtype) if isinstance(each, torch.Tensor) else None  # type: ignore[misc]
        for each in (promised if isinstance(promised, (list, tuple)) else [promised])
    ]
    for tensor in [*tensors_of(promised), *(each for n in node.all_input_nodes for each in tensors_of(value_of(n)))]:
        dtype = dtype_of(tensor.dtype)
        if dtype not in dtypes:
            raise NotTaken(f'dtype {name_of(dtype)}')
    arguments, keywords = fx.node.map_arg((node.args, node.kwargs), lambda each: values[each])
    return _checked(convert(making, *arguments, **keywords), promised, extents)


def device_of(graph: fx.Graph) -> torch.device | None:
    """The device of most nodes, if it is one that paoding has."""
    counts = Counter(each.device for node in graph.nodes for each in tensors_of(value_of(node)))
    counts = Counter({device: n for device, n in counts.items() if device.type in ('cpu', 'cuda')})
    return counts.most_common(1)[0][0] if counts else None


def _refused(value: Any, device: torch.device) -> str | None:
    """Why tensors are not read or written by paoding."""
    for each in tensors_of(value):
        if each.layout != torch.strided:
            return f'layout {str(each.layout).removeprefix("torch.")}'
        if each.device != device:
            return f'a tensor of {each.device} beside those of {device}'
        if each.is_conj() or each.is_neg():
            return 'a conjugated or negated view'
        if not isinstance(each, torch._subclasses.FakeTensor) and type(each) not in (torch.Tensor, torch.nn.Parameter):
            return f'a {type(each).__name__}'
    return None


def _has_gaps(tensor: torch.Tensor) -> bool:
    return Layout([hint(each) for each in tensor.shape], [hint(each) for each in tensor.stride()]).dense is None


def verdicts(graph: fx.Graph, device: torch.device) -> dict[fx.Node, str | None]:
    """For every node that makes tensors why it stays PyTorch's, None of those that become paoding's."""
    made = Graph()
    making = Making(made)
    making.device = device
    values: dict[fx.Node, Any] = {}
    found: dict[fx.Node, str | None] = {}

    def extents(tensor: torch.Tensor) -> list[int]:
        return [hint(each) for each in tensor.shape]

    def known(node: fx.Node) -> None:
        """A value for what comes from outside."""
        if node in values:
            return
        promised = value_of(node)
        if is_size(node):
            values[node] = hint(promised) if isinstance(promised, (int, torch.SymInt)) else _no_number(promised)
        elif isinstance(promised, torch.Tensor):
            name = f'outside{len(values)}'
            values[node] = made.input(name, dtype_of(promised.dtype), tuple(extents(promised)))
        else:
            raise NotTaken('an input that is no tensor')

    for node in graph.nodes:
        if node.op != 'call_function' or is_size(node):
            continue
        try:
            promised = value_of(node)
            reason = _refused(promised, device)
            for each in node.all_input_nodes:
                reason = reason or _refused(value_of(each), device)
            if node.target is operator.getitem and found.get(node.args[0], '') is not None:
                reason = found.get(node.args[0]) or 'its source stays'
            is_computed = not is_view(node) and node.target is not operator.getitem
            if reason is None and is_computed and any(map(_has_gaps, tensors_of(promised))):
                reason = 'a result whose memory has gaps'
            if promised is None or writes(node):
                reason = 'it writes' if writes(node) else 'its results are not known'
            if reason is not None:
                raise NotTaken(reason)
            if node.target is not operator.getitem:
                for each in node.all_input_nodes:
                    known(each)
            with made:
                values[node] = converted(making, node, values, extents)
            found[node] = None
        except (NotTaken, Error) as refusal:
            found[node] = str(refusal).splitlines()[0]
        except (TypeError, ValueError, IndexError, AssertionError, AttributeError, ZeroDivisionError) as mistake:
            found[node] = f'{type(mistake).__name__}: {mistake}'.splitlines()[0]
    _with_their_results(graph, found)
    return found


def _no_number(promised: Any) -> Any:
    raise NotTaken('a number that is no integer, known when it is called')


def _with_their_results(graph: fx.Graph, found: dict[fx.Node, str | None]) -> None:
    """An op of several results is taken with all of those that are used."""
    for node in graph.nodes:
        if node.target is not operator.getitem or found.get(node) is None:
            continue
        source = node.args[0]
        if found.get(source, '') is None and len(node.users) > 0:
            found[source] = found[node]
            for each in source.users:
                found[each] = found[node]
