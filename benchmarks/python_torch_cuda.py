# SPDX-License-Identifier: Apache-2.0
"""benchmarks/python_torch_cuda.py [FOLDER] [--out FILE] [--seconds N]: paoding.torch beside torch.nn (cuDNN) on a GPU, of the
package in FOLDER (build/python). First whether both are right: results and gradients against torch.nn in f64, layers by
layers; then what they take, in turns, with TF32 as PyTorch allows it to recurrent layers: for calls one at a time (wall),
of that what the caller's thread is busy with (host), and as a CUDA graph that is replayed. JSON lines go to FILE, a table
comes last."""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import sys
import time

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--out', default='/dev/null')
arguments.add_argument('--seconds', type=float, default=150, help='no further case is begun then')
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))

import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence  # noqa: E402

import paoding.torch  # noqa: E402

start = time.perf_counter()
out = open(options.out, 'w', encoding='utf-8')
F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
NAMES = {F32: 'f32', F16: 'f16', BF16: 'bf16', F64: 'f64'}


def write(**row):
    print(json.dumps(row), file=out, flush=True)


def seconds_left():
    return options.seconds - (time.perf_counter() - start)


# ---- right or wrong ----

SIZES = [(7, 3, 5, 7), (20, 8, 64, 64), (33, 16, 80, 100), (64, 32, 512, 512), (12, 4, 256, 1024), (1, 1, 40, 40)]
MORE = [
    {'bidirectional': True},
    {'num_layers': 2, 'bidirectional': True},
    {'bias': False},
    {'batch_first': True},
    {'proj_size': 24},
    {'lengths': True},
    {'lengths': True, 'bidirectional': True},
    {'packed': True, 'num_layers': 2},
]


def cases_of(allows_tf32):
    for kind in ('LSTM', 'GRU', 'RNN'):
        dtypes = (F32, F16, BF16, F64, 'autocast') if not allows_tf32 else (F32,)
        for dtype in dtypes:
            for sizes in SIZES if dtype in (F32, F16, BF16) else SIZES[1:2]:
                yield kind, dtype, sizes, {}
            for more in MORE:
                if 'proj_size' in more and kind != 'LSTM':
                    continue
                yield kind, dtype, (17, 6, 48, 64), more
    if not allows_tf32:  # a relu whose sum rounds to the other side of 0 has another gradient
        yield 'RNN', F32, (20, 8, 64, 64), {'nonlinearity': 'relu'}


def run(module, x, states, lengths, packed, is_ours, autocast):
    """Results and gradients of one module; lengths by whatever it takes."""
    x = x.clone().requires_grad_(True)
    states = [state.clone().requires_grad_(True) for state in states]
    hx = tuple(states) if len(states) == 2 else states[0]
    with torch.autocast('cuda', BF16, enabled=autocast):
        if lengths is None:
            output, last = module(x, hx)
        elif is_ours and not packed:
            output, last = module(x, hx, lengths=lengths.cuda())
        else:
            output, last = module(pack_padded_sequence(x, lengths, module.batch_first, enforce_sorted=False), hx)
            output = pad_packed_sequence(output, module.batch_first, total_length=x.shape[1 if module.batch_first else 0])[0]
    last = last if isinstance(last, tuple) else (last,)
    generator = torch.Generator('cuda').manual_seed(5)
    loss = 0
    for each in (output, *last):
        seed = torch.randn(each.shape, generator=generator, device='cuda', dtype=F32)
        loss = loss + (each.to(F64 if each.dtype == F64 else F32) * seed).sum()
    loss.backward()
    torch.cuda.current_stream().synchronize()
    return [
        each.detach().to(F64)
        for each in (output, *last, x.grad, *(state.grad for state in states), *(p.grad for p in module.parameters()))
    ]


def distance(found, wanted):
    """The largest over all tensors, as a part of the largest element that is wanted of each."""
    most = 0.0
    for mine, each in zip(found, wanted, strict=True):
        if not torch.isfinite(mine).all():
            return float('inf')
        most = max(most, ((mine - each).abs().max() / each.abs().max().clamp_min(1e-3)).item())
    return most


