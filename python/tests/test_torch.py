# SPDX-License-Identifier: Apache-2.0
"""paoding.torch beside torch.nn, on the CPU."""

import copy
import os
import pathlib
import subprocess
import sys
import threading

import numpy as np
import pytest

import paoding as pd

from torch_or_skip import torch  # noqa: E402
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import paoding.torch as pt
from torch_layers import KINDS, twins

def compare(ours, theirs, *arguments, grad=True, limit=2e-5):
    """Results and, with `grad`, gradients of both, for the same seeds."""
    results = []
    for module in (ours, theirs):
        given = [copy.deepcopy(each) for each in arguments]
        leaves = [
            t for each in given for t in (each if isinstance(each, tuple) else [each]) if isinstance(t, torch.Tensor)
        ]
        for leaf in leaves:
            leaf.requires_grad_(grad and leaf.is_floating_point())
        output, last = module(*given)
        flat = [output.data if hasattr(output, 'data') and not isinstance(output, torch.Tensor) else output]
        flat += list(last) if isinstance(last, tuple) else [last]
        if grad:
            torch.manual_seed(5)
            sum((each * torch.randn(each.shape, dtype=each.dtype)).sum() for each in flat).backward()
            flat += [leaf.grad for leaf in leaves if leaf.requires_grad] + [p.grad for p in module.parameters()]
        results.append(flat)
    for mine, wanted in zip(*results, strict=True):
        torch.testing.assert_close(mine, wanted, rtol=limit, atol=limit)


@pytest.mark.parametrize('kind, options', KINDS)
@pytest.mark.parametrize(
    'more',
    [
        {},
        {'num_layers': 2},
        {'bidirectional': True},
        {'num_layers': 2, 'bidirectional': True},
        {'bias': False},
        {'batch_first': True},
    ],
)
def test_a_layer_is_torchs(kind, options, more):
    ours, theirs = twins(kind, **options, **more)
    assert repr(ours) == repr(theirs)
    compare(ours, theirs, torch.randn(6, 3, 5))
    count = ours.num_layers * (2 if ours.bidirectional else 1)
    batch = 6 if more.get('batch_first') else 3
    states = tuple(torch.randn(count, batch, width) for width in (ours.proj_size or 7, 7))
    compare(ours, theirs, torch.randn(6, 3, 5), states if kind == 'LSTM' else states[0])
    compare(ours, theirs, torch.randn(6, 5))  # without a batch
    with torch.no_grad():
        compare(ours, theirs, torch.randn(6, 3, 5), grad=False)


@pytest.mark.parametrize('kind, options', KINDS)
def test_doubles_pass_gradcheck(kind, options):
    ours, _ = twins(kind, **options)
    ours.double()
    assert torch.autograd.gradcheck(
        lambda x: ours(x)[0], (torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True),)
    )


