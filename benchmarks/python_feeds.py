# SPDX-License-Identifier: Apache-2.0
"""PYTHONPATH=build/python python3 benchmarks/python_feeds.py: a run with a feed that is converted, beside the same run with
the feed that NumPy's cast makes of it. All in turns in one process; the least of many times, in milliseconds."""

import os
import platform
import time

import numpy as np

import paoding as pd


def least(functions, times_each=60):
    times = [float('inf')] * len(functions)
    for _ in range(times_each):
        for i, function in enumerate(functions):
            began = time.perf_counter()
            function()
            times[i] = min(times[i], time.perf_counter() - began)
    return [1e3 * each for each in times]


def main():
    print(f'{platform.machine()}, {os.cpu_count()} cores, NumPy {np.__version__}, paoding {pd.__version__}')
    print(f'{"feed of an f32 input":42}{"converted run":>15}{"cast, then run":>16}{"run alone":>12}{"cast alone":>12}')
    for shape in ((64, 784), (1024, 1024), (4096, 2048)):
        with pd.Graph() as graph:
            graph.fetch('y', graph.input('x', 'f32', shape)[0, 0])
        converts, plain = pd.Program(graph), pd.Program(graph, strict=True)
        numbers = np.random.default_rng(0).integers(0, 200, shape)
        feeds = {
            'float64': numbers.astype(np.float64),
            'int64': numbers,
            'uint8': numbers.astype(np.uint8),
            'float64, every second column': np.repeat(numbers.astype(np.float64), 2, axis=1)[:, ::2],
            'float16': numbers.astype(np.float16),
        }
        for name, feed in feeds.items():
            cast = np.ascontiguousarray(feed, np.float32)
            row = least(
                [
                    lambda feed=feed: converts(x=feed),
                    lambda feed=feed: plain(x=np.ascontiguousarray(feed, np.float32)),
                    lambda cast=cast: plain(x=cast),
                    lambda feed=feed: np.ascontiguousarray(feed, np.float32),
                ]
            )
            print(f'{name + " " + str(list(shape)):46}' + ''.join(f'{each:>11.3f}' for each in row))


if __name__ == '__main__':
    main()