def check(kind, dtype, sizes, more, allows_tf32):
    steps, batch, inputs, hidden = sizes
    more = dict(more)
    packed = more.pop('packed', False)
    has_lengths = more.pop('lengths', False) or packed
    autocast = dtype == 'autocast'
    stored = F32 if autocast else dtype
    lengths = torch.tensor([steps - (7 * i) % steps for i in range(batch)]) if has_lengths else None
    generator = torch.Generator('cuda').manual_seed(3)
    exact = getattr(torch.nn, kind)(inputs, hidden, device='cuda', dtype=F64, **more)
    with torch.no_grad():
        for each in exact.parameters():
            each.uniform_(-(hidden**-0.5), hidden**-0.5, generator=generator)
            each.copy_(each.to(stored))
    theirs = getattr(torch.nn, kind)(inputs, hidden, device='cuda', dtype=stored, **more)
    ours = getattr(paoding.torch, kind)(inputs, hidden, device='cuda', dtype=stored, **more)
    for each in (theirs, ours):
        each.load_state_dict(exact.state_dict())
    shape = (batch, steps, inputs) if more.get('batch_first') else (steps, batch, inputs)
    x = torch.randn(shape, generator=generator, device='cuda').to(stored)
    count = more.get('num_layers', 1) * (2 if more.get('bidirectional') else 1)
    widths = [more.get('proj_size') or hidden] + ([hidden] if kind == 'LSTM' else [])
    states = [torch.randn((count, batch, w), generator=generator, device='cuda').to(stored) for w in widths]
    wanted = run(exact, x.to(F64), [s.to(F64) for s in states], lengths, packed, False, False)
    row = {'kind': kind, 'dtype': 'autocast bf16' if autocast else NAMES[dtype], 'tf32': allows_tf32, 'sizes': sizes, **more}
    row.update({'lengths': has_lengths, 'packed': packed})
    try:
        their_error = distance(run(theirs, x, states, lengths, packed, False, autocast), wanted)
    except RuntimeError as error:  # what cuDNN does not take
        their_error, row['torch says'] = None, str(error).split('\n')[0][:100]
    error = distance(run(ours, x, states, lengths, packed, True, autocast), wanted)
    limit = {F32: 2e-2 if allows_tf32 else 1e-4, F16: 2e-2, BF16: 1e-1, F64: 1e-10}[BF16 if autocast else dtype]
    if autocast:  # torch.nn's is cast to f16, ours to bf16 as it is said
        allowed = limit / 5
    else:
        allowed = limit if their_error is None else max(4 * their_error, limit / 20)
    return {**row, 'error': error, 'error of torch.nn': their_error, 'ok': error <= allowed}


def check_all():
    """Many at a time, since kernels are made by the first call of each."""
    wrong, count, worst = [], 0, {}
    for allows_tf32 in (False, True):
        torch.backends.cudnn.allow_tf32 = allows_tf32
        torch.backends.cuda.matmul.allow_tf32 = allows_tf32  # which projections by torch.nn go by
        with concurrent.futures.ThreadPoolExecutor(14) as pool:
            cases = list(cases_of(allows_tf32))
            for case, row in zip(cases, pool.map(lambda case: attempt(*case, allows_tf32), cases)):
                write(what='right', **row)
                count += 1
                if not row['ok']:
                    wrong.append(row)
                key = row['dtype'] + (' TF32' if allows_tf32 else '')
                if 'error' in row:
                    before = worst.get(key, (0.0, 0.0))
                    worst[key] = max(before[0], row['error']), max(before[1], row['error of torch.nn'] or 0.0)
    torch.backends.cuda.matmul.allow_tf32 = False
    print(f'{count - len(wrong)} of {count} layers right ({time.perf_counter() - start:.0f} s); worst distance from f64, as')
    print('a part of the largest element, of results and gradients: ' +
          '; '.join(f'{key} {a:.1e} (torch.nn {b:.1e})' for key, (a, b) in worst.items()))
    for row in wrong:
        print('WRONG', json.dumps(row))


def attempt(kind, dtype, sizes, more, allows_tf32):
    try:
        return check(kind, dtype, sizes, more, allows_tf32)
    except Exception as error:  # a case that fails is a result
        return {'kind': kind, 'dtype': NAMES.get(dtype, dtype), 'tf32': allows_tf32, 'sizes': sizes, **more,
                'ok': False, 'failed': f'{type(error).__name__}: {error}'[:300]}


# ---- time ----

LAYERS = [  # steps, batch, inputs, hidden, layers
    (1, 1, 64, 64, 1),
    (10, 8, 64, 64, 1),
    (64, 1, 512, 512, 1),
    (64, 8, 512, 512, 1),
    (64, 32, 512, 512, 1),
    (64, 128, 512, 512, 1),
    (64, 64, 1024, 1024, 1),
    (50, 128, 256, 256, 2),
    (400, 16, 80, 256, 2),
]
MOST_CALLS, LEAST_SECONDS = 60, 0.04


