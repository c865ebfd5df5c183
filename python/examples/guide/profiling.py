# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python/5_profiling.md: twenty steps of a training, seen by the profiler."""

from __future__ import annotations

import pathlib
import tempfile

import numpy as np

import paoding as pd

BATCH, STEPS, INPUTS, HIDDEN = 32, 40, 64, 128

with pd.Graph() as graph:
    xs = graph.input('xs', pd.f32, (STEPS, BATCH, INPUTS))
    labels = graph.input('labels', pd.i64, BATCH)
    with graph.scope('encoder'):
        state = pd.nn.LSTM('lstm', INPUTS, HIDDEN)(xs).last_h[0]
    with graph.scope('head'):
        logits = pd.nn.Linear('out', 256, 10)(pd.relu(pd.nn.Linear('hidden', HIDDEN, 256)(state)))
    loss = pd.cross_entropy(logits, labels)
    pd.minimize(loss, pd.Adam(1e-3))
    graph.fetch('loss', loss)

program = pd.Program(graph, pd.Parameters(graph, seed=1))
random = np.random.default_rng(1)


def read_a_batch() -> dict[str, np.ndarray]:
    with pd.ProfileRange('read a batch'):
        xs = random.standard_normal((STEPS, BATCH, INPUTS), np.float32)
        return {'xs': xs, 'labels': random.integers(0, 10, BATCH)}


for _ in range(5):  # caches are cold
    program.run(read_a_batch())
with pd.Profiler() as profiler:
    for _ in range(20):
        program.run(read_a_batch())

print(profiler.report())
print(profiler.report(nesting='scope'))
page = pathlib.Path(tempfile.mkdtemp()) / 'report.html'
page.write_text(profiler.html())
