# SPDX-License-Identifier: Apache-2.0
"""torch.nn's behaviours beside ours: the table of docs/reference/torch_nn.md is what these tests find."""

import copy
import io
import os
import pathlib
import pickle
import warnings

import pytest

from torch_or_skip import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pack_sequence

import paoding.torch as pt

PAGE = pathlib.Path(__file__).resolve().parents[2] / 'docs/reference/torch_nn.md'
BEGIN, END = '<!-- table of test_torch_beside.py -->\n', '<!-- end -->'
KINDS = ('LSTM', 'GRU', 'RNN')
TIME, BATCH, INPUTS, HIDDEN = 5, 3, 4, 8

CASES = []  # (section, name, what it does with a layer of a class: made(kind, **options) gives it)


def case(section, name, **options):
    """Registers a behaviour: a function of a layer (made with `options`), whose result or error is compared."""

    def registered(run):
        CASES.append((section, name, options, run))
        return run

    return registered


def x(*shape, dtype=torch.float32, grad=False, device=None):
    made = torch.randn(*(shape or (TIME, BATCH, INPUTS)), generator=torch.Generator().manual_seed(5)).to(dtype)
    return made.to(device).requires_grad_(grad) if device or grad else made


def states(layer, batch=BATCH, dtype=torch.float32, count=None):
    count = count or layer.num_layers * (2 if layer.bidirectional else 1)
    h = torch.randn(count, batch, layer.proj_size or layer.hidden_size, generator=torch.Generator().manual_seed(6)).to(dtype)
    c = torch.randn(count, batch, layer.hidden_size, generator=torch.Generator().manual_seed(7)).to(dtype)
    return (h, c) if layer.mode == 'LSTM' else h


def gradients(layer, results):
    loss = sum((each * each).sum() for each in flat(results) if each.requires_grad)
    loss.backward()
    return [results, [p.grad for p in layer.parameters()]]


def flat(tree):
    if isinstance(tree, torch.Tensor):
        return [tree]
    return [each for part in tree for each in flat(part)] if isinstance(tree, (list, tuple)) else []


# ---- options of the constructor ----
for text, options in {
    'one layer': {},
    'num_layers=3': {'num_layers': 3},
    'bidirectional=True': {'bidirectional': True},
    'bidirectional=True, num_layers=2': {'bidirectional': True, 'num_layers': 2},
    'bias=False': {'bias': False},
    'batch_first=True': {'batch_first': True},
    'dropout=0.5 in eval()': {'dropout': 0.5, 'num_layers': 2},
    'dtype=torch.float64': {'dtype': torch.float64},
    'dtype=torch.bfloat16': {'dtype': torch.bfloat16},
}.items():
    dtype = options.get('dtype', torch.float32)

    @case('Constructor', text, **options)
    def run(layer, dtype=dtype, evaluates='eval' in text):
        return layer.eval()(x(dtype=dtype)) if evaluates else gradients(layer, layer(x(dtype=dtype)))


@case('Constructor', 'repr')
def run(layer):
    return repr(layer)


@case('Constructor', 'names and shapes of state_dict()', num_layers=2, bidirectional=True)
def run(layer):
    return [(name, tuple(each.shape)) for name, each in layer.state_dict().items()]


@case('Constructor', 'reset_parameters() by a seed')
def run(layer):
    torch.manual_seed(3)
    layer.reset_parameters()
    return list(layer.parameters())


for text, options in {
    'hidden_size=0': {'hidden_size': 0},
    'num_layers=0': {'num_layers': 0},
    'dropout=2': {'dropout': 2.0},
    'proj_size above hidden_size': {'proj_size': 9},
}.items():

    @case('Constructor', text, late=True, **options)
    def run(make):
        return make() and None


# ---- inputs ----
@case('Inputs', 'no batch: [time, features]')
def run(layer):
    return layer(x(TIME, INPUTS))


@case('Inputs', 'no batch, with a state')
def run(layer):
    state = states(layer)
    state = tuple(each[:, 0] for each in state) if isinstance(state, tuple) else state[:, 0]
    return layer(x(TIME, INPUTS), state)


@case('Inputs', 'no rows')
def run(layer):
    return layer(x(TIME, 0, INPUTS))


@case('Inputs', 'no steps')
def run(layer):
    return layer(x(0, BATCH, INPUTS))


@case('Inputs', 'one step')
def run(layer):
    return layer(x(1, BATCH, INPUTS))


@case('Inputs', 'strides of a transposed tensor')
def run(layer):
    return layer(x(BATCH, TIME, INPUTS).transpose(0, 1))


