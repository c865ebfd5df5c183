# SPDX-License-Identifier: Apache-2.0
"""Faults of runs on a GPU: positions that are outside. A run cannot raise them, since nobody waits for it; it leaves them
in words of its workspace, which a copy brings to the host. They are raised at a later call, or by synchronize()."""

from __future__ import annotations

import threading
import weakref
from collections import deque

import torch
from torch import Tensor

from .. import _paoding
from ._memory import address, at, is_captured

_everything: weakref.WeakSet[Faults] = weakref.WeakSet()


def _of_host(shape: torch.Size) -> Tensor:
    """Memory that a copy fills while nobody waits for it."""
    return torch.empty(shape, dtype=torch.int64, device='cpu', pin_memory=True)


class Faults:
    """Of one graph, whose runs come one after the other."""

    def __init__(self, graph: _paoding.PlacedGraph, device: torch.device) -> None:
        self._graph = graph
        self.device = device
        self._first, self._bytes = graph.fault_words
        self._under_way: deque[tuple[Tensor, torch.cuda.Event]] = deque()
        self._lock = threading.Lock()
        # In the memory of the device the first fault of each launch in graphs that were captured: a graph runs whenever
        # somebody replays it.
        self._of_replays = torch.full((self._bytes // 8,), -1, dtype=torch.int64, device=device)
        self._is_captured = False
        _everything.add(self)

    def follow(self, workspace: Tensor) -> None:
        """Called after a run in this workspace, in its stream."""
        words = workspace[self._first : self._first + self._bytes].view(torch.int64)
        if is_captured(self.device):
            self._is_captured = True
            kept, new = self._of_replays.view(-1, 2), words.view(-1, 2)
            is_free = (kept == -1).all(dim=1, keepdim=True)
            kept.copy_(torch.where(is_free, new, kept))
            return
        host = _of_host(words.shape)
        host.copy_(words, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
        with self._lock:
            self._under_way.append((host, event))

    def raise_ended(self) -> None:
        """Raises the fault of a run that has ended; does not wait."""
        if self._under_way and not is_captured(self.device):
            self._raise(only_ended=True)

    def raise_all(self) -> None:
        """The same when all work of the device is done."""
        self._raise(only_ended=False)
        if self._is_captured:
            words = self._of_replays.to('cpu', copy=True)
            self._of_replays.fill_(-1)
            self._graph.check(address(words))

    @staticmethod
    def _has_ended(event: torch.cuda.Event) -> bool:
        return bool(event.query())

    def _raise(self, only_ended: bool) -> None:
        while True:
            with self._lock:
                if not self._under_way or (only_ended and not self._has_ended(self._under_way[0][1])):
                    return
                host, _ = self._under_way.popleft()
            self._graph.check(address(host))


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
