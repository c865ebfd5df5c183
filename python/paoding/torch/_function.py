# SPDX-License-Identifier: Apache-2.0
"""A paoding graph as a function of PyTorch tensors: in their memory and, on a GPU, in PyTorch's current stream."""

from __future__ import annotations

import hashlib
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
from ._faults import faults_of
from ._kernels import Kernels
from ._memory import address, at, current_stream, dense, may_round_products, may_round_recurrence, workspace
from ._ways import refuse_tangents, way_of

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
MayRound = Callable[[torch.device], bool]


class _Placed:
    """A graph that runs where the tensors are."""

    def __init__(
        self, graph: _paoding.Graph, device: torch.device, allow_tf32: bool, fetches: list[str], uses_graph: bool
    ) -> None:
        self._device = device
        self._lock = threading.Lock()  # threads share those of GPUs
        reports_faults = device.type == 'cuda'
        self._graph = _paoding.PlacedGraph(graph, str(device), allow_tf32, fetches, reports_faults, uses_graph)
        self._faults = faults_of(self._graph, device)
        self._results = [(_DTYPES[dtype], shape) for _, dtype, shape in self._graph.results]

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self._faults is not None:
            self._faults.raise_ended()
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
            if self._faults is not None:
                self._faults.follow(room)
        return results


class _Fed:
    """A graph that prints, on the CPU: a program."""

    def __init__(self, graph: _paoding.Graph, fetches: list[str]) -> None:
        self._program = _paoding.Program(graph, fetches=fetches)
        self._names = graph.inputs

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        feeds = {name: tensor.detach().contiguous() for name, tensor in zip(self._names, tensors)}
        results = self._program.run({name: feeds[name] for name in self._program.input_names})
        return [torch.utils.dlpack.from_dlpack(results[name]) for name in self._program.fetch_names]


def _compiled(
    graph: _paoding.Graph, device: torch.device, allow_tf32: bool, fetches: list[str], uses_graph: bool
) -> _Placed | _Fed:
    try:
        return _Placed(graph, device, allow_tf32, fetches, uses_graph)
    except UnsupportedError:
        if device.type != 'cpu':
            raise
        return _Fed(graph, fetches)


def _new_name(name: str, graph: _paoding.Graph) -> str:
    """A derivative's derivative has the inputs and results of both."""
    taken = {*graph.inputs, *graph.fetches}
    while name in taken:
        name += "'"
    return name


class _Function:
    """Of a graph's inputs its results of these names; with the functions that its derivatives are, made when they are
    first asked for. `may_round` says of a device whether products of f32 may be rounded to TF32 there."""

    def __init__(
        self, graph: _paoding.Graph, names: Sequence[str], may_round: MayRound, uses_graph: bool, key: str
    ) -> None:
        self.key = key
        self._uses_graph = uses_graph
        self._graph = graph
        self._may_round = may_round
        self.inputs: list[Place] = []
        for name in graph.inputs:
            value = graph.find(name)
            assert value is not None
            self.inputs.append((name, _DTYPES[value.dtype], value.shape))
        self.results: list[Place] = []
        for name in names:
            value = graph.fetched(name)
            assert value is not None
            self.results.append((name, _DTYPES[value.dtype], value.shape))
        self.wanted = [i for i, place in enumerate(self.inputs) if place[1].is_floating_point]
        self.seeded = [i for i, place in enumerate(self.results) if place[1].is_floating_point]
        self._names = list(names)
        self._compiled: Kernels[_Placed | _Fed] = Kernels(_MOST_COMPILED)
        self._backward: _Function | None = None
        self._tangents: _Function | None = None

    def backward(self) -> _Function:
        """Of the inputs and of seeds for the results that have a gradient: the gradients of the inputs that have one."""
        if self._backward is None:
            made, inputs, results = self._again()
            seeds = [
                made.input(_new_name(f'seed of {self.results[i][0]}', made), result.dtype, result.shape)
                for i, result in zip(self.seeded, results)
            ]
            found = gradients(results, inputs, seeds)
            self._backward = self._derived(made, 'gradient of ', [self.inputs[i] for i in self.wanted], found)
        return self._backward

    def tangents(self) -> _Function:
        """Of the inputs and of tangents for those that have a gradient: the tangents of the results that have one. The
        gradients are linear in their seeds, and what is put in front of each seed is the tangent."""
        if self._tangents is None:
            made, inputs, results = self._again()
            with made:
                seeds = [_paoding.zeros(result.shape, result.dtype) for result in results]
            found = gradients(results, inputs, seeds)
            tangents = [
                made.input(_new_name(f'tangent of {self.inputs[i][0]}', made), value.dtype, value.shape)
                for i, value in zip(self.wanted, inputs)
            ]
            found = gradients(found, seeds, tangents)
            self._tangents = self._derived(made, 'tangent of ', [self.results[i] for i in self.seeded], found)
        return self._tangents

    def _again(self) -> tuple[_paoding.Graph, list[_paoding.Value], list[_paoding.Value]]:
        """The graph anew, with those of its inputs and results that have a gradient."""
        made = self._graph.clone()
        inputs = [made.find(self.inputs[i][0]) for i in self.wanted]
        results = [made.fetched(self.results[i][0]) for i in self.seeded]
        return made, [each for each in inputs if each is not None], [each for each in results if each is not None]

    def _derived(
        self, made: _paoding.Graph, what: str, of: Sequence[Place], values: Sequence[_paoding.Value]
    ) -> _Function:
        names = []
        for (name, _, _), value in zip(of, values):
            names.append(_new_name(what + name, made))
            made.fetch(names[-1], value)
        return _function_of(made, names, self._may_round, self._uses_graph)

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

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        device = self.check(tensors)
        allow_tf32 = self._may_round(device)
        with at(device):
            made = self._compiled.at(
                allow_tf32, device, lambda: _compiled(self._graph, device, allow_tf32, self._names, self._uses_graph)
            )
            return made.run(tensors)

    def empty(self, device: torch.device) -> list[Tensor]:
        return [torch.empty(shape, dtype=dtype, device=device) for _, dtype, shape in self.results]


