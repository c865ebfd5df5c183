# SPDX-License-Identifier: Apache-2.0
"""Faults of runs on a GPU: positions that are outside. A run cannot raise them, since nobody waits for it; it leaves them
in words of its workspace, which a copy brings to the host. They are raised at a later call, or by synchronize()."""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

from .. import _paoding
from ._memory import address, at, current_stream, is_captured

_everything: weakref.WeakSet[Faults] = weakref.WeakSet()


class Faults:
    """Of one graph, whose runs come one after the other."""

    def __init__(self, graph: _paoding.PlacedGraph, device: torch.device) -> None:
        self._graph = graph
        self.device = device
        self._first, self._bytes = graph.fault_words
        # In the memory of the device the first fault of each launch in graphs that were captured: a graph runs whenever
        # somebody replays it.
        with unset_fake_temporarily():  # torch.compile binds graphs while tensors without memory stand for real ones
            self._of_replays = torch.full((self._bytes // 8,), -1, dtype=torch.int64, device=device)
        self._is_captured = False
        _everything.add(self)

    def follow(self, workspace: Tensor) -> None:
        """Called after a run in this workspace, in its stream."""
        if not is_captured(self.device):
            self._graph.follow_faults(address(workspace), current_stream(self.device))
            return
        self._is_captured = True
        words = workspace[self._first : self._first + self._bytes].view(torch.int64)
        kept, new = self._of_replays.view(-1, 2), words.view(-1, 2)
        is_free = (kept == -1).all(dim=1, keepdim=True)
        kept.copy_(torch.where(is_free, new, kept))

    def raise_ended(self) -> None:
        """Raises the fault of a run that has ended; does not wait."""
        if not is_captured(self.device):
            self._graph.raise_faults()

    def raise_all(self) -> None:
        """The same when all work of the device is done."""
        self._graph.raise_faults(waits=True)
        if self._is_captured:
            words = self._of_replays.to('cpu', copy=True)
            self._of_replays.fill_(-1)
            self._graph.check(address(words))


def faults_of(graph: _paoding.PlacedGraph, device: torch.device) -> Faults | None:
    return Faults(graph, device) if device.type == 'cuda' and graph.fault_words[1] > 0 else None


def synchronize(device: torch.device | str | int | None = None) -> None:
    """torch.cuda.synchronize(), after which functions' faults on the device (None: the current one) are raised:
    ArgumentError with the op and its scope where a position was outside. Each is raised once, here or by a later call of
    the function; those of captured graphs are raised here."""
    if not torch.cuda.is_available():
        return
    torch.cuda.synchronize(device)
    current = torch.cuda.current_device()
    wanted = torch.device('cuda', current) if device is None else torch.device(device)
    index = current if wanted.index is None else wanted.index
    for faults in list(_everything):
        if faults.device.index == index:
            with at(faults.device):
                faults.raise_all()
