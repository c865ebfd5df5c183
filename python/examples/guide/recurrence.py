# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/guide/python/2_recurrence.md: a loop, a cell of one's own, layers, a loop that writes, and functions
of every length."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import paoding as pd

BATCH, STEPS, HIDDEN = 64, 16, 32


def a_loop() -> None:
    with pd.Graph() as graph:
        xs = graph.input('xs', pd.f32, 5)

        def smooth(mean: pd.Value, x: pd.Value) -> tuple[pd.Value, pd.Value]:
            mean = 0.5 * mean + 0.5 * x
            return mean, mean

        last, means = pd.scan(smooth, 0.0, xs)
        graph.fetch('means', means)
        graph.fetch('dlast', pd.gradients(last, xs))

    results = pd.Program(graph)(xs=[8.0, 0.0, 4.0, 0.0, 0.0])
    print(results['means'])
    print(results['dlast'])


class GatedUnit:
    """A minimal gated unit."""

    def __init__(self, inputs: int, hidden: int) -> None:
        self.forget = pd.nn.Linear('forget', inputs + hidden, hidden)
        self.candidate = pd.nn.Linear('candidate', inputs + hidden, hidden)

    def __call__(self, x: pd.Value, h: pd.Value) -> pd.Value:
        f = pd.sigmoid(self.forget(pd.concat([x, h], axis=1)))
        n = pd.tanh(self.candidate(pd.concat([x, f * h], axis=1)))
        return pd.lerp(h, n, f)


def bits_and_counts(random: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    bits = random.integers(0, 2, (STEPS, BATCH, 1))
    return bits.astype(np.float32), bits[:, :, 0].cumsum(0) % 3


def a_cell_of_your_own() -> None:
    with pd.Graph() as graph:
        bits = graph.input('bits', pd.f32, (STEPS, BATCH, 1))
        counts = graph.input('counts', pd.i64, (STEPS, BATCH))
        unit = GatedUnit(1, HIDDEN)

        def step(h: pd.Value, x: pd.Value) -> tuple[pd.Value, pd.Value]:
            h = unit(x, h)
            return h, h

        _, states = pd.scan(step, pd.zeros((BATCH, HIDDEN)), bits)
        loss = pd.cross_entropy(pd.nn.Linear('out', HIDDEN, 3)(states), counts)
        pd.minimize(loss, pd.Adam(0.01), clip_norm=1)
        graph.fetch('loss', loss)

    program = pd.Program(graph, pd.Parameters(graph, seed=1))
    print(program.report['launches'], 'launches for 16 steps, their gradients and Adam')
    random = np.random.default_rng(1)
    for i in range(1, 601):
        fed_bits, fed_counts = bits_and_counts(random)
        results = program(bits=fed_bits, counts=fed_counts)
        if i % 200 == 0:
            print(f'step {i}: loss {results["loss"]:.6f}')


def layers_and_lengths() -> None:
    with pd.Graph() as graph:
        xs = graph.input('xs', pd.f32, (6, 3, 4))
        lengths = graph.input('lengths', pd.i32, 3)
        made = pd.nn.LSTM('lstm', 4, 8, layers=2, bidirectional=True)(xs, lengths=lengths)
        graph.fetch('outputs', made.outputs)
        print('outputs', made.outputs.shape, len(made.last_h), 'last states of', made.last_h[0].shape)

    program = pd.Program(graph, pd.Parameters(graph, seed=1))
    outputs = program(xs=np.ones((6, 3, 4)), lengths=[6, 2, 4])['outputs'].numpy()
    for row in range(3):
        print(f'row {row}:', ' '.join('x' if any(step) else '.' for step in outputs[:, row] != 0))


def every_length() -> None:
    @pd.function(
        x=('f32', ['time', 'batch', 4]),
        lengths=('i64', ['batch']),
        extents={'batch': (1, 64), 'time': (1, 100, pd.multiples_of(8))},
        seed=1,
    )
    def encode(x: pd.Value, lengths: pd.Value) -> pd.Value:
        return pd.nn.GRU('gru', 4, 8)(x, lengths=lengths).last_h[0]

    for time in (5, 7, 12):
        print(encode(np.ones((time, 2, 4)), [time, 3]).shape, end=' ')
    print(f'by {len(encode.programs)} programs')


def a_loop_that_writes() -> None:
    with pd.Graph() as graph:
        first = graph.input('first', pd.i64, 1)
        letters, out = pd.nn.Embedding('letters', 5, 8), pd.nn.Linear('out', 8, 5)

        def write(letter: pd.Value, _: pd.Value) -> tuple[pd.Value, pd.Value]:
            drawn = pd.categorical(out(letters(letter)), temperature=0.5, top_k=3)
            return drawn, drawn

        _, text = pd.scan(write, first, length=12)
        graph.fetch('text', text)

    program = pd.Program(graph, pd.Parameters(graph, seed=4))
    for _ in range(2):
        print(''.join('abcde'[i] for i in program(first=[0])['text'].numpy()[:, 0]))


if __name__ == '__main__':
    a_loop()
    a_cell_of_your_own()
    layers_and_lengths()
    every_length()
    a_loop_that_writes()