_known: weakref.WeakValueDictionary[str, _Function] = weakref.WeakValueDictionary()
_own_rules = itertools.count()


def _function_of(graph: _paoding.Graph, names: Sequence[str], may_round: MayRound, uses_graph: bool) -> _Function:
    """What torch.compile and torch.export write down of a function is its key: it says what the function computes, so that
    in another process it never stands for another one."""
    own = may_round not in (may_round_products, may_round_recurrence)
    rule = next(_own_rules) if own else may_round.__name__
    text = repr((str(graph), list(names), rule, *(['graph'] if uses_graph else [])))
    key = hashlib.sha256(text.encode()).hexdigest()
    return _known.get(key) or _known.setdefault(key, _Function(graph, names, may_round, uses_graph, key))


def _of_key(key: str) -> _Function:
    found = _known.get(key)
    if found is None:
        raise ArgumentError(
            'paoding::function: the graph of this call is not there\nhint: what torch.compile or torch.export made of a '
            'function needs it: call paoding.torch.function with the same graph, and keep what it gives'
        )
    return found


@torch.library.custom_op('paoding::function', mutates_args=())
def _call(tensors: Sequence[Tensor], key: str) -> list[Tensor]:
    refuse_tangents('paoding::function', tensors)
    return _of_key(key).run(tensors)


@_call.register_fake
def _(tensors: Sequence[Tensor], key: str) -> list[Tensor]:
    return _of_key(key).empty(tensors[0].device if tensors else torch.device('cpu'))


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    tensors, key = inputs
    ctx.save_for_backward(*tensors)
    ctx.made = _of_key(key)  # so that it is there when the gradient is asked for


def _gradient(ctx: Any, given: Sequence[Tensor | None]) -> Any:
    return _pass_back(ctx.made, ctx.saved_tensors, given), None


_call.register_autograd(_gradient, setup_context=_keep)