@pytest.mark.parametrize('kind, options', KINDS[:4])
@pytest.mark.parametrize('is_sorted', [True, False])
def test_packed_sequences_and_lengths_are_the_same(kind, options, is_sorted):
    ours, theirs = twins(kind, **options, bidirectional=True)
    lengths = [6, 4, 1] if is_sorted else [4, 6, 1]
    xs = torch.randn(6, 3, 5)
    packed = pack_padded_sequence(xs, lengths, enforce_sorted=is_sorted)
    mine, my_last = ours(packed)
    wanted, last = theirs(packed)
    torch.testing.assert_close(mine.data, wanted.data, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(my_last, last, rtol=1e-5, atol=1e-5)
    plain, plain_last = ours(xs, lengths=torch.tensor(lengths))
    torch.testing.assert_close(plain, pad_packed_sequence(wanted)[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(plain_last, last, rtol=1e-5, atol=1e-5)
    packed = pack_sequence([torch.randn(n, 5) for n in (4, 2)])
    torch.testing.assert_close(ours(packed)[0].data, theirs(packed)[0].data, rtol=1e-5, atol=1e-5)


def test_bf16_and_autocast_are_near():
    ours, theirs = twins('LSTM')
    x = torch.randn(6, 3, 5)
    wanted = theirs(x)[0]
    with torch.autocast('cpu', torch.bfloat16):
        output = ours(x)[0]
        assert output.dtype == torch.bfloat16
        output.float().sum().backward()
    torch.testing.assert_close(output.float(), wanted, rtol=0.05, atol=0.05)
    assert ours.weight_ih_l0.grad.dtype == torch.float32
    torch.testing.assert_close(copy.deepcopy(ours).bfloat16()(x.bfloat16())[0].float(), wanted, rtol=0.05, atol=0.05)


def test_a_model_is_accelerated_in_one_line():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {'a': torch.nn.LSTM(5, 7), 'b': torch.nn.GRU(7, 4), 'c': torch.nn.LSTM(5, 7, proj_size=3)}
    )
    x = torch.randn(4, 2, 5)
    wanted = model['b'](model['a'](x)[0])[0]
    state = model.state_dict()
    assert pt.accelerate(model) is model
    assert [type(model[name]) for name in 'abc'] == [pt.LSTM, pt.GRU, pt.LSTM]
    assert model.state_dict().keys() == state.keys()
    torch.testing.assert_close(model['b'](model['a'](x)[0])[0], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('kind', ['LSTM', 'GRU'])
def test_weights_that_change_are_seen_without_gradients_too(kind):
    ours, theirs = twins(kind)
    x = torch.randn(4, 2, 5)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=1e-5, atol=1e-5)
            for module in (ours, theirs):
                module.weight_hh_l0.mul_(0.5)
                module.bias_ih_l0.add_(0.25)
                module.weight_ih_l0.data = module.weight_ih_l0 * 2
    with torch.inference_mode():
        torch.testing.assert_close(ours(x)[0], theirs(x)[0], rtol=1e-5, atol=1e-5)


def test_dropout_between_layers_is_torchs_when_training_only():
    ours, theirs = twins('GRU', num_layers=2, dropout=0.5)
    x = torch.randn(6, 3, 5)
    outputs = []
    for module in (ours, theirs):
        torch.manual_seed(4)
        outputs.append(module(x)[0])
    torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-5)  # the same random numbers
    torch.testing.assert_close(ours.eval()(x)[0], theirs.eval()(x)[0], rtol=1e-5, atol=1e-5)
    assert not torch.equal(ours.train()(x)[0], ours(x)[0])


def test_torch_compile_takes_the_layers():
    ours, _ = twins('LSTM', num_layers=2)
    x = torch.randn(6, 3, 5)
    wanted = ours(x)[0]
    compiled = torch.compile(lambda x: ours(x)[0] * 2, backend='aot_eager', fullgraph=True)
    got = compiled(x)
    torch.testing.assert_close(got, wanted * 2)
    got.sum().backward()
    torch.library.opcheck(
        torch.ops.paoding.recurrent.default,
        (
            x,
            ours.weight_ih_l0.detach(),
            ours.weight_hh_l0.detach(),
            torch.randn(28),
            torch.randn(28),
            torch.zeros(3, 7),
            torch.zeros(3, 7),
            None,
            'lstm',
            False,
            False,
        ),
    )


def test_what_does_not_fit_is_said():
    ours, _ = twins('LSTM')
    with pytest.raises(RuntimeError, match='Expected 5, got 4'):
        ours(torch.randn(6, 3, 4))
    with pytest.raises(RuntimeError, match='Expected hidden size'):
        ours(torch.randn(6, 3, 5), (torch.zeros(1, 2, 7), torch.zeros(1, 2, 7)))
    with pytest.raises(ValueError, match='does not match weight dtype'):
        ours(torch.zeros(6, 3, 5, dtype=torch.int64))
    with pytest.raises(RuntimeError, match='one for each row'):
        ours(torch.randn(6, 3, 5), lengths=torch.tensor([1, 2]))
    with pytest.raises(RuntimeError, match='Expected hidden size'):
        pt.LSTM(5, 7, proj_size=3)(torch.randn(6, 3, 5), (torch.zeros(1, 3, 7), torch.zeros(1, 3, 7)))


def test_tensors_that_cannot_be_read_are_refused():
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.f32, (4, 3)) * 2)
    program, twice, x = pd.Program(graph), pt.function(graph), torch.randn(4, 3)
    freed, sequences = x.clone(), torch.randn(4, 2, 3)
    for each in (freed, sequences):
        each.untyped_storage().resize_(0)
    for call, given in ((lambda given: program(x=given), freed), (twice, freed), (pt.GRU(3, 5), sequences)):
        with pytest.raises(pd.ArgumentError, match='freed|is null'):
            call(given)
        with pytest.raises((BufferError, RuntimeError)):
            call(x.to_sparse())
    with pytest.raises(BufferError, match='meta'):
        program(x=x.to('meta'))
    with pytest.raises(pd.ArgumentError, match='do not lie densely'):
        pd.Program(graph, strict=True)(x=torch.randn(3, 4).T)
    for given in (torch.randn(3, 4).T, torch.randn(4, 3, dtype=torch.float64), torch.arange(12).reshape(3, 4).T):
        torch.testing.assert_close(torch.from_dlpack(program(x=given)['y']), given.float() * 2)
    torch.testing.assert_close(twice(torch.ones(3, 4).T), torch.full((4, 3), 2.0))  # whose strides are known
    torch.testing.assert_close(torch.from_dlpack(program(x=x)['y']), x * 2)


