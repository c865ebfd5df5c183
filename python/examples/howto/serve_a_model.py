# SPDX-License-Identifier: Apache-2.0
"""The program of docs/howto/serve_a_model.md: a function with bounds for its sizes, as a file, called without a server.

    python serve_a_model.py mine.pd
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

import paoding as pd

FILE = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp() + '/mine.pd'


@pd.function(
    x=('f32', ['batch', 'time', 4]),
    extents={'batch': (1, 64, pd.powers_of_two()), 'time': (1, 32, pd.bucket_sizes([16, 32]))},
)
def classify(x: pd.Value) -> dict[str, pd.Value]:
    states = pd.nn.LSTM('lstm', 4, 8)(x.transpose(1, 0, 2)).outputs
    return {'chances': pd.softmax(pd.nn.Linear('out', 8, 3)(states[-1]))}


pd.save_model(FILE, {'classify': classify}, batch='batch')

array = np.random.default_rng(1).standard_normal((5, 16, 4), np.float32)
model = pd.Model.load(FILE, device='cpu')
chances = model(x=array)['chances']
print(f'{chances.shape[0]} rows, of which the chances sum to {chances.sum(axis=1).mean():.1f}')