@case('Inputs', 'every second step of a tensor')
def run(layer):
    return layer(x(2 * TIME, BATCH, INPUTS)[::2])


@case('Inputs', 'a row that is expanded')
def run(layer):
    return layer(x(TIME, 1, INPUTS).expand(TIME, BATCH, INPUTS))


@case('Inputs', 'f64 into f32 weights')
def run(layer):
    return layer(x(dtype=torch.float64))


@case('Inputs', 'bf16 into f32 weights')
def run(layer):
    return layer(x(dtype=torch.bfloat16))


@case('Inputs', 'integers')
def run(layer):
    return layer(torch.ones(TIME, BATCH, INPUTS, dtype=torch.int64))


@case('Inputs', 'other features than input_size')
def run(layer):
    return layer(x(TIME, BATCH, INPUTS + 1))


@case('Inputs', 'four axes')
def run(layer):
    return layer(x(2, TIME, BATCH, INPUTS))


@case('Inputs', 'a NaN in one row stays in it')
def run(layer):
    made = x().clone()
    made[2, 1] = float('nan')
    return layer(made)


@case('Inputs', 'the meta device', device='meta')
def run(layer):
    output, state = layer(x(device='meta'))
    return [(tuple(each.shape), str(each.device)) for each in flat([output, state])]


@case('Inputs', 'autocast to bf16: dtype of the output')
def run(layer):
    with torch.autocast('cpu', torch.bfloat16):
        return str(layer(x())[0].dtype)


# ---- states ----
@case('States', 'a state of every layer', num_layers=2, bidirectional=True)
def run(layer):
    return gradients(layer, layer(x(), states(layer)))


@case('States', 'as a list')
def run(layer):
    state = states(layer)
    return layer(x(), list(state)) if isinstance(state, tuple) else layer(x(), state)


@case('States', 'fed back: h, c of a call into the next')
def run(layer):
    return layer(x(), layer(x())[1])


@case('States', 'of another batch')
def run(layer):
    return layer(x(), states(layer, batch=BATCH + 1))


@case('States', 'of another number of layers')
def run(layer):
    return layer(x(), states(layer, count=2))


@case('States', 'gradients for them')
def run(layer):
    state = states(layer)
    leaves = [each.requires_grad_() for each in flat([state])]
    gradients(layer, layer(x(), state))
    return [leaf.grad for leaf in leaves]


# ---- packed sequences ----
@case('Packed sequences', 'sorted')
def run(layer):
    output, state = layer(pack_padded_sequence(x(), [5, 3, 1]))
    return [output.data, output.batch_sizes, state]


@case('Packed sequences', 'not sorted')
def run(layer):
    output, state = layer(pack_padded_sequence(x(), [2, 5, 1], enforce_sorted=False))
    return [output.data, output.unsorted_indices, state]


@case('Packed sequences', 'in both directions', bidirectional=True)
def run(layer):
    output, state = layer(pack_padded_sequence(x(), [2, 5, 1], enforce_sorted=False))
    return gradients(layer, [output.data, state])


@case('Packed sequences', 'with a state')
def run(layer):
    output, state = layer(pack_padded_sequence(x(), [2, 5, 1], enforce_sorted=False), states(layer))
    return [output.data, state]


@case('Packed sequences', 'of pack_sequence()')
def run(layer):
    output, state = layer(pack_sequence([x(4, INPUTS), x(2, INPUTS)]))
    return [isinstance(output, PackedSequence), output.data, state]


# ---- autograd ----
@case('Autograd', 'gradients of the input')
def run(layer):
    leaf = x(grad=True)
    gradients(layer, layer(leaf))
    return leaf.grad


@case('Autograd', 'accumulated over two backward passes')
def run(layer):
    gradients(layer, layer(x()))
    return gradients(layer, layer(x()))


@case('Autograd', 'a second backward pass without retain_graph')
def run(layer):
    loss = layer(x())[0].sum()
    loss.backward()
    loss.backward()


@case('Autograd', 'retain_graph=True')
def run(layer):
    loss = layer(x())[0].sum()
    loss.backward(retain_graph=True)
    loss.backward()
    return [p.grad for p in layer.parameters()]


@case('Autograd', 'frozen weights')
def run(layer):
    layer.weight_hh_l0.requires_grad_(False)
    layer(x())[0].sum().backward()
    return [p.grad if p.grad is not None else 'none' for p in layer.parameters()]


@case('Autograd', 'no_grad()')
def run(layer):
    with torch.no_grad():
        return [layer(x())[0], layer(x())[0].requires_grad]