def test_states_and_parameters_go_between_torchs_layers_and_ours(tmp_path):
    ours, theirs = twins('LSTM', num_layers=2, bidirectional=True, proj_size=3)
    theirs.load_state_dict(ours.state_dict())
    torch.save(ours, tmp_path / 'layer.pt')
    again = torch.load(tmp_path / 'layer.pt', weights_only=False)
    x = torch.randn(6, 2, 5)
    torch.testing.assert_close(again(x)[0], theirs(x)[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(copy.deepcopy(ours).double()(x.double())[0].float(), theirs(x)[0], rtol=1e-5, atol=1e-5)
    ours.flatten_parameters()


def test_a_gradient_is_refused_when_what_it_needs_was_written():
    ours, theirs = twins('GRU')
    x = torch.randn(6, 3, 5)
    output, _ = ours(x)
    output.mul_(2)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        output.sum().backward()
    output, _ = ours(x)
    with torch.no_grad():
        ours.weight_hh_l0.mul_(0.5)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        output.sum().backward()
    with torch.no_grad():
        output = ours(x)[0].mul_(2)  # nobody needs it
        theirs.weight_hh_l0.mul_(0.5)
        torch.testing.assert_close(output, theirs(x)[0] * 2, rtol=1e-5, atol=1e-5)


def test_only_gradients_that_are_wanted_are_made():
    ours, theirs = twins('LSTM')
    for module in (ours, theirs):
        module.requires_grad_(False)
        module.bias_hh_l0.requires_grad_(True)
        module(torch.ones(6, 3, 5))[1][1].sum().backward()
    torch.testing.assert_close(ours.bias_hh_l0.grad, theirs.bias_hh_l0.grad, rtol=1e-5, atol=1e-5)
    assert ours.weight_ih_l0.grad is None and ours.bias_ih_l0.grad is None


def test_threads_train_layers_of_their_own():
    layers = [twins('GRU')[0] for _ in range(5)]
    x = torch.linspace(-1, 1, 6 * 3 * 5).reshape(6, 3, 5)

    def work(layer):
        for _ in range(20):
            layer.zero_grad()
            layer(x)[0].square().sum().backward()

    work(layers[0])
    threads = [threading.Thread(target=work, args=(layer,)) for layer in layers[1:]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for layer in layers[1:]:
        for mine, wanted in zip(layer.parameters(), layers[0].parameters()):
            torch.testing.assert_close(mine.grad, wanted.grad)


def test_a_graph_is_a_differentiable_function():
    with pd.Graph() as graph:
        a, b, t = (graph.input(name, pd.f64, shape) for name, shape in (('a', (4, 1)), ('b', (4, 3)), ('t', (3,))))
        graph.fetch('y', pd.lerp(a, b, t))
        graph.fetch('which', pd.argmax(b, 1))
    lerp = pt.function(graph)
    a, b, t = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 1), (4, 3), (3,)))
    y, which = lerp(a, b, t)
    torch.testing.assert_close(y, torch.lerp(a.expand(4, 3), b, t.expand(4, 3)))
    assert torch.equal(which, b.argmax(1))
    assert torch.autograd.gradcheck(lambda *inputs: lerp(*inputs)[0], (a, b, t))
    compiled = torch.compile(lambda *inputs: lerp(*inputs)[0] * 2, backend='aot_eager', fullgraph=True)
    torch.testing.assert_close(compiled(a, b, t), y * 2)
    assert torch.autograd.gradcheck(compiled, (a, b, t))
    with pytest.raises(pd.ShapeError, match=r"input 'a' is f64\[4,1\], not f64\[4,3\]"):
        lerp(b, b, t)
    with pytest.raises(pd.DtypeError, match=r"input 'b' is f64\[4,3\], not f32\[4,3\]"):
        lerp(a, b.float(), t)
    with pytest.raises(pd.ArgumentError, match='2 tensors for the inputs a, b, t'):
        lerp(a, b)


