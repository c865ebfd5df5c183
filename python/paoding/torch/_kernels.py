# SPDX-License-Identifier: Apache-2.0
"""What was made for a layer or graph of given extents on a device, kept for the next call."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import torch

from ..errors import ArgumentError
from ._memory import current_stream, is_captured

Made = TypeVar('Made')


class _Latest(Generic[Made]):
    """At most so many, those that were used last."""

    def __init__(self, most: int) -> None:
        self.all: OrderedDict[Any, Made] = OrderedDict()
        self._most = most

    def find(self, key: Hashable) -> Made | None:
        found = self.all.get(key)
        if found is not None:
            self.all.move_to_end(key)
        return found

    def put(self, key: Hashable, made: Made) -> Made:
        made = self.all.setdefault(key, made)
        if len(self.all) > self._most:
            self.all.popitem(last=False)
        return made


class Kernels(Generic[Made]):
    """By key and device. On the CPU, where a call takes as long as its work, each thread has its own. On a GPU each
    stream has, as kernels keep some state from call to call; threads share them, since autograd runs backward passes in
    one of its own, and so calls of what is made need a lock. Graphs that are captured may take any that is there, and
    then it stays for good: nobody knows for how long they are replayed."""

    def __init__(self, most: int, most_on_cpu: int | None = None) -> None:
        self._most_on_cpu = most if most_on_cpu is None else most_on_cpu
        self._of_thread = threading.local()
        self._of_streams: _Latest[Made] = _Latest(most)
        self._captured: dict[tuple[Hashable, torch.device], Made] = {}
        self._lock = threading.Lock()
        _everything.add(self)

    def at(self, key: Hashable, device: torch.device, make: Callable[[], Made]) -> Made:
        """`device` is PyTorch's current one if it is a GPU. Error (argument) when there is none in a capture."""
        if device.type == 'cpu':
            mine: _Latest[Made] | None = self._of_thread.__dict__.get('latest')
            if mine is None:
                mine = self._of_thread.latest = _Latest(self._most_on_cpu)
            return mine.find(key) or mine.put(key, make())
        if is_captured(device):
            return self._to_capture(key, device)
        place = (key, device, current_stream(device))
        with self._lock:
            found = self._of_streams.find(place)
        if found is None:
            made = make()
            with self._lock:
                found = self._of_streams.put(place, made)
        return found

    def _to_capture(self, key: Hashable, device: torch.device) -> Made:
        with self._lock:
            found = self._captured.get((key, device))
            if found is None:
                of_key = (made for place, made in self._of_streams.all.items() if place[:2] == (key, device))
                found = next(of_key, None)
            if found is None:
                raise ArgumentError(
                    'paoding.torch: the first call with tensors of these extents makes kernels, which cannot be '
                    'captured\nhint: call it once in front of the capture, with the gradient if that is captured too'
                )
            self._captured[(key, device)] = found
            return found

    def clear(self) -> None:
        self._of_thread.__dict__.clear()
        self._of_streams.all.clear()
        self._captured.clear()


_everything: weakref.WeakSet[Kernels[Any]] = weakref.WeakSet()


@atexit.register
def _clear() -> None:
    """PyTorch holds our ops to the end, and so them, which then would be given back when their libraries are gone."""
    for each in list(_everything):
        each.clear()
