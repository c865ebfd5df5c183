# SPDX-License-Identifier: Apache-2.0
"""The program of docs/howto/variable_lengths.md: an encoder of batches and lengths of any size, and its programs."""

from __future__ import annotations

import numpy as np

import paoding as pd


@pd.function(
    x=('f32', ['time', 'batch', 80]),
    lengths=('i64', ['batch']),
    extents={'batch': (1, 256), 'time': (1, 512, pd.multiples_of(8))},
)
def encode(x: pd.Value, lengths: pd.Value) -> pd.Value:
    return pd.nn.LSTM('lstm', 80, 256)(x, lengths=lengths).outputs


random = np.random.default_rng(1)
for time in (57, 60, 64, 20):
    x, lengths = random.standard_normal((time, 4, 80), np.float32), [time, 20, 9, 1]
    print(encode(x, lengths).shape)  # of any batch and time: padded, run, cut to the size
print(len(encode.programs), 'programs, for', encode.bucket_of(batch=4, time=57), 'and', encode.bucket_of(batch=4, time=20))
