# SPDX-License-Identifier: Apache-2.0
"""benchmarks/attention_cpu.py [FOLDER [OUT]]: attention alone on the CPU, the package in FOLDER (build/python) beside PyTorch's
scaled_dot_product_attention, called eagerly, and our composition of products and a softmax, in turns in one process, with as
many threads as OMP_NUM_THREADS says. Forward is without gradients; backward is a call of both less the forward call of the
same round. OUT is a JSON file of medians and quartiles in ms, and of multiplications with their additions a second."""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()))

import torch  # noqa: E402

import paoding as pd  # noqa: E402

ROUNDS = int(os.environ.get('ROUNDS', '25'))
# dtype, batch, heads, heads of keys, queries, keys, width, causal
CASES = [
    ('f32', 1, 12, 12, 1024, 1024, 64, True), ('f32', 1, 12, 12, 1024, 1024, 64, False),
    ('f32', 1, 12, 4, 1024, 1024, 64, True), ('f32', 1, 1, 1, 1024, 1024, 64, True),
    ('f32', 8, 12, 12, 1024, 1024, 64, True), ('f32', 1, 16, 16, 2048, 2048, 128, True),
    ('f32', 4, 4, 4, 256, 256, 16, True), ('f32', 8, 8, 8, 256, 256, 64, True),
    ('f32', 32, 8, 8, 50, 50, 64, False), ('f32', 8, 8, 8, 1, 1024, 64, False),
    ('bf16', 1, 12, 12, 1024, 1024, 64, True), ('bf16', 1, 12, 12, 1024, 1024, 64, False),
]
DTYPES = {'f32': torch.float32, 'bf16': torch.bfloat16}


def program(case, is_training, disabled=()):
    """Inputs are parameters, and one number of a row is fetched: nothing but attention is timed."""
    dtype, batch, heads, key_heads, queries, keys, width, causal = case
    with pd.Graph() as graph:
        q, w = (graph.parameter(name, dtype, (batch, heads, queries, width), pd.nn.normal(0, 1)) for name in 'qw')
        k, v = (graph.parameter(name, dtype, (batch, key_heads, keys, width), pd.nn.normal(0, 1)) for name in 'kv')
        made = [pd.scaled_dot_product_attention(q, k, v, causal=causal)]
        if is_training:
            made += pd.gradients([made[0]], [q, k, v], [w])
        for number, value in enumerate(made):
            graph.fetch(f'y{number}', value[:, :, :1, :1])
    return pd.Program(graph, pd.Parameters(graph, seed=1), disabled_passes=list(disabled))


def peer(case):
    dtype, batch, heads, key_heads, queries, keys, width, causal = case
    q, w = (torch.randn(batch, heads, queries, width, dtype=DTYPES[dtype]) for _ in 'qw')
    k, v = (torch.randn(batch, key_heads, keys, width, dtype=DTYPES[dtype]) for _ in 'kv')
    options = {'is_causal': causal, 'enable_gqa': heads != key_heads}
    attend = torch.nn.functional.scaled_dot_product_attention

    def forward():
        with torch.no_grad():
            attend(q, k, v, **options)

    given = [x.clone().requires_grad_() for x in (q, k, v)]
    return forward, lambda: torch.autograd.grad(attend(*given, **options), given, w)


def seconds(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def summary(times, flops):
    times = sorted(times)
    low, middle, high = statistics.quantiles(times, n=4)
    return {'ms': round(1e3 * statistics.median(times), 4), 'quartiles': [round(1e3 * low, 4), round(1e3 * high, 4)],
            'gflops': round(flops / middle / 1e9, 1)}


def measured(case):
    dtype, batch, heads, key_heads, queries, keys, width, causal = case
    composed = ('claim_composed',)
    calls = {'paoding': (program(case, False), program(case, True)),
             'composition': (program(case, False, composed), program(case, True, composed)), 'torch': peer(case)}
    times = {name: ([], []) for name in calls}
    for turn in range(ROUNDS + 2):
        for name, (forward, both) in calls.items():
            first = seconds(forward)
            second = seconds(both) - first
            if turn >= 2:
                times[name][0].append(first)
                times[name][1].append(second)
    flops = 4 * batch * heads * queries * keys * width * (0.5 if causal else 1)
    row = dict(zip(('dtype', 'batch', 'heads', 'key_heads', 'queries', 'keys', 'width', 'causal'), case))
    for name, (forward, backward) in times.items():
        row[name] = {'forward': summary(forward, flops), 'backward': summary(backward, 2.5 * flops)}
    for other in ('torch', 'composition'):
        row[f'{other}_over_paoding'] = {
            part: round(row[other][part]['ms'] / row['paoding'][part]['ms'], 2) for part in ('forward', 'backward')}
    return row


def main():
    cpu = next((line.split(':')[1].strip() for line in open('/proc/cpuinfo') if line.startswith('model name')), '')
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True, check=False).stdout
    made = {'command': 'OMP_NUM_THREADS=2 benchmarks/attention_cpu.py', 'commit': commit.strip(), 'machine': cpu,
            'threads': torch.get_num_threads(), 'torch': torch.__version__, 'rounds': ROUNDS, 'rows': []}
    for case in CASES:
        row = measured(case)
        made['rows'].append(row)
        print(*case, row['torch_over_paoding'], row['composition_over_paoding'], row['paoding'], row['torch'], flush=True)
    if len(sys.argv) > 2:
        pathlib.Path(sys.argv[2]).write_text(json.dumps(made, indent=1) + '\n')


if __name__ == '__main__':
    main()
