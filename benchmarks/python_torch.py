# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python_torch.py [FOLDER]: paoding.torch.LSTM and GRU beside torch.nn's on the CPU, in turns, of the package in
FOLDER (build/python). Medians; ms; with one thread its time on the processor, as others may be using the machine. After
them, with one thread, layers so small that what counts is what a call costs its caller, and forward passes without
gradients whose weights take as long to read as to multiply: quartiles of that time; us."""

import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()))

import torch  # noqa: E402

import paoding.torch  # noqa: E402

ROUNDS = 9
ROUNDS_OF_SMALL = 600


def seconds(call, clock=time.perf_counter):
    start = clock()
    call()
    return clock() - start


def forward(module, x):
    with torch.no_grad():
        module(x)


def step(module, x):
    module.zero_grad()
    module(x)[0].sum().backward()


CALLS = (('forward', forward), ('training', step))


def in_turns(kind, sizes, rounds, clock, calls=CALLS, dtype=torch.float32):
    """What both take for each of the calls, in every round."""
    steps, batch, inputs, hidden, layers = sizes
    theirs = getattr(torch.nn, kind)(inputs, hidden, layers, dtype=dtype)
    ours = getattr(paoding.torch, kind)(inputs, hidden, layers, dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(steps, batch, inputs, dtype=dtype)
    for name, call in calls:
        times = {theirs: [], ours: []}
        for _ in range(rounds + 2):
            for module, taken in times.items():
                taken.append(seconds(lambda: call(module, x), clock))
        yield name, [taken[2:] for taken in times.values()]


print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads')
clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
print(f'{"":58}{"torch.nn":>9}{"paoding":>9}')
for kind in ('LSTM', 'GRU'):
    for sizes in ((64, 1, 512, 512, 1), (64, 32, 512, 512, 1), (50, 128, 256, 256, 2)):
        steps, batch, inputs, hidden, layers = sizes
        for name, times in in_turns(kind, sizes, ROUNDS, clock):
            medians = [1e3 * statistics.median(taken) for taken in times]
            title = (
                f'{kind} {name}, {steps} steps, batch {batch}, {inputs} to {hidden}, {layers} layer{"s" * (layers > 1)}'
            )
            print(f'{title:<58}{medians[0]:9.2f}{medians[1]:9.2f}', flush=True)

torch.set_num_threads(1)


def print_quartiles(title, times):
    quartiles = (statistics.quantiles(taken, n=4) for taken in times)
    print(f'{title:<46}' + ''.join(f'{1e6 * at:7.0f}' for each in quartiles for at in each), flush=True)


print(f'\n{"one thread":46}{"torch.nn":>21}{"paoding":>21}')
for kind in ('LSTM', 'GRU', 'RNN'):
    for steps, batch in ((1, 1), (10, 1), (10, 8)):
        for name, times in in_turns(kind, (steps, batch, 64, 64, 1), ROUNDS_OF_SMALL, time.thread_time):
            title = f'{kind} {name}, {steps} step{"s" * (steps > 1)}, batch {batch}, 64 to 64'
            print_quartiles(title, times)

LAYERS = [('LSTM', torch.float32, 'f32'), ('GRU', torch.float32, 'f32'), ('LSTM', torch.bfloat16, 'bf16')]
LAYERS.append(('LSTM', torch.float64, 'f64'))
print(f'\n{"one thread, forward, without gradients":46}{"torch.nn":>21}{"paoding":>21}')
for kind, dtype, text in LAYERS:
    for inputs, hidden in ((64, 64), (256, 512), (1024, 1024)):
        for steps, batch in ((1, 1), (1, 4), (1, 32), (4, 1), (16, 1), (64, 1), (64, 32)):
            sizes = (steps, batch, inputs, hidden, 1)
            rounds = max(9, ROUNDS_OF_SMALL // (1 + steps * batch * hidden * hidden // 500_000))
            for _, times in in_turns(kind, sizes, rounds, time.thread_time, CALLS[:1], dtype):
                print_quartiles(f'{kind} {text}, {steps} x {batch}, {inputs} to {hidden}', times)