def _pass_back(made: _Function, tensors: Sequence[Tensor], given: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The gradients of all inputs, None of those that have none."""
    device = tensors[0].device
    seeds = []
    for i in made.seeded:
        seed, (_, dtype, shape) = given[i], made.results[i]
        seeds.append(torch.zeros(shape, dtype=dtype, device=device) if seed is None else seed)
    results: list[Tensor | None] = [None] * len(made.inputs)
    for i, gradient in zip(made.wanted, _called(made.backward(), [*tensors, *seeds])):
        results[i] = gradient
    return results


class _Direct(torch.autograd.Function):
    """A function's call where nobody writes it down. Its gradients are calls again, and so have gradients."""

    @staticmethod
    def forward(ctx: Any, made: _Function, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.made = made
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return tuple(made.run(tensors))

    @staticmethod
    def backward(ctx: Any, *given: Tensor | None) -> Any:
        return None, *_pass_back(ctx.made, ctx.saved_tensors, given)


class _Transformed(torch.autograd.Function):
    """The same where there are tangents, or transforms of torch.func's: a call costs more."""

    @staticmethod
    def forward(made: _Function, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(made.run(tensors))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.made, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    backward = _Direct.backward

    @staticmethod
    def jvp(ctx: Any, _: None, *given: Tensor | None) -> Any:
        made: _Function = ctx.made
        tensors = ctx.saved_tensors
        tangents = []
        for i in made.wanted:
            tangent = given[i]
            tangents.append(torch.zeros_like(tensors[i]) if tangent is None else tangent)
        results: list[Tensor | None] = [None] * len(made.results)
        for i, tangent in zip(made.seeded, _called(made.tangents(), [*tensors, *tangents])):
            results[i] = tangent
        return tuple(results)

    @staticmethod
    def vmap(info: Any, in_dims: Any, made: _Function, *tensors: Tensor) -> Any:
        """A graph's extents are fixed, and so every element has a call of its own."""
        count = len(made.results)
        if info.batch_size == 0:
            empty = made.empty(tensors[0].device)
            return tuple(each.new_empty((0, *each.shape)) for each in empty), (0,) * count
        rows = [
            [tensor if axis is None else tensor.select(axis, i) for tensor, axis in zip(tensors, in_dims[1:])]
            for i in range(info.batch_size)
        ]
        results = zip(*(_called(made, row) for row in rows))
        return tuple(torch.stack(each) for each in results), (0,) * count


def _called(made: _Function, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    way = way_of(tensors)
    results: Sequence[Tensor]
    if way == 'steps':
        results = _transformed_call(made, tensors)
    elif way == 'kernels' and not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
        results = made.run(tensors)
    elif way == 'kernels':
        results = _Direct.apply(made, *tensors)  # type: ignore[no-untyped-call]
    else:
        if way == 'op':  # while torch.jit traces, extents are tensors
            made.check(tensors)
        results = _call(list(tensors), made.key)
    return results


def _by_transformed(made: _Function, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
    results: tuple[Tensor, ...] = _Transformed.apply(made, *tensors)  # type: ignore[no-untyped-call]
    return results


# torch.compile knows no forward mode of an autograd.Function, and so this is no part of what it makes.
_transformed_call = torch.compiler.disable(_by_transformed)


def function(
    graph: _paoding.Graph, may_round: MayRound = may_round_products, uses_graph: bool = True
) -> Callable[..., Any]:
    """A function of the graph's inputs, in their order, that returns its results, in theirs (a tuple, or the one that
    there is). Its gradient is the graph's, which is computed with the values of the forward pass made anew, and has
    gradients itself; in forward mode its derivative is a graph too, and torch.func.vmap calls it for each element. It reads
    and writes tensors where they are, on the CPU or a GPU, there in the current stream; torch.compile and CUDA graphs take
    it. Kernels are made when a device, and on a GPU a stream, first needs them; `may_round` says of a device whether
    products of f32 are rounded to TF32 there: as torch.backends.cuda.matmul has it, unless told otherwise. `uses_graph`: on a
    GPU a call whose tensors and workspace lie where those of an earlier call lay is one launch of a CUDA graph, which takes
    the caller half the time and less (benchmarks/placed_graphs.py); off, each kernel is launched by itself. Errors: (argument) the graph has parameters; (unsupported) on a GPU, prints and ops that are
    to run on the CPU. A position that is outside (gather) is an ArgumentError: on the CPU of the call, on a GPU, where nobody
    waits, of a later call or of paoding.torch.synchronize()."""
    if graph.parameters:
        raise ArgumentError(f"function: the graph has the parameter '{graph.parameters[0]}'; make it an input")
    made = _function_of(graph.clone(), graph.fetches, may_round, uses_graph)

    def call(*tensors: Tensor) -> Any:
        results = _called(made, tensors)
        return results[0] if len(results) == 1 else tuple(results)

    return call
