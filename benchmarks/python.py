# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python.py [FOLDER]: what Python costs beside C++, of the package in FOLDER (build/python): importing it, and
a run with feeds and fetches by name beside the same run from C++ by position, in turns. Medians; us."""

import os
import pathlib
import statistics
import subprocess
import sys
import time

FOLDER = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()
sys.path.insert(0, str(FOLDER))

import numpy as np  # noqa: E402

import paoding as pd  # noqa: E402

ROUNDS, RUNS = 60, 200


def import_seconds(code):
    code = f'import time; t = time.perf_counter(); {code}; print(time.perf_counter() - t)'
    environment = {**os.environ, 'PYTHONPATH': str(FOLDER)}
    runs = [
        subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, check=True) for _ in range(9)
    ]
    return statistics.median(float(run.stdout) for run in runs)


def one_input():
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.f32, 16) + 1)
    return pd.Program(graph), {'x': np.zeros(16, np.float32)}


def training_step():
    with pd.Graph() as graph:
        x, y = graph.input('x', pd.f32, (8, 16)), graph.input('y', pd.i64, 8)
        loss = pd.cross_entropy(pd.nn.Linear('out', 16, 4)(x), y)
        pd.minimize(loss, pd.Sgd(0.1))
        graph.fetch('loss', loss)
    return pd.Program(graph, pd.Parameters(graph)), {'x': np.zeros((8, 16), np.float32), 'y': np.zeros(8, np.int64)}


def eight_inputs():
    with pd.Graph() as graph:
        values = [graph.input(f'x{i}', pd.f32, 16) for i in range(8)]
        for i, value in enumerate(values[:4]):
            graph.fetch(f'y{i}', value + values[i + 4])
    return pd.Program(graph), {f'x{i}': np.zeros(16, np.float32) for i in range(8)}


def compare(make):
    program, feeds = make()
    from_python, from_cpp = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(RUNS):
            program.run(feeds)
        from_python.append((time.perf_counter() - start) / RUNS)
        from_cpp.append(program.seconds_in_cpp(feeds, RUNS) / RUNS)
    return statistics.median(from_python) * 1e6, statistics.median(from_cpp) * 1e6


print(
    f'Python {sys.version.split()[0]}, {os.cpu_count()} cores, OMP_NUM_THREADS={os.environ.get("OMP_NUM_THREADS", "")}'
)
print(f'import paoding  {import_seconds("import paoding") * 1e3:.1f} ms')
print(
    f'import numpy    {import_seconds("import numpy") * 1e3:.1f} ms, which paoding imports when an array is made by it'
)
print(f'{"":32}{"Python":>8}{"C++":>8}{"more":>8}')
for name, make in (
    ('1 feed, 1 fetch', one_input),
    ('a training step, 2 feeds, 1 fetch', training_step),
    ('8 feeds, 4 fetches', eight_inputs),
):
    python, cpp = compare(make)
    print(f'{name:<34}{python:6.2f}{cpp:8.2f}{python - cpp:8.2f}')
