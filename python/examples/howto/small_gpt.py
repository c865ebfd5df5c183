# SPDX-License-Identifier: Apache-2.0
"""The program of docs/howto/small_gpt.md: a decoder of two blocks learns to write sentences, letter by letter."""

from __future__ import annotations

import numpy as np

import paoding as pd

TIME, WIDTH, BLOCKS, BATCH = 32, 64, 2, 32

random = np.random.default_rng(1)
who, does = ['the cat', 'a dog', 'my goldfish'], ['sleeps', 'sees the moon', 'is in the garden']
text = '. '.join(f'{random.choice(who)} {random.choice(does)}' for _ in range(2000))
letters = sorted(set(text))
data = np.array([letters.index(letter) for letter in text])


def gpt(tokens: pd.Value, training: bool) -> pd.Value:
    x = pd.nn.Embedding('letters', len(letters), WIDTH)(tokens)
    x = pd.nn.LearnedPositions('positions', TIME, WIDTH)(x)
    for i in range(BLOCKS):
        x = pd.nn.TransformerDecoderLayer(f'block{i}', WIDTH, 4, memory=False, dropout=0.1, training=training)(x)
    return pd.nn.Linear('out', WIDTH, len(letters))(pd.nn.LayerNorm('norm', WIDTH)(x))


EXTENTS = pd.Extents({'batch': (1, BATCH), 'time': (1, TIME, pd.multiples_of(8))})


@pd.function(tokens=('i64', ['batch', 'time']), targets=('i64', ['batch', 'time']), extents=EXTENTS, seed=1)
def step(tokens: pd.Value, targets: pd.Value) -> pd.Value:
    loss = pd.cross_entropy(gpt(tokens, training=True), targets)
    pd.minimize(loss, pd.AdamW(3e-3), clip_norm=1)
    return loss


@pd.function(tokens=('i64', ['batch', 'time']), extents=EXTENTS, parameters=step.parameters)
def next_letter(tokens: pd.Value, time: pd.Value) -> pd.Value:
    logits = gpt(tokens, training=False).transpose(1, 0, 2)
    return pd.softmax(logits[(time - 1).reshape(1)][0] / 0.5)


for i in range(1, 151):
    starts = random.integers(0, len(data) - TIME, BATCH)
    rows = data[starts[:, None] + np.arange(TIME + 1)]
    loss = step(rows[:, :-1], rows[:, 1:])
    if i % 50 == 0:
        print(f'step {i}: loss {loss:.2f}')

written = [letters.index(letter) for letter in 'the cat']
for _ in range(60):
    chances = next_letter([written[-TIME:]])[0].astype(np.float64)
    written.append(int(random.choice(len(letters), p=chances / chances.sum())))
print(''.join(letters[i] for i in written))
