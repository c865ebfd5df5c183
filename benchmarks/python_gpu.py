# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python_gpu.py [FOLDER]: a program of the package in FOLDER (build/python) on a GPU, called from Python with
PyTorch's tensors of the GPU: by way of the host, as NumPy's arrays, and where they are (DLPack). Medians in us of calls in
turns: one at a time, waited for (wall), and many in a row, each fed what the one before gave (row)."""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()))

import torch  # noqa: E402

import paoding as pd  # noqa: E402

ROUNDS, IN_A_ROW = 40, 50


def program(n):
    with pd.Graph() as graph:
        graph.fetch('y', pd.tanh(graph.input('x', pd.f32, n)))
    return pd.Program(graph, device='cuda')


def by_host(step, x):
    return torch.from_dlpack(step.run({'x': x.cpu()})['y']).cuda()


def by_dlpack(step, x):
    return torch.from_dlpack(step.run_on_device({'x': x})['y'])


def chained(step, x):
    """Results that stay ours."""
    return step.run_on_device({'x': x})['y']


def wall(call, step, x):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call(step, x)
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begin)


def row(call, step, x):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(IN_A_ROW):
        x = call(step, x)
    if isinstance(x, pd.DeviceTensor):
        x = torch.from_dlpack(x)
    torch.cuda.synchronize()
    return 1e6 * (time.perf_counter() - begin) / IN_A_ROW


def main():
    print(f'PyTorch {torch.__version__}, {torch.cuda.get_device_name()}; us a call')
    print(f'{"":<14}{"":<12}{"by the host":>12}{"DLPack":>12}{"our results":>12}{"PyTorch":>12}')
    for n in (1 << 8, 1 << 16, 1 << 20, 1 << 24):
        step, x = program(n), torch.randn(n, device='cuda')
        calls = [by_host, by_dlpack, chained, lambda step, x: torch.tanh(x)]
        torch.testing.assert_close(by_dlpack(step, x), torch.tanh(x))
        for name, measure in (('one, waited', wall), ('in a row', row)):
            taken = [[] for _ in calls]
            for _ in range(ROUNDS if n < 1 << 24 else 8):
                for i, call in enumerate(calls):
                    taken[i].append(measure(call, step, x))
            print(f'{4 * n:>12} B {name:<12}' + ''.join(f'{statistics.median(each):12.1f}' for each in taken))


main()
