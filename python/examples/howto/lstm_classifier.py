# SPDX-License-Identifier: Apache-2.0
"""The program of docs/howto/lstm_classifier.md: an LSTM reads sentences of any length and says what they are about."""

from __future__ import annotations

import numpy as np

import paoding as pd

SUBJECTS = ['the cat', 'a dog', 'my goldfish', 'the old piano', 'a drum', 'her violin']
VERBS = ['slept', 'was quiet', 'made a noise all night', 'is in the garden', 'was sold to the neighbours']
random = np.random.default_rng(1)


def sentence() -> tuple[str, int]:
    subject = int(random.integers(len(SUBJECTS)))
    return f'{SUBJECTS[subject]} {VERBS[random.integers(len(VERBS))]}', subject // 3


examples = [sentence() for _ in range(2000)]
train, held_out = examples[:1600], examples[1600:]

KINDS = ['animals', 'instruments']
words = {word: i for i, word in enumerate(sorted({word for text, _ in train for word in text.split()}), start=1)}


def batch_of(pairs: list[tuple[str, int]]) -> dict[str, np.ndarray]:
    """Words as numbers, 0 behind the end and for words that are not known, with the lengths."""
    rows = [[words.get(word, 0) for word in text.split()] for text, _ in pairs]
    padded = np.zeros((len(rows), max(map(len, rows))), np.int64)
    for row, numbers in zip(padded, rows, strict=True):
        row[: len(numbers)] = numbers
    return {'tokens': padded, 'lengths': np.array([len(row) for row in rows])}


def classify(tokens: pd.Value, lengths: pd.Value) -> pd.Value:
    vectors = pd.nn.Embedding('words', len(words) + 1, 32)(tokens)
    made = pd.nn.LSTM('lstm', 32, 64)(vectors.transpose(1, 0, 2), lengths=lengths)
    return pd.nn.Linear('out', 64, len(KINDS))(made.last_h[0])


TOKENS = ('i64', ['batch', 'time'])
EXTENTS = pd.Extents({'batch': (1, 64), 'time': (1, 64, pd.multiples_of(4))})


@pd.function(tokens=TOKENS, lengths=('i64', ['batch']), kinds=('i64', ['batch']), extents=EXTENTS, seed=1)
def step(tokens: pd.Value, lengths: pd.Value, kinds: pd.Value) -> pd.Value:
    loss = pd.cross_entropy(classify(tokens, lengths), kinds)
    pd.minimize(loss, pd.Adam(3e-3), clip_norm=1)
    return loss


@pd.function(tokens=TOKENS, lengths=('i64', ['batch']), extents=EXTENTS, parameters=step.parameters)
def chances(tokens: pd.Value, lengths: pd.Value) -> pd.Value:
    return pd.softmax(classify(tokens, lengths))


for epoch in range(3):
    order = random.permutation(len(train))
    for i in range(0, len(train), 64):
        some = [train[k] for k in order[i : i + 64]]
        loss = step(**batch_of(some), kinds=np.array([kind for _, kind in some]))
    right = [
        (chances(**batch_of(held_out[i : i + 64])).argmax(axis=1) == [kind for _, kind in held_out[i : i + 64]]).mean()
        for i in range(0, len(held_out), 64)
    ]
    print(f'epoch {epoch + 1}: loss {loss:.3f}, right {np.mean(right):.1%}')

for text in ('my dog is in the garden', 'a violin was sold'):
    found = chances(**batch_of([(text, 0)]))[0]
    print(f'{text}: {KINDS[found.argmax()]} ({found.max():.0%})')
