# SPDX-License-Identifier: Apache-2.0
"""benchmarks/torch_compile_calls.py [FOLDER] [--rounds 2000] [--out FILE]: what a call of a small function costs its caller on a
CPU, compiled by torch.compile(backend='paoding') of the package in FOLDER (build/python), beside eager mode and a backend that
computes nothing, in turns: under no_grad with two weights, and with 200 parameters under no_grad and with a graph of
gradients. The parts of a call, each by itself: the region (everything of ours), and the C++ run in it. Medians in us."""

import argparse
import json
import os
import pathlib
import platform
import statistics
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--rounds', type=int, default=2000)
arguments.add_argument('--out')
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch._dynamo.backends.common import aot_autograd  # noqa: E402

import paoding.torch  # noqa: E402, F401
from paoding.torch.compiler import _bound, _region  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(1)


class Small(nn.Module):
    """Two products of 16 x 16."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)

    def forward(self, x):
        return self.b(torch.relu(self.a(x))).tanh()


class Many(nn.Module):
    """200 parameters: 100 layers of 4 x 4."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(100))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x


def nothing(gm, example_inputs):
    """A graph that gives what it gave first: what is left of a call is Dynamo's and AOTAutograd's."""
    kept = []

    def call(given):
        if not kept:
            kept.append([torch.empty(each.shape) for each in (node.meta['val'] for node in results_of(gm))])
        given.clear()
        return list(kept[0])

    call._boxed_call = True
    return call


def results_of(gm):
    (output,) = (node for node in gm.graph.nodes if node.op == 'output')
    return output.args[0]


def medians(calls):
    for call in calls.values():
        for _ in range(200):
            call()
    seen = {name: [] for name in calls}
    for _ in range(options.rounds // 20):
        for name, call in calls.items():
            for _ in range(20):  # a loop has the caches to itself
                begin = time.perf_counter_ns()
                call()
                seen[name].append(time.perf_counter_ns() - begin)
    return {name: round(statistics.median(times) / 1000, 2) for name, times in seen.items()}


def parts_of(call):
    """The arguments of the one region of a call, and of its run in C++."""
    found = {}
    of_region, of_run = _region.Region.of, _bound.Bound._run_on_cpu

    def region(self, given):
        found['region'] = lambda: of_region(self, given[:])
        return of_region(self, given[:])

    def run(self, addresses):
        found['allocation and C++'] = lambda: of_run(self, addresses)
        return of_run(self, addresses)

    _region.Region.of, _bound.Bound._run_on_cpu = region, run
    try:
        call()
    finally:
        _region.Region.of, _bound.Bound._run_on_cpu = of_region, of_run
    return found


def main():
    rows = {}
    for title, model, x, gradients in (
        ('two weights, no_grad', Small(), torch.randn(4, 16), False),
        ('200 parameters, no_grad', Many(), torch.randn(2, 4), False),
        ('200 parameters, with gradients', Many(), torch.randn(2, 4), True),
    ):
        torch._dynamo.reset()
        ours = torch.compile(model, backend='paoding')
        bare = torch.compile(model, backend=aot_autograd(fw_compiler=nothing))
        with torch.set_grad_enabled(gradients):
            ours(x)
            calls = {'ours': lambda: ours(x), 'eager': lambda: model(x), **parts_of(lambda: ours(x))}
            if not gradients:  # its tensors for the backward pass would be no results of the graph
                bare(x)
                calls['nothing computed'] = lambda: bare(x)
            rows[title] = medians(calls)
        print(title, rows[title], flush=True)
    if options.out:
        about = {
            'command': 'python ' + ' '.join(sys.argv),
            'date': time.strftime('%Y-%m-%d'),
            'machine': f'{platform.machine()}, {os.cpu_count()} CPUs, one thread',
            'torch': torch.__version__,
            'python': platform.python_version(),
            'unit': 'us, median',
        }
        pathlib.Path(options.out).write_text(json.dumps({**about, 'calls': rows}, indent=1) + '\n')


main()
