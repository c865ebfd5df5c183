# SPDX-License-Identifier: Apache-2.0
"""benchmarks/torch_compile_models.py [FOLDER]: seven models of recurrence as PyTorch's users write them, eager, compiled by
Inductor (default, and reduce-overhead) and by torch.compile(backend='paoding'), with the package in FOLDER (build/python).

For each: the result and gradients beside float64; then wall time, in turns, of a training step (forward, loss, backward,
Adam(fused=True).step()) and of an inference call; the seconds of the first training step and call, which compile; and the most
memory that a training step allocates. TF32 is on. Inductor takes a minute and more for models that are unrolled over time: it gets
those with --slow only. JSON goes to --out, a table comes last."""

import argparse
import copy
import cProfile
import datetime
import json
import pathlib
import pstats
import statistics
import subprocess
import sys
import time
import types

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--device', default='cuda', choices=('cuda', 'cpu'))
arguments.add_argument('--only', default='', help='models whose names contain one of these words, separated by commas')
arguments.add_argument('--ways', default='', help='ways whose names contain one of these words')
arguments.add_argument('--slow', action='store_true', help='Inductor for models that are unrolled over time, too')
arguments.add_argument('--seconds', type=float, default=240, help='no further model is begun then')
arguments.add_argument('--turns', type=int, default=5)
arguments.add_argument('--turn-seconds', type=float, default=0.25)
arguments.add_argument('--small', action='store_true', help='small sizes, to try the script itself')
arguments.add_argument('--profile', action='store_true', help='the kernels of a training step, by PyTorch\'s profiler')
arguments.add_argument('--host', action='store_true', help='where Python\'s time in a training step goes, by cProfile')
arguments.add_argument('--out', default='')
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))

import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import paoding.torch  # noqa: E402, F401

start = time.perf_counter()
DEVICE = torch.device(options.device)
IS_GPU = DEVICE.type == 'cuda'
torch.backends.cuda.matmul.allow_tf32 = True
torch.backends.cudnn.allow_tf32 = True
torch._dynamo.config.recompile_limit = 64  # the ways share their models' code


# ---- models ----


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(20000, 300), nn.LSTM(300, 512, 2, batch_first=True, dropout=0.2)
        self.out = nn.Linear(512, 20)

    def forward(self, ids):
        return self.out(self.layers(self.words(ids))[0][:, -1])


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20000, 128)
        self.layers = nn.LSTM(128, 256, 1, batch_first=True, bidirectional=True)
        self.out = nn.Linear(512, 40)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.words(ids), lengths, batch_first=True, enforce_sorted=False)
        y = pad_packed_sequence(self.layers(packed)[0], batch_first=True, total_length=ids.shape[1])[0]
        return self.out(y)


class TextRecognition(nn.Module):
    def __init__(self):
        super().__init__()
        widths, parts = [1, 64, 128, 256, 256, 512], []
        for i in range(5):
            parts += [nn.Conv2d(widths[i], widths[i + 1], 3, padding=1), nn.BatchNorm2d(widths[i + 1]), nn.ReLU()]
            parts.append(nn.MaxPool2d((2, 2) if i < 2 else (2, 1)))
        self.images = nn.Sequential(*parts)
        self.layers, self.out = nn.LSTM(512, 256, 2, bidirectional=True), nn.Linear(512, 96)

    def forward(self, x):
        return self.out(self.layers(self.images(x).squeeze(2).permute(2, 0, 1))[0])