@case('Autograd', 'inference_mode()')
def run(layer):
    with torch.inference_mode():
        return layer(x())[0].clone()


@case('Autograd', 'gradients of gradients')
def run(layer):
    leaf = x(grad=True)
    (first,) = torch.autograd.grad(layer(leaf)[0].square().sum(), leaf, create_graph=True)
    return torch.autograd.grad(first.square().sum(), [leaf, *layer.parameters()])


@case('Autograd', 'an in-place write into the weights between passes')
def run(layer):
    output = layer(x())[0]
    with torch.no_grad():
        layer.weight_hh_l0.add_(1)
    output.sum().backward()


@case('Autograd', 'hooks of gradients')
def run(layer):
    seen = []
    layer.weight_ih_l0.register_hook(lambda grad: seen.append(grad.clone()))
    layer(x())[0].sum().backward()
    return seen


@case('Autograd', 'anomaly mode')
def run(layer):
    with torch.autograd.detect_anomaly(check_nan=True):
        return gradients(layer, layer(x()))


# ---- torch.func ----
@case('torch.func', 'grad of parameters')
def run(layer):
    weights = {name: each.detach() for name, each in layer.named_parameters()}
    return torch.func.grad(lambda w: torch.func.functional_call(layer, w, (x(),))[0].square().sum())(weights)


@case('torch.func', 'jacrev')
def run(layer):
    return torch.func.jacrev(lambda each: layer(each)[0].sum(0))(x())


@case('torch.func', 'jvp')
def run(layer):
    return torch.func.jvp(lambda each: layer(each)[0], (x(),), (torch.ones(TIME, BATCH, INPUTS),))


@case('torch.func', 'vmap over inputs')
def run(layer):
    return torch.func.vmap(lambda each: layer(each)[0])(x(2, TIME, BATCH, INPUTS))


# ---- modules ----
@case('Modules', 'deepcopy')
def run(layer):
    return copy.deepcopy(layer)(x())


@case('Modules', 'pickle')
def run(layer):
    return pickle.loads(pickle.dumps(layer))(x())


@case('Modules', 'torch.save and torch.load of state_dict()')
def run(layer):
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    for each in layer.parameters():
        each.data.zero_()
    layer.load_state_dict(torch.load(file))
    return layer(x())


@case('Modules', 'load_state_dict() of other shapes')
def run(layer):
    layer.load_state_dict({**layer.state_dict(), 'weight_ih_l0': torch.zeros(1, 1)})


@case('Modules', 'double()')
def run(layer):
    return layer.double()(x(dtype=torch.float64))


@case('Modules', 'forward hooks')
def run(layer):
    seen = []
    layer.register_forward_hook(lambda module, given, result: seen.append(result[0].shape))
    layer(x())
    return [tuple(each) for each in seen]


@case('Modules', 'flatten_parameters()')
def run(layer):
    layer.flatten_parameters()
    return layer(x())


@case('Modules', 'weights set by .data between calls')
def run(layer):
    layer(x())
    layer.weight_ih_l0.data.mul_(2)
    return layer(x())


@case('Modules', 'spectral_norm of a weight')
def run(layer):
    torch.manual_seed(1)
    return torch.nn.utils.parametrizations.spectral_norm(layer, 'weight_hh_l0').eval()(x())


@case('Modules', 'an optimizer of torch.optim')
def run(layer):
    optimizer = torch.optim.Adam(layer.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        layer(x())[0].square().mean().backward()
        optimizer.step()
    return list(layer.parameters())


@case('Modules', 'isinstance(layer, torch.nn.RNNBase)')
def run(layer):
    return isinstance(layer, nn.RNNBase)


@case('Modules', 'isinstance(layer, torch.nn.LSTM) and its like')
def run(layer):
    return isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN))


# ---- other programs ----
@case('Written down', 'torch.jit.trace, for another batch too')
def run(layer):
    traced = torch.jit.trace(layer, x())
    return traced(x(TIME + 2, BATCH + 1, INPUTS))


class Scripted(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.layer(given)[0]


@case('Written down', 'torch.jit.script of a model')
def run(layer):
    return torch.jit.script(Scripted(layer))(x())


@case('Written down', 'torch.fx: a leaf of a traced model')
def run(layer):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, given):
            return self.layer(given)[0]

    traced = torch.fx.symbolic_trace(Model())
    return [sum(node.op == 'call_module' for node in traced.graph.nodes), traced(x())]


@case('Written down', 'torch.export')
def run(layer):
    return torch.export.export(layer, (x(),)).module()(x())


