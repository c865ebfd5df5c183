# SPDX-License-Identifier: Apache-2.0
"""The program of docs/howto/own_data.md: a table that does not fit in memory, read by a thread while steps run."""

from __future__ import annotations

import pathlib
import queue
import tempfile
import threading
from collections.abc import Iterator

import numpy as np

import paoding as pd

ROWS, FEATURES, BATCH = 20_000, 16, 128

# Some data: y is a sum of some columns. In your case the files are there.
folder = pathlib.Path(tempfile.mkdtemp())
random = np.random.default_rng(1)
table = random.standard_normal((ROWS, FEATURES), np.float32)
np.save(folder / 'x.npy', table)
np.save(folder / 'y.npy', table[:, :3].sum(1))

x_file = np.load(folder / 'x.npy', mmap_mode='r')  # read where it is needed, not as a whole
y_file = np.load(folder / 'y.npy', mmap_mode='r')


def batches(seed: int, epoch: int, first: int = 0) -> Iterator[dict[str, np.ndarray]]:
    """Those of an epoch from batch `first` on; the order follows from the seed and the epoch alone."""
    order = np.random.default_rng((seed, epoch)).permutation(ROWS)
    for i in range(first, ROWS // BATCH):
        rows = np.sort(order[i * BATCH : (i + 1) * BATCH])  # in the order of the file, which reads faster
        yield {'x': x_file[rows], 'y': y_file[rows]}


def ahead(made: Iterator[dict[str, np.ndarray]], count: int = 4) -> Iterator[dict[str, np.ndarray]]:
    """The same, made by a thread while others are used; an error of it is raised here."""
    waiting: queue.Queue[object] = queue.Queue(count)

    def work() -> None:
        try:
            for each in made:
                waiting.put(each)
            waiting.put(None)
        except BaseException as error:
            waiting.put(error)

    threading.Thread(target=work, daemon=True).start()
    while (each := waiting.get()) is not None:
        if isinstance(each, BaseException):
            raise each
        assert isinstance(each, dict)
        yield each


with pd.Graph() as graph:
    x, y = graph.input('x', pd.f32, (BATCH, FEATURES)), graph.input('y', pd.f32, BATCH)
    found = pd.nn.Linear('out', 64, 1)(pd.relu(pd.nn.Linear('hidden', FEATURES, 64)(x))).reshape(BATCH)
    loss = ((found - y) ** 2).mean()
    pd.minimize(loss, pd.Adam(3e-3))
    graph.fetch('loss', loss)
step = pd.Program(graph, pd.Parameters(graph, seed=1))

for epoch in range(3):
    losses = [step.run(batch)['loss'].item() for batch in ahead(batches(7, epoch))]
    print(f'epoch {epoch + 1}: loss {np.mean(losses):.4f}')
