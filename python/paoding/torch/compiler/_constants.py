# SPDX-License-Identifier: Apache-2.0
"""Numbers that PyTorch keeps as tensors of the CPU in a graph of another device: `x[mask] = 7.0` on a GPU reads such a one.
Ops of the device read numbers made there, so that they need not wait for a copy, and may be paoding's."""

from __future__ import annotations

import torch
from torch import fx
from torch._subclasses.fake_tensor import unset_fake_temporarily

from ._convert import held_by, tensors_of, value_of

aten = torch.ops.aten

_COPIES = (aten.lift_fresh_copy.default, aten.clone.default)


def make_numbers_on(graph: fx.Graph, device: torch.device) -> None:
    """Every op whose results are on `device` and that reads a constant of the CPU without axes reads `full([], number)` on
    `device` in its place. What stays on the CPU, and constants that an op writes to, are left."""
    if device.type == 'cpu':
        return
    modes = [each.fake_mode for node in graph.nodes for each in tensors_of(value_of(node)) if hasattr(each, 'fake_mode')]
    if not modes:
        return
    for node in [each for each in graph.nodes if each.op == 'get_attr']:
        constant = held_by(node)
        # A parameter may change, and a tensor that is only promised has no number.
        if type(constant) is not torch.Tensor or constant.dim() != 0 or constant.device.type != 'cpu':
            continue
        with unset_fake_temporarily():
            value = constant.item()
        readers = {node, *(user for user in node.users if user.target in _COPIES)}
        users = [user for reader in readers for user in reader.users if user not in readers and _is_on(user, device)]
        for user in users:
            with graph.inserting_before(user):
                number = graph.call_function(aten.full.default, ([], value), {'dtype': constant.dtype, 'device': device})
            with modes[0]:
                number.meta['val'] = torch.full([], value, dtype=constant.dtype, device=device)
            for reader in readers:
                user.replace_input_with(reader, number)
        for reader in readers - {node}:
            if not reader.users:
                graph.erase_node(reader)


def _is_on(user: fx.Node, device: torch.device) -> bool:
    results = tensors_of(value_of(user))
    overload = user.target
    return (
        isinstance(overload, torch._ops.OpOverload)
        and not overload._schema.is_mutable
        and bool(results)
        and all(each.device == device for each in results)
        and overload not in (aten._to_copy.default, aten.copy.default)
    )
