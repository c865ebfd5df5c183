# SPDX-License-Identifier: Apache-2.0
"""Which examples make a batch, in which order, and a thread that makes batches ahead."""

from __future__ import annotations

import queue
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .._paoding import ProfileRange, batches_in_order, shuffled_batches
from ..errors import ArgumentError
from ._padding import stacked


class DataLoader:
    """Batches of `examples`; a `for` over it is an epoch, and the next one another.

    examples: an array, or a dict or tuple of arrays with one first extent, of which a batch has rows; or anything with
    len() and [i] (a list, a data set of PyTorch's), of which `collate(examples)` makes a batch (pd.data.stacked without).
    shuffle: by `seed` and the number of the epoch alone, so that an epoch can be gone on with at any batch, anywhere.
    buckets: ascending bounds of `lengths` (an integer for each example, or a function of one): only examples whose length
    has the same bound, the least that is not below it, share a batch, and it is collate(examples, bound) then. One batch
    of each bucket may be smaller, the last, or where batches are shuffled any; `drop_last` leaves it out. prefetch: so
    many batches are made ahead by a thread, none with 0; its errors are raised by the `for`.

    `epoch` and `batch` say which one comes next; resume(epoch, batch) goes on there, as after a checkpoint.

    >>> import numpy as np
    >>> loader = pd.data.DataLoader({'x': np.arange(5), 'y': np.arange(5) ** 2}, 2)
    >>> [batch['y'].tolist() for batch in loader], len(loader), loader.epoch
    ([[0, 1], [4, 9], [16]], 3, 1)
    >>> words = [[1, 2, 3], [4], [5, 6], [7]]
    >>> loader = pd.data.DataLoader(words, 2, lengths=len, buckets=[2, 4], collate=pd.data.padded)
    >>> [(array.tolist(), lengths.tolist()) for array, lengths in loader]
    [([[1, 2, 3, 0]], [3]), ([[4, 0], [5, 6]], [1, 2]), ([[7, 0]], [1])]
    """

    def __init__(
        self,
        examples: Any,
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
        lengths: Sequence[int] | Callable[[Any], int] | None = None,
        buckets: Sequence[int] | None = None,
        drop_last: bool = False,
        collate: Callable[..., Any] | None = None,
        prefetch: int = 2,
    ) -> None:
        if batch_size < 1 or prefetch < 0:
            raise ArgumentError(f'DataLoader: batch_size is {batch_size}, prefetch {prefetch}; needed are at least 1 and 0')
        self._columns = _columns_of(examples)
        self._examples = examples
        self._count = len(examples) if self._columns is None else _rows(self._columns)
        if self._columns is not None and collate is not None and lengths is None and not hasattr(examples, '__array__'):
            raise ArgumentError('DataLoader: collate is of examples, and columns of arrays need none')
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.drop_last = drop_last
        self.epoch = self.batch = 0
        self._collate = collate
        self._prefetch = prefetch
        self._bounds = None if buckets is None else [int(each) for each in buckets]
        self._buckets = self._bucket_numbers(lengths)

    def _bucket_numbers(self, lengths: Any) -> list[int]:
        if self._bounds is None:
            return [0] * self._count
        if lengths is None or not self._bounds or sorted(self._bounds) != self._bounds:
            raise ArgumentError('DataLoader: buckets are ascending bounds of lengths=')
        sizes = [int(lengths(self._example(i))) for i in range(self._count)] if callable(lengths) else list(lengths)
        if len(sizes) != self._count:
            raise ArgumentError(f'DataLoader: there are {len(sizes)} lengths for {self._count} examples')
        numbers = [bisect_left(self._bounds, size) for size in sizes]
        for i, number in enumerate(numbers):
            if number == len(self._bounds):
                raise ArgumentError(f'DataLoader: example {i} has the length {sizes[i]}, more than the last bound, {self._bounds[-1]}')
        return numbers

    def _example(self, i: int) -> Any:
        if self._columns is None:
            return self._examples[i]
        return _of_columns(self._examples, [column[i] for column in self._columns])

    def batches(self, epoch: int) -> list[list[int]]:
        """The numbers of the examples of each batch of an epoch."""
        if self.shuffle:
            made = shuffled_batches(self._buckets, self.batch_size, self.seed, epoch)
        else:
            made = batches_in_order(self._buckets, self.batch_size)
        return [list(each) for each in made if not self.drop_last or len(each) == self.batch_size]

    def __len__(self) -> int:
        return len(self.batches(0))

    def resume(self, epoch: int, batch: int = 0) -> None:
        """The next batch is this one: of an epoch that is over, the first of the next. ArgumentError when there is none."""
        most = len(self)
        if epoch < 0 or not 0 <= batch <= most:
            raise ArgumentError(f'DataLoader: there is no batch {batch} of {most} in epoch {epoch}')
        self.epoch, self.batch = (epoch + 1, 0) if batch == most and most > 0 else (epoch, batch)

    def __iter__(self) -> Iterator[Any]:
        epoch, batches = self.epoch, self.batches(self.epoch)
        rest = batches[self.batch :]
        with _Ahead(self._made, rest, self._prefetch) as ahead:
            for i, batch in enumerate(ahead, len(batches) - len(rest) + 1):
                self.epoch, self.batch = (epoch, i) if i < len(batches) else (epoch + 1, 0)
                yield batch
        if not batches:
            self.epoch += 1

    def _made(self, numbers: list[int]) -> Any:
        with ProfileRange('make a batch', examples=len(numbers)):
            bound = () if self._bounds is None else (self._bounds[self._buckets[numbers[0]]],)
            if self._columns is not None and self._collate is None:
                return _of_columns(self._examples, [column[numbers] for column in self._columns])
            examples = [self._example(i) for i in numbers]
            return stacked(examples) if self._collate is None else self._collate(examples, *bound)


