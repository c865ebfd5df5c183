# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python_torch.py [FOLDER]: paoding.torch.LSTM and GRU beside torch.nn's on the CPU, in turns, of the package in
FOLDER (build/python). Medians; ms."""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()))

import torch  # noqa: E402

import paoding.torch  # noqa: E402

ROUNDS = 9


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def forward(module, x):
    with torch.no_grad():
        module(x)


def step(module, x):
    module.zero_grad()
    module(x)[0].sum().backward()


print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads')
print(f'{"":58}{"torch.nn":>9}{"paoding":>9}')
for kind in ('LSTM', 'GRU'):
    for steps, batch, inputs, hidden, layers in (
        (64, 1, 512, 512, 1),
        (64, 32, 512, 512, 1),
        (50, 128, 256, 256, 2),
        (10, 1, 64, 64, 1),
    ):
        theirs = getattr(torch.nn, kind)(inputs, hidden, layers)
        ours = getattr(paoding.torch, kind)(inputs, hidden, layers)
        ours.load_state_dict(theirs.state_dict())
        x = torch.randn(steps, batch, inputs)
        for name, call in (('forward', forward), ('training', step)):
            times = {theirs: [], ours: []}
            for i in range(ROUNDS + 2):
                for module, taken in times.items():
                    taken.append(seconds(lambda: call(module, x)))
            medians = [1e3 * statistics.median(taken[2:]) for taken in times.values()]
            title = (
                f'{kind} {name}, {steps} steps, batch {batch}, {inputs} to {hidden}, {layers} layer{"s" * (layers > 1)}'
            )
            print(f'{title:<58}{medians[0]:9.2f}{medians[1]:9.2f}', flush=True)