def test_functions_that_live_to_the_end_print_nothing_there():
    code = """
import paoding as pd, paoding.torch as pt, torch
with pd.Graph() as graph:
    graph.fetch('y', graph.input('x', pd.f32, 3) * 2)
twice = pt.function(graph)
twice(torch.ones(3, requires_grad=True)).sum().backward()
"""
    folder = str(pathlib.Path(pd.__file__).parents[1])
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, [folder, os.environ.get('PYTHONPATH')]))}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, '', '')


def test_a_graph_that_decides_while_it_runs_is_a_function_too():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, ())
        graph.fetch('y', pd.while_loop(lambda v: v < 100, lambda v: v * 2, x))
    assert pt.function(graph)(torch.tensor(3.0)).item() == 192


def test_tensors_are_fed_and_fetched_where_they_are():
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.bf16, (2, 3)) * 2)
    program = pd.Program(graph)
    x = torch.randn(2, 3).bfloat16()
    y = torch.from_dlpack(program(x=x)['y'])
    assert y.dtype == torch.bfloat16 and torch.equal(y, x * 2)
    tensor = pd.Tensor(x)
    x[0, 0] = 9
    assert tensor.tolist()[0][0] == 9
    turned = torch.randn(3, 2).bfloat16().t()
    assert torch.equal(torch.from_dlpack(program(x=turned)['y']), turned * 2)
    with pytest.raises(pd.ArgumentError, match='densely'):
        pd.Program(graph, strict=True)(x=turned)
    assert np.asarray(pd.Tensor(torch.arange(3))).tolist() == [0, 1, 2]


@pytest.mark.parametrize('order', ['torch, paoding.torch', 'paoding, torch, paoding.torch'])
def test_both_have_one_pool_of_threads_whichever_is_imported_first(order):
    code = f"""
import {order}
torch.randn(1000, 1000) @ torch.randn(1000, 1000)
paoding.torch.LSTM(64, 64)(torch.randn(20, 32, 64))
print(len({{line.split()[-1] for line in open('/proc/self/maps') if 'libgomp' in line or 'libiomp' in line}}))
"""
    folder = str(pathlib.Path(pd.__file__).parents[1])
    environment = {**os.environ, 'PYTHONPATH': os.pathsep.join(filter(None, [folder, os.environ.get('PYTHONPATH')]))}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == '1', done.stdout + done.stderr