class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.sound = nn.Sequential(
            *(nn.Conv2d(1, 32, (41, 11), (2, 2), (20, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
            *(nn.Conv2d(32, 32, (21, 11), (2, 1), (10, 5)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20)),
        )
        self.layers, self.out = nn.GRU(32 * 41, 512, 3, bidirectional=True), nn.Linear(1024, 29)

    def forward(self, x):
        y = self.sound(x)
        y = y.view(y.shape[0], -1, y.shape[3]).permute(2, 0, 1)
        return self.out(self.layers(y)[0]).log_softmax(-1)


class OwnCell(nn.Module):
    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(256, 1024), nn.Linear(256, 1024, bias=False)
        self.norm = nn.LayerNorm(1024)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], 256, device=x.device, dtype=x.dtype)
        y = []
        for t in range(x.shape[0]):
            i, f, g, o = self.norm(self.x(x[t]) + self.h(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            y.append(h)
        return torch.stack(y)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.cell = nn.Embedding(8000, 256), nn.LSTMCell(768, 512)
        self.query, self.out = nn.Linear(512, 512, bias=False), nn.Linear(1024, 8000)

    def forward(self, memory, ids):
        h = c = feed = torch.zeros(memory.shape[0], 512, device=memory.device, dtype=memory.dtype)
        y = []
        for t in range(ids.shape[1]):
            h, c = self.cell(torch.cat([self.words(ids[:, t]), feed], 1), (h, c))
            weights = torch.softmax(torch.bmm(memory, self.query(h).unsqueeze(2)).squeeze(2), 1)
            feed = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            y.append(torch.cat([h, feed], 1))
        return self.out(torch.stack(y, 1))


def labelled(y):
    return F.cross_entropy(y.reshape(-1, y.shape[-1]), torch.arange(y.numel() // y.shape[-1], device=y.device) % y.shape[-1])


def cases():
    """Name, class, whether Inductor unrolls it, a function that makes the inputs, the loss."""
    b, t = (4, 6) if options.small else (64, 100)

    def randn(*shape):
        return torch.randn(*shape, device=DEVICE)

    def ids(most, *shape):
        return torch.randint(0, most, shape, device=DEVICE)

    yield 'classifier, B 64 T 100', Classifier, False, lambda: (ids(20000, b, t),), labelled
    yield 'tagger, packed', Tagger, False, lambda: (ids(20000, b, t), torch.randint(min(5, t), t + 1, (b,))), labelled
    yield 'CRNN', TextRecognition, False, lambda: (randn(b, 1, 32, 32 if options.small else 256),), labelled
    yield 'speech', Speech, False, lambda: (randn(b // 4, 1, 161, 40 if options.small else 400),), lambda y: -y.max(-1)[0].mean()
    yield 'classifier, B 1 T 100', Classifier, False, lambda: (ids(20000, 1, t),), labelled
    t = 6 if options.small else 64
    yield 'own cell, T 64 B 32', OwnCell, True, lambda: (randn(t, b // 2, 256),), lambda y: y.square().mean()
    s = 6 if options.small else 50
    yield 'decoder, T 50 B 64', Decoder, True, lambda: (randn(b, s, 512), ids(8000, b, s)), labelled


WAYS = {
    'eager': None,
    'inductor': {},
    'inductor, reduce-overhead': {'mode': 'reduce-overhead'},
    'paoding': {'backend': 'paoding'},
    'paoding, without graphs': {'backend': 'paoding', 'options': {'uses_graph': False}},
}


# ---- one way of one model ----


def wait():
    if IS_GPU:
        torch.cuda.synchronize()


def relative(value, exact):
    return float((value.double() - exact).norm() / exact.norm().clamp_min(1e-300))


def error_of(model, inputs, loss, exact):
    """The largest relative error of the loss and of a gradient, in the norm, against float64."""
    value = loss(model(*inputs))
    value.backward()
    errors = [relative(value.detach(), exact['loss'])]
    # A gradient that is zero but for rounding has no relative error: it is compared with the largest of all.
    largest = max(each.norm() for each in exact['gradients'].values())
    for name, parameter in model.named_parameters():
        wanted = exact['gradients'][name.removeprefix('_orig_mod.')]
        errors.append(float((parameter.grad.double() - wanted).norm() / wanted.norm().clamp_min(1e-3 * largest)))
    return max(errors)


def exact_of(model, inputs, loss):
    wide = copy.deepcopy(model).double()
    wide.train()
    value = loss(wide(*(each.double() if each.is_floating_point() else each for each in inputs)))
    value.backward()
    return {'loss': value.detach(), 'gradients': {name: each.grad for name, each in wide.named_parameters()}}


def copy_of(model):
    """With code of its own: Dynamo remembers of code that one backend could make nothing of it, and then tries no other."""
    made = copy.deepcopy(model)
    old = type(made).forward
    forward = types.FunctionType(old.__code__.replace(), old.__globals__, old.__name__, old.__defaults__, old.__closure__)
    made.__class__ = type(type(made).__name__, (type(made),), {'forward': forward})
    return made


class Way:
    """A model of its own with its optimizer, one way to run it."""

    def __init__(self, model, settings, inputs, loss):
        self.model = copy_of(model)
        self.run = self.model if settings is None else torch.compile(self.model, **settings)
        self.adam = torch.optim.Adam(self.model.parameters(), fused=True)
        self.inputs, self.loss = inputs, loss

    def train(self):
        self.adam.zero_grad(set_to_none=True)
        self.loss(self.run(*self.inputs)).backward()
        self.adam.step()

    def infer(self):
        with torch.no_grad():
            self.run(*self.inputs)


def first(call):
    begin = time.perf_counter()
    call()
    wait()
    return time.perf_counter() - begin


def in_turns(calls):
    """Of each the median, least and most of the turns' milliseconds a call."""
    calls = {name: call for name, call in calls.items() if call is not None}
    counts = {}
    for name, call in calls.items():
        for _ in range(3):
            call()
        wait()
        counts[name] = max(2, int(options.turn_seconds / max(first(call), 1e-5)))
    turns = {name: [] for name in calls}
    for _ in range(options.turns):
        for name, call in calls.items():
            wait()
            begin = time.perf_counter()
            for _ in range(counts[name]):
                call()
            wait()
            turns[name].append((time.perf_counter() - begin) * 1e3 / counts[name])
    return {
        name: {'ms': round(statistics.median(each), 4), 'least': round(min(each), 4), 'most': round(max(each), 4)}
        for name, each in turns.items()
    }


def measured(name, kind, is_unrolled, make_inputs, loss):
    torch.manual_seed(5)
    model = kind().to(DEVICE)
    inputs = make_inputs()
    row = {'model': name, 'ways': {}}
    plain = copy.deepcopy(model)
    for each in plain.modules():
        if isinstance(each, nn.RNNBase):
            each.dropout = 0.0
    exact = exact_of(plain, inputs, loss)
    ways = {}
    for way, settings in WAYS.items():
        wanted = not options.ways or any(word in way for word in options.ways.split(','))
        if not wanted or (is_unrolled and 'inductor' in way and not options.slow):
            continue
        torch._dynamo.reset()
        found = row['ways'][way] = {}
        try:
            checked = copy_of(plain)
            run = checked if settings is None else torch.compile(checked, **settings)
            begin = time.perf_counter()
            found['error'] = error_of(run, inputs, loss, exact)
            found['compile_s'] = round(time.perf_counter() - begin, 2)
            ways[way] = Way(model, settings, inputs, loss)
        except Exception as error:  # the others are measured all the same
            found['failed'] = f'{type(error).__name__}: {str(error)[:400]}'
    for phase in ('train', 'infer'):
        calls, before = {}, 0
        for way, made in ways.items():
            try:
                made.run.train(phase == 'train')
                call = made.train if phase == 'train' else made.infer
                if IS_GPU:
                    torch.cuda.reset_peak_memory_stats()
                    before = torch.cuda.memory_allocated()
                row['ways'][way][f'first_{phase}_s'] = round(first(call), 2)
                first(call)
                if IS_GPU:
                    torch.cuda.reset_peak_memory_stats()
                    first(call)
                    row['ways'][way][f'{phase}_mb'] = round((torch.cuda.max_memory_allocated() - before) / 1e6, 1)
                calls[way] = call
            except Exception as error:
                row['ways'][way]['failed'] = f'{phase}: {type(error).__name__}: {str(error)[:400]}'
        if options.profile and IS_GPU and phase == 'train':
            for way, call in calls.items():
                row['ways'][way]['gpu_busy_ms'] = profiled(way, call)
        if options.host and phase == 'train':
            for way, call in calls.items():
                host_profiled(way, call)
        for way, times in in_turns(calls).items():
            row['ways'][way][phase] = times
    return row


def profiled(way, train):
    """Prints the kernels of a training step that take longest; returns the ms in which the GPU is busy."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as seen:
        for _ in range(4):
            train()
        wait()

    def is_kernel(each, name):  # PyTorch marks the optimizer's calls on the GPU's line too
        return each.device_type.name == 'CUDA' and 'Optimizer.' not in name

    kernels = [each for each in seen.key_averages() if each.self_device_time_total > 0 and is_kernel(each, each.key)]
    kernels.sort(key=lambda each: -each.self_device_time_total)
    total = sum(each.self_device_time_total for each in kernels) / 4000
    # A kernel that is launched before the one in front of it has ended (PDL) waits inside, so times overlap.
    busy, end = 0.0, 0.0
    spans = [each.time_range for each in seen.events() if is_kernel(each, each.name)]
    for span in sorted(spans, key=lambda each: each.start):
        busy += max(0.0, span.end - max(span.start, end))
        end = max(end, span.end)
    count = sum(each.count for each in kernels) / 4
    print(f'  {way}: GPU busy {busy / 4000:.3f} ms of a step; {count:.0f} kernels, {total:.3f} ms if none overlapped')
    for each in kernels[:14]:
        print(f'    {each.self_device_time_total / 4000:8.4f} ms  {each.count / 4:6.1f} x {each.key[:110]}')
    return round(busy / 4000, 4)


def host_profiled(way, train):
    """What a step takes until its last kernel is launched, and the functions in which Python spends it (cProfile makes each
    call dearer, so their shares count, not their times)."""
    steps = 20
    for _ in range(3):
        train()
    wait()
    begin = time.perf_counter()
    for _ in range(steps):
        train()
    launched = (time.perf_counter() - begin) * 1e3 / steps
    wait()
    seen = cProfile.Profile()
    with torch.autograd.set_multithreading_enabled(False):  # so that the backward pass is seen too
        train()
        seen.enable()
        for _ in range(steps):
            train()
        seen.disable()
    wait()
    print(f'  {way}: {launched:.3f} ms a step until all is launched')
    entries = sorted(pstats.Stats(seen).stats.items(), key=lambda each: -each[1][2])
    for (file, line, function), (_, calls, own, whole, _) in entries[:28]:
        place = f'{pathlib.Path(file).name}:{line} {function}'
        print(f'    own {own * 1e3 / steps:7.4f} ms  whole {whole * 1e3 / steps:7.4f} ms  {calls / steps:6.1f} x {place[:90]}')


def shown(row):
    print(row['model'])
    for way, found in row['ways'].items():
        if 'failed' in found:
            print(f'  {way:28} failed: {found["failed"][:300]}')
        train, infer = found.get('train', {}).get('ms', 0), found.get('infer', {}).get('ms', 0)
        print(
            f'  {way:28} training {train:8.3f} ms  inference {infer:8.3f} ms  first {found.get("first_train_s", 0):6.1f} s'
            f' + {found.get("first_infer_s", 0):5.1f} s  error {found.get("error", 0):.1e}  {found.get("train_mb", 0):7.1f} MB',
            flush=True,
        )


def keep(rows):
    if not options.out:
        return
    commit = subprocess.run(['git', 'describe', '--always', '--dirty'], capture_output=True, text=True, check=False)
    bundle = pathlib.Path(options.folder).resolve().parent / 'commit'
    result = {
        'command': ' '.join(['benchmarks/torch_compile_models.py', *sys.argv[1:]]),
        'date': datetime.date.today().isoformat(),
        'commit': bundle.read_text().strip() if bundle.exists() else commit.stdout.strip(),
        'machine': torch.cuda.get_device_name() if IS_GPU else 'CPU',
        'torch': torch.__version__,
        'rows': rows,
    }
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + '\n')


def main():
    rows = []
    for name, *rest in cases():
        if options.only and not any(word in name for word in options.only.split(',')):
            continue
        if time.perf_counter() - start > options.seconds:
            print(f'{name}: not begun, {options.seconds} s are over')
            continue
        rows.append(measured(name, *rest))
        shown(rows[-1])
        keep(rows)
        torch._dynamo.reset()


main()