def forward(module, x):
    with torch.no_grad():
        return module(x)[0]


def training(module, x):
    for each in module.parameters():
        each.grad = None
    output = module(x)[0]
    output.backward(output.detach())
    return output


def one(call):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    returned = time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter() - begin, returned - begin


def replays_of(call):
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


def replay_seconds(graph, times):
    before, after = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    before.record()
    for _ in range(times):
        graph.replay()
    after.record()
    after.synchronize()
    return before.elapsed_time(after) / 1e3 / times


def modules_of(kind, layer, dtype):
    steps, batch, inputs, hidden, layers = layer
    theirs = getattr(torch.nn, kind)(inputs, hidden, layers, device='cuda', dtype=dtype)
    ours = getattr(paoding.torch, kind)(inputs, hidden, layers, device='cuda', dtype=dtype)
    ours.load_state_dict(theirs.state_dict())
    return (theirs, ours), torch.randn(steps, batch, inputs, device='cuda', dtype=dtype)


def warm(kind, layer, dtype):
    (theirs, ours), x = modules_of(kind, layer, dtype)
    for call in (forward, training):
        call(ours, x)
        call(theirs, x)


def measure(kind, layer, dtype, name, call):
    modules, x = modules_of(kind, layer, dtype)
    calls = [lambda module=module: call(module, x) for module in modules]
    for each in calls:
        each(), one(each)
    seconds = max(one(each)[0] for each in calls)
    rounds = int(max(9, min(MOST_CALLS, LEAST_SECONDS / seconds)))
    walls, hosts = ([[], []] for _ in range(2))
    for _ in range(rounds):
        for i, each in enumerate(calls):
            wall, host = one(each)
            walls[i].append(wall), hosts[i].append(host)
    graphs = [replays_of(each) for each in calls]
    replays = [[], []]
    times = int(max(2, min(20, LEAST_SECONDS / 9 / seconds)))
    for _ in range(9):
        for i, graph in enumerate(graphs):
            replays[i].append(replay_seconds(graph, times))
    row = {'kind': kind, 'dtype': NAMES[dtype], 'layer': layer, 'call': name, 'rounds': rounds}
    for what, both in (('wall', walls), ('host', hosts), ('replay', replays)):
        for who, taken in zip(('torch.nn', 'paoding'), both):
            row[f'{what} us {who}'] = [round(1e6 * at, 1) for at in statistics.quantiles(taken, n=4)]
    write(what='time', **row)
    numbers = [row[f'{what} us {who}'][1] for what in ('wall', 'host', 'replay') for who in ('torch.nn', 'paoding')]
    return f'{kind:<5}{NAMES[dtype]:<5}{name:<9}{" ".join(map(str, layer)):<20}' + ''.join(f'{n:10.1f}' for n in numbers)


def main():
    print(f'PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name()}')
    write(what='machine', torch=torch.__version__, cudnn=torch.backends.cudnn.version(), gpu=torch.cuda.get_device_name())
    check_all()
    cases = [(kind, layer, F32) for kind in ('LSTM', 'GRU') for layer in LAYERS]
    cases += [('LSTM', layer, BF16) for layer in LAYERS] + [('RNN', layer, F32) for layer in LAYERS[2:5]]
    cases += [(kind, layer, F16) for kind in ('LSTM', 'GRU') for layer in LAYERS[4:6]]
    torch.backends.cudnn.allow_tf32 = True
    with concurrent.futures.ThreadPoolExecutor(14) as pool:
        list(pool.map(lambda case: warm(*case), cases))
    torch.cuda.synchronize()
    print(f'kernels made after {time.perf_counter() - start:.0f} s', flush=True)
    lines = []
    for case in cases:
        for name, call in (('forward', forward), ('training', training)):
            if seconds_left() < 0:
                print('no time left for', *case, name)
                continue
            try:
                lines.append(measure(*case, name, call))
            except Exception as error:  # the others still count
                lines.append(f'{case} {name}: {type(error).__name__}: {error}'[:200])
                write(what='failed', case=[*map(str, case), name], error=str(error)[:500])
                torch.cuda.synchronize()
    print(f'\nmedians, us; layer: steps, batch, inputs, hidden, layers; f32 with TF32 ({time.perf_counter() - start:.0f} s)')
    print(f'{"":39}{"wall nn":>10}{"paoding":>10}{"host nn":>10}{"paoding":>10}{"replay nn":>10}{"paoding":>10}')
    print('\n'.join(lines))


main()
