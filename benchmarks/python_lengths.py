# SPDX-License-Identifier: Apache-2.0
"""PYTHONPATH=build/python python3 benchmarks/python_lengths.py: a recurrent layer of paoding.torch, and of torch.nn, called with
200 lengths in a random order, beside the same calls where each has the length of the one before. Both are in turns in one
process; of each length the least of several times, their sum over all lengths in milliseconds. "first" is the sweep in
which every length is new, once."""

import os
import platform
import random
import sys
import time

import torch

import paoding as pd
import paoding.torch as pt

LENGTHS = list(range(5, 205))
PASSES = int(sys.argv[1]) if len(sys.argv) > 1 else 6


def call(layer, x, trains):
    if trains:
        layer(x)[0].sum().backward()
        layer.zero_grad()
    else:
        with torch.no_grad():
            layer(x)


def milliseconds(layer, x, trains):
    began = time.perf_counter()
    call(layer, x, trains)
    return 1e3 * (time.perf_counter() - began)


def row(layer, batch, trains):
    """The sums of a sweep's first times, of its least times, and of those where the length stays."""
    whole = torch.randn(max(LENGTHS), batch, layer.input_size)
    order = LENGTHS[:]
    first, varied, alone = 0.0, dict.fromkeys(order, float('inf')), dict.fromkeys(order, float('inf'))
    for each in range(PASSES):
        random.Random(each).shuffle(order)
        for length in order:
            took = milliseconds(layer, whole[:length], trains)
            first += took if each == 0 else 0
            if each > 0:
                varied[length] = min(varied[length], took)
        for length in order:
            call(layer, whole[:length], trains)
            alone[length] = min(alone[length], milliseconds(layer, whole[:length], trains))
    return first, sum(varied.values()), sum(alone.values())


def main():
    threads = torch.get_num_threads()
    print(f'{platform.machine()}, {os.cpu_count()} cores, {threads} threads, torch {torch.__version__}, paoding {pd.__version__}')
    print(f'{"LSTM, 200 lengths from 5 to 204":40}{"":8}{"first":>10}{"varied":>10}{"alone":>10}{"varied / alone":>16}')
    for inputs, hidden, batch in ((32, 64, 8), (64, 128, 16)):
        for trains in (False, True):
            for name, kind in (('paoding', pt.LSTM), ('torch', torch.nn.LSTM)):
                torch.manual_seed(0)
                first, varied, alone = row(kind(inputs, hidden), batch, trains)
                what = f'{"training" if trains else "forward"}, {hidden} units, batch {batch}'
                print(f'{what:40}{name:8}{first:>10.1f}{varied:>10.1f}{alone:>10.1f}{varied / alone:>16.2f}', flush=True)


if __name__ == '__main__':
    main()
