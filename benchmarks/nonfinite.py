#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What NaN and infinite factors cost products of exact f32 on a GPU, which are three products of TF32 each and are made
again where a factor is non-finite. Prints a table and writes it to --json.

  benchmarks/nonfinite.py --paoding bundle/paoding --against old/paoding --json OUT/nonfinite.json

Needs NumPy and safetensors. Programs take turns, each run is a process of its own; the median over --rounds of each
process's median is kept, with the least and the most."""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import tempfile

import numpy as np
from safetensors.numpy import save_file

CELL = """paoding graph 1
xs = input f32[64,32,256]
h0 = input f32[32,256]
w = parameter f32[256,256]
u = parameter f32[256,256]
h, ys = scan(h0, xs, w, u) {carries=1, sequences=1, length=64} [
  h = input f32[32,256]
  x = input f32[32,256]
  w = input f32[256,256]
  u = input f32[256,256]
  a = matmul(x, w)
  b = matmul(h, u)
  s = add(a, b)
  n = tanh(s)
  m = sigmoid(s)
  p = mul(m, n)
  q = sub(h, p)
  fetch h = q
  fetch y = q
]
squares = mul(ys, ys)
loss = sum(squares)
dw, du = gradients(loss) by (w, u)
fetch loss
fetch dw
fetch du
"""
PRODUCT = """paoding graph 1
x = input f32[32,512]
w = parameter f32[512,2048]
y = matmul(x, w)
fetch y
"""


def cases() -> dict[str, tuple[str, dict[str, np.ndarray]]]:
    """Graph and feeds by name: what is finite, and the same with other factors."""
    random = np.random.default_rng(1)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.05).astype(np.float32)

    cell = {'xs': normal(64, 32, 256), 'h0': normal(32, 256), 'w': normal(256, 256), 'u': normal(256, 256)}
    product = {'x': normal(32, 512), 'w': normal(512, 2048)}

    def with_value(feeds: dict[str, np.ndarray], name: str, where: object, value: float) -> dict[str, np.ndarray]:
        changed = {key: array.copy() for key, array in feeds.items()}
        changed[name][where] = value
        return changed

    every, last_row, last_column = slice(None), (-1, slice(None)), (slice(None), -1)
    return {
        'cell, training, 64 steps': (CELL, cell),
        'cell, u all NaN': (CELL, with_value(cell, 'u', every, np.nan)),
        'cell, last row of u NaN': (CELL, with_value(cell, 'u', last_row, np.nan)),
        'product': (PRODUCT, product),
        'product, w all NaN': (PRODUCT, with_value(product, 'w', every, np.nan)),
        'product, last column of x NaN': (PRODUCT, with_value(product, 'x', last_column, np.nan)),
        'product, first column of x infinite': (PRODUCT, with_value(product, 'x', (slice(None), 0), np.inf)),
        'product, one factor infinite': (PRODUCT, with_value(product, 'x', (3, 100), np.inf)),
    }


def milliseconds(paoding: str, graph: str, feeds: str) -> float:
    command = [paoding, 'run', graph, '--feed', feeds, '--device', 'cuda', '--repeat', '200']
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = re.search(r'more runs, each waited for: median ([\d.]+) ms', printed)
    if found is None:
        raise SystemExit(f'{" ".join(command)} printed no median:\n{printed}')
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--paoding', default='build/paoding')
    parser.add_argument('--against', help='an older build, in turns')
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--json', type=pathlib.Path)
    options = parser.parse_args()
    programs = {'us': options.paoding} | ({'against_us': options.against} if options.against else {})
    rows: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        graph, feeds = f'{folder}/graph.txt', f'{folder}/feeds.safetensors'
        for name, (text, arrays) in cases().items():
            pathlib.Path(graph).write_text(text)
            save_file({key: np.ascontiguousarray(array) for key, array in arrays.items()}, feeds)
            times: dict[str, list[float]] = {key: [] for key in programs}
            for _ in range(options.rounds):
                for key, program in programs.items():
                    times[key].append(1000 * milliseconds(program, graph, feeds))
            rows[name] = {
                key: {'median': statistics.median(each), 'least': min(each), 'most': max(each)}
                for key, each in times.items()
            }
            print(f'{name:38}' + ''.join(f'{key} {row["median"]:8.1f}   ' for key, row in rows[name].items()), flush=True)
    device = subprocess.run(['nvidia-smi', '--query-gpu=name', '--format=csv,noheader'], capture_output=True, text=True)
    if options.json:
        made = {
            'date': datetime.date.today().isoformat(),
            'command': 'benchmarks/nonfinite.py --paoding bundle/paoding'
            + (' --against old/paoding' if options.against else ''),
            'machine': device.stdout.strip().splitlines()[0],
            'rows': rows,
        }
        options.json.write_text(json.dumps(made, indent=1) + '\n')


if __name__ == '__main__':
    main()
