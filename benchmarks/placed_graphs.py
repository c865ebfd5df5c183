# SPDX-License-Identifier: Apache-2.0
"""benchmarks/placed_graphs.py [FOLDER] [--json FILE]: what a CUDA graph for each set of addresses saves a caller of
paoding.torch.function (of the package in FOLDER, build/python). Chains of small products, an LSTM layer and a step with its
gradient, with and without `uses_graph`, in turns: us that the caller's thread is busy with a call, and us a call takes where
many are enqueued, medians with least and most."""

import argparse
import json
import pathlib
import statistics
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--json')
arguments.add_argument('--rounds', type=int, default=30)
arguments.add_argument('--device', default='cuda')
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))

import torch  # noqa: E402

import paoding as pd  # noqa: E402
import paoding.torch  # noqa: E402

device = torch.device(options.device)
CALLS = 50


def wait():
    if device.type == 'cuda':
        torch.cuda.synchronize()


def chain(products, rows, width, with_gradient=False):
    graph = pd.Graph()
    x = graph.input('x', pd.DType.f32, (rows, width))
    weights = [graph.input(f'w{i}', pd.DType.f32, (width, width)) for i in range(products)]
    value = x
    for weight in weights:
        value = pd.tanh(pd.matmul(value, weight))
    graph.fetch('y', value)
    if with_gradient:
        for i, found in enumerate(pd.gradients([pd.mean(value * value)], weights)):
            graph.fetch(f'g{i}', found)
    return graph


GRAPHS = {
    '4 products, 32 x 256': chain(4, 32, 256),
    '16 products, 32 x 256': chain(16, 32, 256),
    '8 products and their gradients, 64 x 512': chain(8, 64, 512, True),
    '2 products, 4096 x 1024': chain(2, 4096, 1024),
}


def measured(call):
    wait()
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    enqueued = time.perf_counter()
    wait()
    return 1e6 * (enqueued - begin) / CALLS, 1e6 * (time.perf_counter() - begin) / CALLS


def middle(values):
    return {'us': statistics.median(values), 'least': min(values), 'most': max(values)}


def main():
    rows = []
    for name, graph in GRAPHS.items():
        tensors = [0.05 * torch.randn(shape, device=device) for shape in (graph.find(i).shape for i in graph.inputs)]
        ways = {}
        for way, uses_graph in (('launches', False), ('graph', True)):
            function = paoding.torch.function(graph, uses_graph=uses_graph)
            ways[way] = lambda function=function: function(*tensors)
        found = {way: ([], []) for way in ways}
        with torch.no_grad():
            first = [way() for way in ways.values()]
            for a, b in zip(*(each if isinstance(each, tuple) else (each,) for each in first)):
                assert torch.equal(a, b), name
            del first, a, b
            for way in ways.values():
                for _ in range(2 * CALLS):
                    way()
            for _ in range(options.rounds):
                for way, call in ways.items():
                    host, whole = measured(call)
                    found[way][0].append(host)
                    found[way][1].append(whole)
        row = {'graph': name}
        for way, (host, whole) in found.items():
            row[way] = {'host': middle(host), 'whole': middle(whole)}
        rows.append(row)
        print(f'{name:42} host {row["launches"]["host"]["us"]:7.1f} us, in a graph {row["graph"]["host"]["us"]:7.1f}; whole '
              f'{row["launches"]["whole"]["us"]:7.1f}, in a graph {row["graph"]["whole"]["us"]:7.1f}', flush=True)
    if options.json:
        machine = torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU'
        made = {'command': 'benchmarks/placed_graphs.py --json FILE', 'date': time.strftime('%Y-%m-%d', time.gmtime()),
                'machine': machine, 'torch': torch.__version__, 'calls_enqueued': CALLS, 'rounds': options.rounds, 'rows': rows}
        pathlib.Path(options.json).write_text(json.dumps(made, indent=1) + '\n')


main()
