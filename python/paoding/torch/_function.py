# SPDX-License-Identifier: Apache-2.0
"""A paoding graph as a function of PyTorch tensors: in their memory and, on a GPU, in PyTorch's current stream."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .. import _paoding
from ..control import gradients
from ..errors import ArgumentError, DtypeError, ShapeError, UnsupportedError
from ._kernels import Kernels
from ._memory import address, at, current_stream, dense, may_round_products, workspace

_DTYPES = {
    _paoding.DType.f64: torch.float64,
    _paoding.DType.f32: torch.float32,
    _paoding.DType.f16: torch.float16,
    _paoding.DType.bf16: torch.bfloat16,
    _paoding.DType.i64: torch.int64,
    _paoding.DType.i32: torch.int32,
    _paoding.DType.u8: torch.uint8,
    _paoding.DType.bool: torch.bool,
}
_TEXTS = {torch_dtype: str(dtype).split('.')[-1] for dtype, torch_dtype in _DTYPES.items()}

_MOST_COMPILED = 16  # of a function

Place = tuple[str, torch.dtype, tuple[int, ...]]


class _Placed:
    """A graph that runs where the tensors are."""

    def __init__(self, graph: _paoding.Graph, device: torch.device, allow_tf32: bool, fetches: list[str]) -> None:
        self._device = device
        self._lock = threading.Lock()  # threads share those of GPUs
        self._graph = _paoding.PlacedGraph(graph, str(device), allow_tf32, fetches)
        self._results = [(_DTYPES[dtype], shape) for _, dtype, shape in self._graph.results]

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        results = [torch.empty(shape, dtype=dtype, device=self._device) for dtype, shape in self._results]
        room = workspace(self._graph.workspace_bytes, self._device)
        read = [dense(tensor) for tensor in tensors]  # kept until the call is enqueued
        with self._lock:
            self._graph.run(
                [address(each) for each in read],
                [address(each) for each in results],
                address(room),
                current_stream(self._device),
            )
        return results


class _Fed:
    """A graph whose control flow is decided while it runs: a program of the host."""

    def __init__(self, graph: _paoding.Graph, fetches: list[str]) -> None:
        self._program = _paoding.Program(graph, fetches=fetches)
        self._names = graph.inputs

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        feeds = {name: tensor.contiguous() for name, tensor in zip(self._names, tensors)}
        results = self._program.run({name: feeds[name] for name in self._program.input_names})
        return [torch.utils.dlpack.from_dlpack(results[name]) for name in self._program.fetch_names]


def _compiled(graph: _paoding.Graph, device: torch.device, allow_tf32: bool, fetches: list[str]) -> _Placed | _Fed:
    try:
        return _Placed(graph, device, allow_tf32, fetches)
    except UnsupportedError:
        if device.type != 'cpu':
            raise
        return _Fed(graph, fetches)


class _Function:
    """A graph with its gradient. `may_round` says of a device whether products of f32 may be rounded to TF32 there."""

    def __init__(self, graph: _paoding.Graph, may_round: Callable[[torch.device], bool]) -> None:
        self.graph = graph.clone()
        self._may_round = may_round
        self.inputs: list[Place] = []
        for name in graph.inputs:
            value = graph.find(name)
            assert value is not None
            self.inputs.append((name, _DTYPES[value.dtype], value.shape))
        self.results: list[Place] = []
        for name in graph.fetches:
            value = graph.fetched(name)
            assert value is not None
            self.results.append((name, _DTYPES[value.dtype], value.shape))
        self.wanted = [i for i, place in enumerate(self.inputs) if place[1].is_floating_point]
        self.seeded = [i for i, place in enumerate(self.results) if place[1].is_floating_point]
        self._backward: _paoding.Graph | None = None
        self._compiled: Kernels[_Placed | _Fed] = Kernels(_MOST_COMPILED)

    def _backward_graph(self) -> _paoding.Graph:
        """Of the inputs and the seeds, with the gradients of the inputs that have some."""
        if self._backward is None:
            made = self.graph.clone()
            values = [made.find(name) for name, _, _ in self.inputs]
            results = [made.fetched(name) for name, _, _ in self.results]
            seeds = []
            for i in self.seeded:
                result = results[i]
                assert result is not None
                seeds.append(made.input(f'seed of {self.results[i][0]}', result.dtype, result.shape))
            found = gradients([results[i] for i in self.seeded], [values[i] for i in self.wanted], seeds)
            for i, gradient in zip(self.wanted, found):
                assert gradient is not None
                made.fetch(f'gradient of {self.inputs[i][0]}', gradient)
            self._backward = made
        return self._backward

    def _at(self, which: str, device: torch.device) -> _Placed | _Fed:
        allow_tf32 = self._may_round(device)

        def make() -> _Placed | _Fed:
            if which == 'forward':
                return _compiled(self.graph, device, allow_tf32, [name for name, _, _ in self.results])
            names = [f'gradient of {self.inputs[i][0]}' for i in self.wanted]
            return _compiled(self._backward_graph(), device, allow_tf32, names)

        return self._compiled.at((which, allow_tf32), device, make)

    def check(self, tensors: Sequence[Tensor]) -> torch.device:
        if len(tensors) != len(self.inputs):
            names = ', '.join(name for name, _, _ in self.inputs)
            raise ArgumentError(f'function: {len(tensors)} tensors for the inputs {names}')
        for (name, dtype, shape), tensor in zip(self.inputs, tensors):
            if tensor.dtype == dtype and tuple(tensor.shape) == shape:
                continue
            wanted, given = (
                f'{_TEXTS.get(a, a)}[{",".join(map(str, b))}]' for a, b in ((dtype, shape), (tensor.dtype, tensor.shape))
            )
            kind = ShapeError if tensor.dtype == dtype else DtypeError
            raise kind(f"function: input '{name}' is {wanted}, not {given}")
        devices = {tensor.device for tensor in tensors}
        if len(devices) > 1:
            raise ArgumentError(f'function: tensors of {" and ".join(sorted(map(str, devices)))}; one device is needed')
        return devices.pop() if devices else torch.device('cpu')

    def forward(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        device = self.check(tensors)
        with at(device):
            return self._at('forward', device).run(tensors)

    def backward(self, tensors: Sequence[Tensor], seeds: Sequence[Tensor]) -> list[Tensor]:
        device = tensors[0].device
        with at(device):
            return self._at('backward', device).run([*tensors, *seeds])

    def place(self, places: Sequence[Place], like: Sequence[Tensor]) -> list[Tensor]:
        device = like[0].device if like else 'cpu'
        return [torch.empty(shape, dtype=dtype, device=device) for _, dtype, shape in places]


_known: weakref.WeakValueDictionary[int, _Function] = weakref.WeakValueDictionary()
_keys = itertools.count()  # none is given twice: what torch.compile made remembers it


@torch.library.custom_op('paoding::function', mutates_args=())
def _call(tensors: Sequence[Tensor], key: int) -> list[Tensor]:
    return _known[key].forward(tensors)


@_call.register_fake
def _(tensors: Sequence[Tensor], key: int) -> list[Tensor]:
    return _known[key].place(_known[key].results, tensors)


@torch.library.custom_op('paoding::function_backward', mutates_args=())
def _call_backward(tensors: Sequence[Tensor], seeds: Sequence[Tensor], key: int) -> list[Tensor]:
    return _known[key].backward(tensors, seeds)


@_call_backward.register_fake
def _(tensors: Sequence[Tensor], seeds: Sequence[Tensor], key: int) -> list[Tensor]:
    made = _known[key]
    return made.place([made.inputs[i] for i in made.wanted], tensors)


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, ctx.key = inputs
    ctx.save_for_backward(*tensors)
    ctx.function = _known[ctx.key]  # so that it is there when the gradient is asked for


def _gradient(ctx: Any, given: Sequence[Tensor | None]) -> Any:
    made: _Function = ctx.function
    tensors = ctx.saved_tensors
    device = tensors[0].device
    seeds = []
    for i in made.seeded:
        seed, (_, dtype, shape) = given[i], made.results[i]
        seeds.append(torch.zeros(shape, dtype=dtype, device=device) if seed is None else seed)
    results: list[Tensor | None] = [None] * len(made.inputs)
    for i, gradient in zip(made.wanted, _call_backward(list(tensors), seeds, ctx.key)):
        results[i] = gradient
    return results, None


_call.register_autograd(_gradient, setup_context=_keep)


def function(
    graph: _paoding.Graph, may_round: Callable[[torch.device], bool] = may_round_products
) -> Callable[..., Any]:
    """A function of the graph's inputs, in their order, that returns its results, in theirs (a tuple, or the one that
    there is). Its gradient is the graph's, which is computed with the values of the forward pass made anew. It reads and
    writes tensors where they are, on the CPU or a GPU, there in the current stream; torch.compile and CUDA graphs take it.
    Kernels are made when a device, and on a GPU a stream, first needs them; `may_round` says of a device whether products
    of f32 are rounded to TF32 there: as torch.backends.cuda.matmul has it, unless told otherwise. Errors: (argument) the graph has parameters; (unsupported) on a GPU,
    loops and branches that are decided while they run, and positions that are checked (gather)."""
    if graph.parameters:
        raise ArgumentError(f"function: the graph has the parameter '{graph.parameters[0]}'; make it an input")
    made = _Function(graph, may_round)
    key = next(_keys)
    _known[key] = made

    def call(*tensors: Tensor) -> Any:
        made.check(tensors)
        results = _call(list(tensors), key)
        return results[0] if len(results) == 1 else tuple(results)

    return call
