# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python/4_serving.md: a model in one file, called from several threads.

    python serving.py sides.pd
"""

from __future__ import annotations

import sys
import tempfile
import threading

import numpy as np

import paoding as pd

FILE = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + '/sides.pd'


def classify(places: pd.Value) -> pd.Value:
    return pd.nn.Linear('last', 8, 2)(pd.tanh(pd.nn.Linear('first', 2, 8)(places)))


with pd.Graph() as training:  # is a point above the line y = x?
    places, labels = training.input('places', pd.f32, (64, 2)), training.input('labels', pd.i64, 64)
    pd.minimize(pd.cross_entropy(classify(places), labels), pd.Adam(0.02))
step = pd.Program(training, pd.Parameters(training, seed=1))
random = np.random.default_rng(1)
for _ in range(300):
    points = random.uniform(-1, 1, (64, 2))
    step(places=points, labels=points[:, 1] > points[:, 0])


@pd.function(
    places=('f32', ['rows', 2]),
    extents={'rows': (1, 64, pd.bucket_sizes([1, 8, 64]))},
    parameters=step.parameters,
)
def sides(places: pd.Value) -> dict[str, pd.Value]:
    return {'chances': pd.softmax(classify(places))}


pd.save_model(FILE, {'sides': sides}, batch='rows', notes={'trained on': 'points of a square'})

model = pd.Model.load(FILE)
chances = model(places=[[0.2, 0.7]])['chances']
print('above' if chances[0, 1] > 0.5 else 'below', 'the line')

above = [0] * 4


def count(thread: int) -> None:
    points = np.random.default_rng(thread).uniform(-1, 1, (200, 2))
    above[thread] = int((model(places=points)['chances'].argmax(axis=1) == 1).sum())


threads = [threading.Thread(target=count, args=[thread]) for thread in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(above), 'of 800 points above the line')

try:
    model(places=np.ones((5, 3)))
except pd.ShapeError as error:
    print(error)
