# SPDX-License-Identifier: Apache-2.0
"""A paoding graph as a function of PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _paoding
from ..control import gradients
from ..errors import ArgumentError, UnsupportedError

_FLOATS = (_paoding.DType.f64, _paoding.DType.f32, _paoding.DType.f16, _paoding.DType.bf16)


def function(graph: _paoding.Graph) -> Callable[..., Any]:
    """A function of the graph's inputs, in their order, that returns its results, in theirs (a tuple, or the one that
    there is). Its gradient is the graph's, which is computed with the values of the forward pass made anew. Tensors are
    the host's. Programs are made when they are first needed."""
    if graph.parameters:
        raise ArgumentError(f"function: the graph has the parameter '{graph.parameters[0]}'; make it an input")
    forward = _paoding.Program(graph)
    inputs, fetches = graph.inputs, graph.fetches
    made: list[tuple[_paoding.Program, list[int], list[int]]] = []

    def backward_program() -> tuple[_paoding.Program, list[int], list[int]]:
        if not made:
            both = graph.clone()
            values = [both.find(name) for name in inputs]
            results = [both.fetched(name) for name in fetches]
            wanted = [i for i, value in enumerate(values) if value is not None and value.dtype in _FLOATS]
            seeded = [i for i, value in enumerate(results) if value is not None and value.dtype in _FLOATS]
            seeds = [both.input(f'seed of {fetches[i]}', results[i].dtype, results[i].shape) for i in seeded]  # type: ignore[union-attr]
            found = gradients([results[i] for i in seeded], [values[i] for i in wanted], seeds)
            for i, gradient in zip(wanted, found):
                both.fetch(f'gradient of {inputs[i]}', gradient)
            made.append((_paoding.Program(both, fetches=[f'gradient of {inputs[i]}' for i in wanted]), wanted, seeded))
        return made[0]

    class Call(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *tensors: torch.Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            results = forward.run(dict(zip(inputs, map(_fed, tensors))))
            made = tuple(torch.from_dlpack(results[name]) for name in fetches)
            ctx.mark_non_differentiable(*(each for each in made if not each.is_floating_point()))
            return made

        @staticmethod
        def backward(ctx: Any, *seeds: torch.Tensor) -> Any:
            program, wanted, seeded = backward_program()
            feeds = dict(zip(inputs, map(_fed, ctx.saved_tensors)))
            feeds.update({f'seed of {fetches[i]}': _fed(seeds[i]) for i in seeded})
            results = program.run({name: feeds[name] for name in program.input_names})
            given: list[torch.Tensor | None] = [None] * len(inputs)
            for i in wanted:
                given[i] = torch.from_dlpack(results[f'gradient of {inputs[i]}'])
            return tuple(given)

    def call(*tensors: torch.Tensor) -> Any:
        if len(tensors) != len(inputs):
            raise ArgumentError(f'function: {len(tensors)} tensors for the inputs {", ".join(inputs)}')
        results = Call.apply(*tensors)  # type: ignore[no-untyped-call]
        return results[0] if len(fetches) == 1 else results

    return call


def _fed(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type != 'cpu':
        raise UnsupportedError(f'function: the tensor is on {tensor.device}, the program on the CPU')
    return tensor.detach().contiguous()