def _columns_of(examples: Any) -> list[Any] | None:
    """Arrays of which examples are rows; None where examples are things of their own."""
    import numpy

    if isinstance(examples, dict):
        given = list(examples.values())
    elif isinstance(examples, tuple):
        given = list(examples)
    elif hasattr(examples, '__array__') and hasattr(examples, 'shape'):
        given = [examples]
    else:
        return None
    columns = [numpy.asarray(each) for each in given]
    if not columns or any(each.ndim == 0 for each in columns) or len({len(each) for each in columns}) > 1:
        raise ArgumentError(f'DataLoader: columns have the shapes {[each.shape for each in columns]}, needed is one first extent')
    return columns


def _rows(columns: list[Any]) -> int:
    return len(columns[0])


def _of_columns(like: Any, parts: list[Any]) -> Any:
    if isinstance(like, dict):
        return dict(zip(like, parts, strict=True))
    return tuple(parts) if isinstance(like, tuple) else parts[0]


class _Ahead:
    """What `make` gives for each of `keys`, in order, some of it ahead by a thread."""

    def __init__(self, make: Callable[[Any], Any], keys: Sequence[Any], depth: int) -> None:
        self._make = make
        self._keys = keys
        self._is_stopped = threading.Event()
        self._ready: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(max(depth, 1))
        self._thread = threading.Thread(target=self._work, daemon=True) if depth > 0 else None

    def __enter__(self) -> _Ahead:
        if self._thread is not None:
            self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join()

    def __iter__(self) -> Iterator[Any]:
        for key in self._keys:
            if self._thread is None:
                yield self._make(key)
                continue
            item, error = self._ready.get()
            if error is not None:
                raise error
            yield item

    def _work(self) -> None:
        for key in self._keys:
            item: Any = None
            error: BaseException | None = None
            try:
                item = self._make(key)
            except BaseException as raised:  # of the caller's function: it is raised where the batch is wanted
                error = raised
            while not self._is_stopped.is_set():
                try:
                    self._ready.put((item, error), timeout=0.05)
                    break
                except queue.Full:
                    continue
            if error is not None or self._is_stopped.is_set():
                return
