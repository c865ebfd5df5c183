# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python_torch_calls.py [FOLDER] [--device cuda] [--profile]: where the calls of small layers of paoding.torch
(of the package in FOLDER, build/python) spend their caller's time: whole calls beside torch.nn's, in turns, and what they
consist of, each by itself. Medians in us. --profile adds Python's functions by their own time."""

import argparse
import cProfile
import pathlib
import pstats
import statistics
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--device', default='cpu')
arguments.add_argument('--profile', action='store_true')
arguments.add_argument('--rounds', type=int, default=400)
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))

import torch  # noqa: E402

import paoding.torch  # noqa: E402
from paoding.torch import _recurrence  # noqa: E402
from paoding.torch._memory import current_stream  # noqa: E402

device = torch.device(options.device, 0) if options.device == 'cuda' else torch.device('cpu')
torch.set_num_threads(1)
LAYERS = [(1, 1, 64, 64), (10, 8, 64, 64)]  # steps, batch, inputs, hidden


def wait():
    if device.type == 'cuda':
        torch.cuda.synchronize()


def medians(calls, rounds=options.rounds):
    """What the caller's thread is busy with, of several calls in turns."""
    for call in calls:
        for _ in range(5):
            call()
    taken = [[] for _ in calls]
    for _ in range(rounds):
        for i, call in enumerate(calls):
            wait()
            begin = time.perf_counter()
            call()
            taken[i].append(time.perf_counter() - begin)
    wait()
    return [1e6 * statistics.median(each) for each in taken]


def training(module, x):
    for each in module.parameters():
        each.grad = None
    output = module(x)[0]
    output.backward(output.detach())


def without_gradients(module, x):
    with torch.no_grad():
        module(x)


class Nothing(torch.autograd.Function):
    """What autograd takes for a function of these tensors whose passes only make room for what they give."""

    @staticmethod
    def forward(ctx, x, w, u, b_ih, b_hh):
        ctx.save_for_backward(x, w, u)
        return x.new_empty((*x.shape[:2], u.shape[1]))

    @staticmethod
    def backward(ctx, d):
        x, w, u = ctx.saved_tensors
        d_b = x.new_empty(w.shape[0])
        return None, x.new_empty(w.shape), x.new_empty(u.shape), d_b, d_b


class Around(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        parameters = self.layer._parameters
        of = (parameters[name] for name in ('weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0'))
        return (Nothing.apply(x, *of),)


def parts_of(kind, ours, x):
    """The calls of our kernels themselves, on memory that is there."""
    cell = kind.lower() if kind != 'RNN' else 'rnn_tanh'
    steps, batch, _ = x.shape
    w, u, b_ih, b_hh = (each.detach() for each in ours.parameters())
    hidden = u.shape[1]
    plan = _recurrence._plan(cell, x, hidden, False, False, True, True, True)
    zeros = torch.zeros(batch * hidden, device=device)
    states, last_h, last_c = (x.new_empty((n, batch, hidden)) for n in (steps + 1, 1, 1))
    saved = x.new_empty(max(plan.saved, 1), dtype=torch.uint8)
    room = x.new_empty(max(plan.forward_bytes, plan.backward_bytes, 1), dtype=torch.uint8)
    of_cell = (zeros.data_ptr(), last_c.data_ptr()) if kind == 'LSTM' else (0, 0)
    forward = [x.data_ptr(), w.data_ptr(), u.data_ptr(), b_ih.data_ptr(), zeros.data_ptr(), of_cell[0], 0]
    forward += [states.data_ptr(), last_h.data_ptr(), of_cell[1], saved.data_ptr() if plan.saved else 0]
    forward += [room.data_ptr(), b_hh.data_ptr()]
    d_states, d_w, d_u, d_b, d_b_hh = (torch.empty_like(each) for each in (states[1:], w, u, b_ih, b_hh))
    backward = [x.data_ptr(), w.data_ptr(), u.data_ptr(), zeros.data_ptr(), 0, states.data_ptr()]
    backward += [saved.data_ptr() if plan.saved else 0, d_states.data_ptr(), 0, 0, 0, d_w.data_ptr(), d_u.data_ptr()]
    backward += [d_b.data_ptr(), 0, 0, room.data_ptr(), d_b_hh.data_ptr()]
    alive = (w, u, b_ih, b_hh, zeros, states, last_h, last_c, saved, room, d_states, d_w, d_u, d_b, d_b_hh)
    return [
        ('our forward kernels', lambda _=alive: plan.kernels.forward(*forward, current_stream(device))),
        ('our backward kernels', lambda: plan.kernels.backward(*backward, current_stream(device))),
        ('finding the plan', lambda: _recurrence._plan(cell, x, hidden, False, False, True, True, True)),
        ('one new tensor', lambda: x.new_empty((steps + 1, batch, hidden))),
        ('one new small tensor', lambda: x.new_empty(4 * hidden)),
    ]


def profile(call):
    profiler = cProfile.Profile()
    for _ in range(20):
        call()
    profiler.enable()
    for _ in range(options.rounds):
        call()
    profiler.disable()
    wait()
    rows = sorted(pstats.Stats(profiler).stats.items(), key=lambda row: -row[1][2])[:22]
    for (file, line, name), (calls, _, own, whole, _) in rows:
        place = f'{pathlib.Path(file).name}:{line} ' if line else ''
        per = options.rounds
        print(f'      {1e6 * own / per:8.1f} us own {1e6 * whole / per:8.1f} with callees {calls / per:5.1f} x  {place}{name}')


def main():
    where = torch.cuda.get_device_name() if device.type == 'cuda' else 'CPU, 1 thread'
    print(f'PyTorch {torch.__version__}, {where}; what the caller is busy with, medians in us')
    for kind in ('LSTM', 'GRU', 'RNN'):
        for steps, batch, inputs, hidden in LAYERS:
            theirs = getattr(torch.nn, kind)(inputs, hidden, device=device)
            ours = getattr(paoding.torch, kind)(inputs, hidden, device=device)
            ours.load_state_dict(theirs.state_dict())
            x, around = torch.randn(steps, batch, inputs, device=device), Around(ours)
            print(f'{kind} {steps} {batch} {inputs} {hidden}')
            for name, call in (
                ('training', training),
                ('forward pass for training', lambda module, x: module(x)),
                ('forward without gradients', without_gradients),
            ):
                nn, mine = medians([lambda: call(theirs, x), lambda: call(ours, x)])
                print(f'   {name:<28} torch.nn {nn:8.1f}   paoding {mine:8.1f}')
            parts = [('autograd around nothing', lambda: training(around, x)), *parts_of(kind, ours, x)]
            for (name, _), taken in zip(parts, medians([call for _, call in parts]), strict=True):
                print(f'      {name:<25} {taken:8.1f}')
            if options.profile and steps == 1:
                profile(lambda: training(ours, x))


main()
