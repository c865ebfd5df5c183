# SPDX-License-Identifier: Apache-2.0
"""A graph of paoding's for tensors of given extents and layouts: compiled when it is made, run in the memory of the tensors."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from ..._paoding import Graph, PlacedGraph
from .._faults import faults_of
from .._kernels import Kernels
from .._memory import address, at, current_stream, may_round_products, may_round_recurrence, workspace
from ._layout import Layout, plain_stride

LOOP_NOTE = 'reroll_loops: '


def _new_slowly(size: tuple[int, ...], stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return torch.empty_strided(size, stride, dtype=dtype)


_address_of = torch._C.TensorBase.data_ptr
_new_on_cpu = getattr(torch._C._dynamo.guards, '_empty_strided_cpu', _new_slowly)


class _Placed:
    """A graph on a device, with what its calls on a GPU need besides. One call at a time."""

    def __init__(self, graph: Graph, device: torch.device, allow_tf32: bool, uses_graph: bool) -> None:
        reports = device.type == 'cuda'
        self.graph = PlacedGraph(graph, str(device), allow_tf32, graph.fetches, reports, reports and uses_graph)
        self.faults = faults_of(self.graph, device)
        self.bytes = self.graph.workspace_bytes
        self.run = self.graph.run
        self.lock = threading.Lock()


class Bound:
    """`inputs`: the layouts of the graph's inputs, in their order, in front of a number `seed` that every call draws anew where
    the graph has one; `results`: those of its fetches, and their dtypes. `has_layers`: it rounds to TF32 only where both of
    PyTorch's settings, of products and of recurrent layers, allow that."""

    def __init__(
        self,
        graph: Graph,
        inputs: Sequence[Layout],
        results: Sequence[tuple[Layout, torch.dtype]],
        device: torch.device,
        uses_graph: bool,
        has_seed: bool = False,
        has_layers: bool = False,
    ) -> None:
        self._graph, self._device, self._uses_graph = graph, device, uses_graph
        self.layouts = list(inputs)
        self.wanted = [layout.stride for layout in self.layouts]
        self._results = list(results)
        self.shapes = [
            (layout.held if layout.stretched else layout.size, _stride(layout), dtype)
            for layout, dtype in self._results
        ]
        self._stretched = [i for i, (layout, _) in enumerate(self._results) if layout.stretched]
        self._has_seed, self._has_layers = has_seed, has_layers
        self._is_on_cpu = self._device.type == 'cpu'
        self._aligned: list[int] = []  # the addresses of the last call, where all were as kernels read them
        self._mask = 63 if self._is_on_cpu else 255
        self._free: list[_Placed] = []
        self._on_gpu: Kernels[_Placed] = Kernels(16)
        # It is compiled now, so that an op that cannot be planned is PyTorch's and not an error of the first call.
        if self._is_on_cpu:
            first = self._placed(False)
            self._free.append(first)
        else:
            with at(self._device):
                first = self._of_stream()
        self.loops = [note.removeprefix(LOOP_NOTE) for note in first.graph.notes if note.startswith(LOOP_NOTE)]

    def _placed(self, allow_tf32: bool) -> _Placed:
        return _Placed(self._graph, self._device, allow_tf32, self._uses_graph)

    def _of_stream(self) -> _Placed:
        """On a GPU that is PyTorch's current device: what runs in its current stream, with products as they are allowed now."""
        allow_tf32 = may_round_products(self._device)
        allow_tf32 = allow_tf32 and (not self._has_layers or may_round_recurrence(self._device))
        return self._on_gpu.at(allow_tf32, self._device, lambda: self._placed(allow_tf32))

    def check_layouts(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors as the graph reads them: those that lie otherwise than the example did are copied."""
        made = list(tensors)
        for i, (tensor, layout) in enumerate(zip(tensors, self.layouts)):
            if tensor.stride() != layout.stride and Layout(tensor.shape, tensor.stride()).__dict__ != layout.__dict__:
                laid = torch.empty_strided(layout.size, plain_stride(layout.size), dtype=tensor.dtype, device=self._device)
                if not layout.is_plain:
                    laid = _like(layout, tensor.dtype, self._device)
                made[i] = laid.copy_(tensor)
        return made

    def run(self, tensors: list[Tensor]) -> list[Tensor]:
        addresses = [*map(_address_of, tensors)]
        if addresses != self._aligned:  # those of hundreds of weights seldom change, and comparing takes less than a look
            self._aligned = [] if self._align(tensors, addresses) else addresses[:]
        if self._has_seed:
            seed = torch.empty((), dtype=torch.int64, device=self._device).random_(0, 1 << 48)
            addresses.append(seed.data_ptr())
            tensors.append(seed)  # kept until the call is made
        results = self._run_on_cpu(addresses) if self._is_on_cpu else self._run_on_gpu(addresses)
        for i in self._stretched:
            layout = self._results[i][0]
            results[i] = results[i].as_strided(layout.size, layout.stride)
        return results

    def _align(self, tensors: list[Tensor], addresses: list[int]) -> bool:
        """Copies those that begin where kernels cannot read them. Whether there were some."""
        mask, any_was = self._mask, False
        for i, each in enumerate(addresses):
            if each & mask:
                layout, any_was = self.layouts[i], True
                tensors[i] = tensors[i].as_strided(layout.held, plain_stride(layout.held)).clone()
                addresses[i] = tensors[i].data_ptr()
        return any_was

    def _run_on_cpu(self, addresses: list[int]) -> list[Tensor]:
        results = [_new_on_cpu(size, stride, dtype) for size, stride, dtype in self.shapes]
        places = [each.data_ptr() for each in results]
        try:
            placed = self._free.pop()  # threads that are there at the same time have one each
        except IndexError:
            placed = self._placed(False)
        room = workspace(placed.bytes, self._device)  # a large one is nobody else's: it is held until the call returns
        try:
            placed.run(addresses, places, room.data_ptr())
        finally:
            self._free.append(placed)
        return results

    def _run_on_gpu(self, addresses: list[int]) -> list[Tensor]:
        device = self._device
        with at(device):
            placed = self._of_stream()
            if placed.faults is not None:
                placed.faults.raise_ended()
            results = [
                torch.empty_strided(size, stride, dtype=dtype, device=device) for size, stride, dtype in self.shapes
            ]
            room = workspace(placed.bytes, device)
            with placed.lock:
                placed.run(addresses, [address(each) for each in results], address(room), current_stream(device))
                if placed.faults is not None:
                    placed.faults.follow(room)
        return results


def _stride(layout: Layout) -> tuple[int, ...]:
    return plain_stride(layout.held) if layout.stretched else layout.stride


def _like(layout: Layout, dtype: torch.dtype, device: torch.device) -> Tensor:
    made = torch.empty(layout.held, dtype=dtype, device=device)
    return made.permute([layout.order.index(i) for i in range(len(layout.order))])
