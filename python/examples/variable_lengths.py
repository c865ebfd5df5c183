# SPDX-License-Identifier: Apache-2.0
"""Trains on batches whose number of sequences and whose lengths vary, by one function, and scores single sequences by
the same parameters."""

import numpy as np
from numpy.typing import NDArray

import paoding as pd

FEATURES, HIDDEN = 8, 32
# Programs are made for batches of 32 and of the rest, and for lengths of 8, 16, 24 ..
EXTENTS = pd.Extents({'batch': (1, 32), 'time': (1, 60, pd.multiples_of(8))})


def logits(x: pd.Value, lengths: pd.Value, training: bool) -> pd.Value:
    """Is the sum of a sequence positive? The last state of each says it; padding behind its end is not read."""
    states = pd.nn.LSTM('lstm', FEATURES, HIDDEN, training=training)(x, lengths=lengths)
    return pd.nn.Linear('out', HIDDEN, 2)(states.last_h[-1])


@pd.function(
    x=('f32', ['time', 'batch', FEATURES]), lengths=('i64', ['batch']), y=('i64', ['batch']), extents=EXTENTS, seed=7
)
def step(x: pd.Value, lengths: pd.Value, y: pd.Value) -> pd.Value:
    loss = pd.cross_entropy(logits(x, lengths, True), y)
    pd.minimize(loss, pd.Adam(0.01))
    return loss


@pd.function(
    x=('f32', ['time', 'batch', FEATURES]), lengths=('i64', ['batch']), extents=EXTENTS, parameters=step.parameters
)
def score(x: pd.Value, lengths: pd.Value) -> pd.Value:
    return pd.ops.softmax(logits(x, lengths, False))


def batch(random: np.random.Generator, count: int) -> tuple[NDArray[np.float32], NDArray[np.int64], NDArray[np.int64]]:
    lengths = random.integers(1, 61, count)
    x = random.standard_normal((int(lengths.max()), count, FEATURES)).astype(np.float32)
    x += random.standard_normal((1, count, 1)).astype(np.float32)
    sums = [float(x[:n, i].sum()) for i, n in enumerate(lengths)]
    return x, lengths, (np.array(sums) > 0).astype(np.int64)


def main() -> None:
    random = np.random.default_rng(1)
    for i in range(120):
        x, lengths, y = batch(random, 32 if i % 10 else 19)  # the last batch of an epoch is a smaller one
        loss = step(x, lengths, y)
        if i % 40 == 39:
            print(f'step {i + 1}: loss {loss.item():.3f}')
    print(f'{len(step.programs)} programs for {step.programs.extents!r}')
    right = 0
    for _ in range(50):
        x, lengths, y = batch(random, 1)
        right += int(np.argmax(score(x, lengths)) == y[0])
    print(f'{right} of 50 single sequences are right')
    assert right > 35


if __name__ == '__main__':
    main()
