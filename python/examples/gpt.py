# SPDX-License-Identifier: Apache-2.0
"""A small language model of letters: trained on all places at once, then asked for letters one after another, where a cache
has the keys and values of those before."""

from typing import Any

import numpy as np

import paoding as pd

TEXT = 'the quick brown fox jumps over the lazy dog. '
LETTERS = sorted(set(TEXT))
WIDTH, HEADS, LAYERS, PLACES = 32, 4, 2, 48


class Gpt:
    """Its layers, in the graph of the `with` around it."""

    def __init__(self) -> None:
        self.letters = pd.nn.Embedding('letters', len(LETTERS), WIDTH)
        self.layers = [
            pd.nn.TransformerDecoderLayer(
                f'layer{i}', WIDTH, HEADS, memory=False, norm_first=True, activation='gelu', rotary_base=10000
            )
            for i in range(LAYERS)
        ]
        self.norm = pd.nn.LayerNorm('norm', WIDTH)
        self.out = pd.nn.Linear('out', WIDTH, len(LETTERS))

    def logits(self, letters: pd.Value) -> pd.Value:
        """Of the letter after each of [B, T]."""
        x = self.letters(letters)
        for layer in self.layers:
            x = layer(x)
        return self.out(self.norm(x))

    def next_logits(self, letters: pd.Value, caches: Any, position: pd.Value) -> tuple[pd.Value, Any]:
        """Of the letter after the next T letters [B, T], which begin at `position`, and the caches with them."""
        x = self.letters(letters)
        after = []
        for layer, cache in zip(self.layers, caches, strict=True):
            x, cache = layer.step(x, cache, position)
            after.append(cache)
        return self.out(self.norm(x))[:, -1], after


@pd.function(seed=1)
def step(letters: pd.Value) -> pd.Value:
    loss = pd.cross_entropy(Gpt().logits(letters[:, :-1]), letters[:, 1:])
    pd.minimize(loss, pd.AdamW(3e-3), clip_norm=1.0)
    return loss


def continuation(letters: pd.Value, count: int) -> pd.Value:
    """The `count` most likely letters after [1, T], in one program: a scan carries the caches."""
    model = Gpt()
    start = letters.shape[1]
    caches: Any = [layer.start(1, PLACES) for layer in model.layers]
    logits, caches = model.next_logits(letters, caches, pd.full((), 0, 'i64'))

    def turn(state: Any, place: pd.Value) -> Any:
        caches, letter = state
        logits, caches = model.next_logits(letter.reshape(1, 1), caches, place + start)
        return (caches, pd.argmax(logits, -1)), letter

    made: pd.Value
    _, made = pd.scan(turn, (caches, pd.argmax(logits, -1)), length=count)
    return made.reshape(count)


def main() -> None:
    numbers = np.array([LETTERS.index(letter) for letter in TEXT * 4])
    random = np.random.default_rng(0)
    for i in range(150):
        begins = random.integers(0, len(TEXT), 16)
        loss = step(np.stack([numbers[at : at + 33] for at in begins]))
        if i % 50 == 49:
            print(f'step {i + 1}: loss {loss.item():.3f}')

    generate = pd.function(static=['count'], parameters=step.parameters)(continuation)
    begin = 'the quick '
    made = generate(np.array([[LETTERS.index(letter) for letter in begin]]), count=30)
    text = ''.join(LETTERS[i] for i in made.tolist())
    print(begin + '|' + text)
    assert text == (TEXT * 2)[len(begin) :][:30]


if __name__ == '__main__':
    main()
