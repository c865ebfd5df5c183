# SPDX-License-Identifier: Apache-2.0
"""benchmarks/program_memory.py FOLDER: the memory and time that programs of many sizes take (pd.Programs), on the CPU. FOLDER
has the package (build/python). For each graph: kept programs, each of another size, by the growth of the process's resident
memory; then sizes in random order of which 16 are kept, by its growth from the 1500th on: oneDNN keeps the last 1024 products
of its own. Weights and arena are shared, and are there before. Numbers are of this process's time on the processor."""

import ctypes
import gc
import os
import sys
import time

sys.path.insert(0, sys.argv[1])
import numpy as np

import paoding as pd

libc = ctypes.CDLL('libc.so.6')


def resident():
    gc.collect()
    libc.malloc_trim(0)
    with open('/proc/self/statm') as file:
        return int(file.read().split()[1]) * os.sysconf('SC_PAGESIZE')


def one_layer(batch, time):
    with pd.Graph() as graph:
        graph.fetch('y', pd.tanh(pd.nn.Linear('w', 4, 4)(graph.input('x', 'f32', (batch * time, 4)))))
    return graph


def lstm_step(batch, time):
    """A training step of two LSTM layers and Adam."""
    with pd.Graph() as graph:
        x, y = graph.input('x', 'f32', (time, batch, 64)), graph.input('y', 'i64', (batch,))
        last = pd.nn.LSTM('lstm', 64, 128, layers=2, dropout=0.1)(x).last_h[-1]
        loss = pd.cross_entropy(pd.nn.Linear('out', 128, 10)(last), y)
        pd.minimize(loss, pd.Adam(0.001))
        graph.fetch('loss', loss)
    return graph


def kept(build, count):
    programs = pd.Programs({'batch': None, 'time': None}, build)
    programs.at(batch=40, time=60)
    for i in range(20):
        programs.at(batch=1 + i, time=60)
    before, had, start = resident(), len(programs), time.process_time()
    for i in range(count):
        programs.at(batch=2 + i % 20, time=1 + i // 2)
    made = len(programs) - had
    return (resident() - before) / made, (time.process_time() - start) / made


def dropped(build, count):
    programs = pd.Programs({'batch': None, 'time': None}, build, keep_at_most=16)
    programs.at(batch=40, time=500)
    random = np.random.default_rng(1)
    for i in range(count):
        if i == 1500:
            before, had = resident(), programs.made
        programs.at(batch=int(random.integers(1, 41)), time=int(random.integers(1, 501)))
    return (resident() - before) / (programs.made - had), programs.made


for name, build, count in (('one layer', one_layer, 3000), ('LSTM training step', lstm_step, 2500)):
    size, seconds = kept(build, 100)
    print(f'{name}: {size / 1024:.0f} KiB for a program that is kept, {seconds * 1e3:.2f} ms for a bind')
    size, made = dropped(build, count)
    print(f'{name}: {made} bound in random order, 16 kept: memory grows by {size:.0f} bytes for each from the 1500th on')