@case('Written down', 'ONNX (dynamo=False): a node of the kind')
def run(layer):
    # The graph that torch.onnx.export writes: the package onnx, which writing takes, is not needed for it.
    with torch.onnx.utils.exporter_context(layer, torch.onnx.TrainingMode.EVAL, False):
        graph, _, _ = torch.onnx.utils._model_to_graph(nn.Sequential(layer), (x(),))
    return [node.kind() for node in graph.nodes() if node.kind() == f'onnx::{layer.mode.split("_")[0]}']


@case('Written down', 'torch.profiler: a row that names the layer')
def run(layer):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        layer(x())
    return any(type(layer).__name__.lower() in each.key.lower() for each in profiler.key_averages())


def outcome(make, run, late):
    """What a behaviour comes to: ('result', it) or ('error', it). `late`: making the layer is what is looked at."""
    torch.manual_seed(0)
    try:
        return 'result', run(make if late else make())
    except Exception as error:
        return 'error', error


def is_close(a, b):
    """Whether trees of tensors, numbers and texts are the same."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        limit = 2e-2 if torch.bfloat16 in (a.dtype, b.dtype) else 2e-5
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.allclose(a.double(), b.double(), atol=limit, rtol=limit, equal_nan=True)
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_close(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(is_close, a, b))
    return a == b


def compared(section, name, options, run, kind):
    """'same', 'refused too' (both are errors), or what differs."""
    late = options.get('late', False)
    options = {key: value for key, value in options.items() if key != 'late'}
    sizes = {'input_size': INPUTS, 'hidden_size': options.get('hidden_size', HIDDEN)}
    options = {key: value for key, value in options.items() if key != 'hidden_size'}

    def made(of):
        return lambda: getattr(of, kind)(**sizes, **options)

    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        (theirs, their), (ours, our) = outcome(made(nn), run, late), outcome(made(pt), run, late)
    if theirs == ours == 'error':
        is_alike = isinstance(our, type(their)) or isinstance(their, type(our))
        return 'refused too' if is_alike else f'another error: {type(our).__name__}: {our}'
    if theirs == 'error':
        return 'ours works'
    if ours == 'error':
        return f'refused: {type(our).__name__}: {our}'.split('\n')[0]
    return 'same' if is_close(their, our) else 'differs'


# Differences that are meant, by behaviour, with the words of the table.
MEANT = {
    'autocast to bf16: dtype of the output': (
        ('same', 'differs'),
        "the same of LSTM and RNN; torch.nn's GRU stays in f32 on the CPU, ours computes in bf16",
    ),
    'isinstance(layer, torch.nn.LSTM) and its like': (
        ('differs',),
        "no: `torch.compile` does not look into classes derived from them. `torch.nn.RNNBase` is a base of both",
    ),
}


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('which', CASES, ids=lambda each: f'{each[0]}: {each[1]}')
def test_a_behaviour(which, kind):
    section, name, options, run = which
    wanted, _ = MEANT.get(name, (('same', 'refused too', 'ours works'), ''))
    found = compared(section, name, options, run, kind)
    assert found in wanted, found


def table():
    rows, counts = [], {'same': 0, 'refused too': 0, 'ours works': 0, 'differs': 0}
    for section, name, options, run in CASES:
        found = [compared(section, name, options, run, kind) for kind in KINDS]
        for each in found:
            counts[each] = counts.get(each, 0) + 1
        if name in MEANT:
            words = MEANT[name][1]
        else:
            distinct = list(dict.fromkeys(found))
            of_each = ', '.join(f'{kind}: {each}' for kind, each in zip(KINDS, found))
            words = distinct[0] if len(distinct) == 1 else of_each
        for each, text in (('refused too', 'both refuse it'), ('ours works', 'ours works, torch.nn refuses it')):
            words = words.replace(each, text)
        rows.append(f'| {section} | {name} | {words} |')
    head = (
        f'{sum(counts.values())} behaviours, {len(CASES)} of each of LSTM, GRU and RNN: {counts["same"]} the same, '
        f'{counts["refused too"]} refused by both, {counts["ours works"]} refused by torch.nn alone, {counts["differs"]} other.\n\n'
        '| | behaviour | beside torch.nn |\n|---|---|---|\n'
    )
    return head + '\n'.join(rows) + '\n'


def test_the_table_of_the_page_is_what_was_found():
    made = table()
    text = PAGE.read_text()
    begin, end = text.index(BEGIN) + len(BEGIN), text.rindex(END)
    if os.environ.get('PAODING_WRITE_TABLES'):
        PAGE.write_text(text[:begin] + made + text[end:])
        return
    assert text[begin:end] == made, 'PAODING_WRITE_TABLES=1 writes it'
