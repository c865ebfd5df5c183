# SPDX-License-Identifier: Apache-2.0
"""A GRU learns to add two numbers that it reads digit by digit: graph, training, checkpoint, report."""

import sys
import tempfile

import numpy as np

import paoding as pd

BATCH, DIGITS, HIDDEN = 64, 4, 32

with pd.Graph() as graph:
    digits = graph.input('digits', pd.i64, (DIGITS, BATCH, 2))  # the last digit first
    sums = graph.input('sums', pd.i64, (DIGITS, BATCH))
    xs = pd.nn.Embedding('digit', 10, 8)(digits).reshape(DIGITS, BATCH, 16)
    with graph.scope('reader'):
        states = pd.nn.GRU('gru', 16, HIDDEN)(xs).outputs
    logits = pd.nn.Linear('out', HIDDEN, 10)(states)
    loss = pd.cross_entropy(logits, sums)
    pd.minimize(loss, pd.Adam(pd.cosine_decay(0.02, steps=300)), clip_norm=1.0)
    graph.fetch('loss', loss)
    graph.fetch('right', pd.mean((pd.argmax(logits, -1) == sums).astype(pd.f32)))

parameters = pd.Parameters(graph, seed=7)
step = pd.Program(graph, parameters)
random = np.random.default_rng(1)


def batch() -> dict[str, np.ndarray]:
    numbers = random.integers(0, 10**DIGITS // 2, (BATCH, 2))
    powers = 10 ** np.arange(DIGITS)
    return {
        'digits': np.ascontiguousarray((numbers[None] // powers[:, None, None]) % 10),
        'sums': np.ascontiguousarray((numbers.sum(1)[None] // powers[:, None]) % 10),
    }


results = step.run(batch())
for _ in range(300):
    results = step.run(batch())
print(f'loss {results["loss"].item():.3f}, digits right {100 * results["right"].item():.0f}%')

with tempfile.TemporaryDirectory() as folder:
    manifest = pd.Manifest()
    manifest.model, manifest.step = 'adder', 301
    path = pd.CheckpointFolder(folder).save(manifest, parameters)
    pd.restore(parameters, pd.load_checkpoint(path).tensors)

with pd.Profiler() as profiler:
    for _ in range(5):
        step.run(batch())
print(profiler.report(nesting='scope'))
sys.exit(0 if results['right'].item() > 0.9 else 1)
