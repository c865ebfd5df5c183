# SPDX-License-Identifier: Apache-2.0
"""How tensors lie in memory, for kernels that read and write dense memory: axes in another order, and axes along which all
elements are one, are told to the graph, so that nothing is copied."""

from __future__ import annotations

from collections.abc import Sequence

from ... import ops
from ..._paoding import Value


class Layout:
    """Of extents and strides: `dense` are the extents of the memory behind them, from the outermost on, None where it has
    gaps."""

    def __init__(self, size: Sequence[int], stride: Sequence[int]) -> None:
        self.size, self.stride = tuple(size), tuple(stride)
        rank = len(self.size)
        self.stretched = [i for i in range(rank) if self.stride[i] == 0 and self.size[i] > 1]
        held = [1 if i in self.stretched else each for i, each in enumerate(self.size)]
        self.order = list(range(rank))
        if not self._is_dense(held):
            # Axes of one element may stand anywhere.
            self.order.sort(key=lambda i: -self.stride[i] if held[i] > 1 else 0)
        self.dense: tuple[int, ...] | None = None
        if 0 in held or self._is_dense(held):
            self.dense = tuple(held[i] for i in self.order)

    def _is_dense(self, held: Sequence[int]) -> bool:
        wanted = 1
        for i in reversed(self.order):
            if held[i] > 1 and self.stride[i] != wanted:
                return False
            wanted *= held[i]
        return True

    @property
    def held(self) -> tuple[int, ...]:
        """`dense` where it is known to be."""
        assert self.dense is not None
        return self.dense

    @property
    def is_plain(self) -> bool:
        return not self.stretched and self.order == list(range(len(self.size)))

    def read(self, value: Value) -> Value:
        """What the tensor is, of an input of extents `dense`."""
        if self.is_plain:
            return value
        back = [self.order.index(i) for i in range(len(self.order))]
        value = value.transpose(back)
        return ops.expand(value, self.size) if self.stretched else value

    def written(self, value: Value) -> Value:
        """A result of extents `dense` for a value of extents `size`."""
        if self.is_plain:
            return value
        if self.stretched:
            value = value[tuple(slice(0, 1) if i in self.stretched else slice(None) for i in range(len(self.size)))]
        return value.transpose(self.order)


def plain_stride(size: Sequence[int]) -> tuple[int, ...]:
    made, step = [], 1
    for extent in reversed(size):
        made.append(step)
        step *= max(extent, 1)
    return tuple(reversed(made))
