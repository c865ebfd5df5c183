# SPDX-License-Identifier: Apache-2.0
"""Programs of one model that share a store of parameters and a memory: by the sizes of extents, or by any key."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeAlias, Union

from .._paoding import Extents, Graph, Parameters, Program
from .._types import ExtentLike
from ..errors import ArgumentError

ExtentsLike: TypeAlias = Union[Extents, Mapping[str, ExtentLike]]


class Kept:
    """Programs by key: those that were asked for last, with one store and one memory."""

    def __init__(self, parameters: Parameters | None, seed: int, keep_at_most: int, options: Mapping[str, Any]) -> None:
        if keep_at_most < 1:
            raise ArgumentError(f'Programs: keeps at most {keep_at_most}, needed is at least 1')
        self.keep_at_most = keep_at_most
        self.parameters = parameters
        self.made = 0
        self._seed = seed
        self._options = dict(options)
        self._kept: OrderedDict[Hashable, tuple[Program, int]] = OrderedDict()  # with the bytes of its arena
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy, which makes its programs anew."""
        return {name: value for name, value in self.__dict__.items() if name not in ('_kept', '_lock')}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _kept=OrderedDict(), _lock=threading.RLock())

    def __len__(self) -> int:
        return len(self._kept)

    def at(self, key: Hashable, graph_of: Callable[[], Graph]) -> Program:
        """The program of the key: compiled at the first call, bound where the key is new, else found."""
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
                return found[0]
            program = self._make(graph_of())
            self._kept[key] = program, int(program.report['arena_bytes'])
            self.made += 1
            while len(self._kept) > self.keep_at_most:
                self._kept.popitem(last=False)
            return program

    def store_for(self, graph: Graph) -> Parameters:
        """The store, made of this graph where there is none yet."""
        if self.parameters is None:
            device = self._options.get('device')
            self.parameters = Parameters(graph, device=device or 'cpu', seed=self._seed)
        return self.parameters

    def _make(self, graph: Graph) -> Program:
        store = self.store_for(graph)
        # Programs add the states of random numbers themselves.
        missing = [name for name in graph.parameters if name not in store and not name.startswith('random/')]
        if missing:
            raise ArgumentError(
                f"the store has no '{missing[0]}', which this graph has ({len(missing)} parameters are missing)\n"
                'hint: a store is made of the first graph: begin with the one that trains, or give '
                'parameters=pd.Parameters([graph, other])'
            )
        if not self._kept:
            return Program(graph, store, **self._options)
        largest, _ = max(self._kept.values(), key=lambda each: each[1])
        return largest.bind(graph)


class Programs:
    """The programs of one model, one per bucket of its extents, with one store of parameters and one memory.

    `build(**sizes)` gives the graph for a bucket. Of the programs `keep_at_most` stay, those that were asked for last.
    `options` are those of Program. Without `parameters` they are made of the first graph, with `seed`. Threads may call
    at() at once; one thread at a time runs a program of it.

    >>> import numpy as np
    >>> def double(rows):
    ...     with pd.Graph() as graph:
    ...         graph.fetch('y', graph.input('x', 'f32', (rows, 2)) * 2)
    ...     return graph
    >>> programs = pd.Programs({'rows': (1, 100, pd.multiples_of(8))}, double)
    >>> programs.bucket_of(rows=5)
    {'rows': 8}
    >>> programs.at(rows=5)(x=np.ones((8, 2), np.float32))['y'].shape
    (8, 2)
    >>> programs.at(rows=300)
    Traceback (most recent call last):
        ...
    paoding.errors.ShapeError: rows is 300; this class holds 1 to 100
    """

    def __init__(
        self,
        extents: ExtentsLike,
        build: Callable[..., Graph],
        parameters: Parameters | None = None,
        *,
        seed: int = 0,
        keep_at_most: int = 256,
        **options: Any,
    ) -> None:
        self.extents = extents if isinstance(extents, Extents) else Extents(extents)
        self._build = build
        self._kept = Kept(parameters, seed, keep_at_most, options)

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def keep_at_most(self) -> int:
        return self._kept.keep_at_most

    @property
    def made(self) -> int:
        """The programs that were made in all, those that were dropped among them."""
        return self._kept.made

    @property
    def parameters(self) -> Parameters | None:
        """None before the first program, where none were given."""
        return self._kept.parameters

    def bucket_of(self, **sizes: int) -> dict[str, int]:
        """The sizes of the graph that runs these, to pad feeds to. ShapeError, ArgumentError: as Extents.bucket_of."""
        return self.extents.bucket_of(**sizes)

    def at(self, **sizes: int) -> Program:
        """The program of the sizes' bucket: compiled at the first call, bound where the bucket is new, else found."""
        bucket = self.bucket_of(**sizes)
        return self._kept.at(tuple(bucket.values()), lambda: self._graph(bucket))

    def _graph(self, bucket: dict[str, int]) -> Graph:
        graph = self._build(**bucket)
        if not isinstance(graph, Graph):
            sizes = ', '.join(f'{name}={size}' for name, size in bucket.items())
            raise ArgumentError(f'Programs: the function gave {type(graph).__name__} for {sizes}, needed is a Graph')
        return graph
