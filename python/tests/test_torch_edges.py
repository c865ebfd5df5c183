# SPDX-License-Identifier: Apache-2.0
"""Layers of ours without rows or steps, and lengths that do not fit."""

import ctypes

import pytest

import paoding as pd

from torch_or_skip import torch  # noqa: E402
from torch.nn.utils.rnn import PackedSequence

import paoding.torch as pt
from paoding.torch import _faults
from torch_layers import KINDS, flat, states_of, twins

MORE = [{}, {'num_layers': 2, 'bidirectional': True}, {'batch_first': True, 'bias': False}]


def gradients(module, leaf):
    return [leaf.grad, *(each.grad for each in module.parameters())]


@pytest.mark.parametrize('kind, options', KINDS)
@pytest.mark.parametrize('more', MORE)
def test_no_rows_give_what_torch_nn_gives_of_none(kind, options, more):
    pair = twins(kind, **options, **more)
    shape = (0, 4, 5) if pair[0].batch_first else (4, 0, 5)
    for hx in (None, states_of(pair[0], 0)):
        made = []
        for module in pair:
            module.zero_grad()
            x = torch.randn(shape, requires_grad=True)
            results = flat(module(x, hx))
            sum(each.sum() for each in results).backward()
            made.append([*results, *gradients(module, x)])
        torch.testing.assert_close(*made)
        with torch.no_grad():
            torch.testing.assert_close(*(flat(module(torch.randn(shape), hx)) for module in pair))
    lengths = torch.zeros(0, dtype=torch.int64)
    torch.testing.assert_close(*(flat(pair[0](torch.randn(shape), **more)) for more in ({}, {'lengths': lengths})))
    for module in pair:
        module.bfloat16()
    made = [flat(module(torch.randn(shape).bfloat16())) for module in pair]
    torch.testing.assert_close(*made)


@pytest.mark.parametrize('kind, options', KINDS)
def test_no_rows_of_a_packed_sequence_are_none(kind, options):
    pair = twins(kind, **options)
    packed = PackedSequence(torch.randn(0, 5), torch.zeros(1, dtype=torch.int64))
    torch.testing.assert_close(*(flat(module(packed)) for module in pair))


@pytest.mark.parametrize('kind, options', KINDS[:4])
def test_no_rows_have_derivatives_and_are_compiled(kind, options):
    ours, _ = twins(kind, **options)
    x = torch.randn(4, 0, 5)
    y, d_y = torch.func.jvp(lambda x: ours(x)[0], (x,), (x,))
    assert y.shape == d_y.shape == (4, 0, ours.proj_size or 7)
    compiled = torch.compile(lambda x: ours(x)[0], backend='aot_eager')
    assert compiled(x).shape == y.shape
    compiled(x).sum().backward()
    assert all((each.grad == 0).all() for each in ours.parameters())


@pytest.mark.parametrize('kind, options', KINDS)
@pytest.mark.parametrize('shape', [(0, 3, 5), (0, 0, 5), (0, 5)])
def test_no_steps_are_refused_as_torch_nn_refuses_them(kind, options, shape):
    for module in twins(kind, **options):
        for is_training in (False, True):
            with torch.set_grad_enabled(is_training), pytest.raises(RuntimeError, match='length to be larger than 0'):
                module(torch.randn(shape))


def test_a_function_takes_what_has_no_elements():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f64, (0, 3))
        graph.fetch('y', pd.sum(x * 2, 0))
        graph.fetch('z', pd.exp(x))
    x = torch.randn(0, 3, dtype=torch.float64, requires_grad=True)
    y, z = pt.function(graph)(x)
    assert torch.equal(y, torch.zeros(3, dtype=torch.float64)) and z.shape == (0, 3)
    (y.sum() + z.sum()).backward()
    assert x.grad.shape == (0, 3)


@pytest.mark.parametrize('kind, options', KINDS)
def test_lengths_that_are_none_are_refused(kind, options):
    ours, _ = twins(kind, **options)
    x = torch.randn(4, 3, 5)
    for lengths, found in (([4, 9, 2], r'lengths\[1\] is 9'), ([4, 3, -1], r'lengths\[2\] is -1'), ([2**32, 1, 1], '4294967296')):
        with pytest.raises(RuntimeError, match=found + '.*needed is 0 to 4'):
            ours(x, lengths=torch.tensor(lengths))
        with torch.no_grad(), pytest.raises(RuntimeError, match=found):
            ours(x.transpose(0, 1).contiguous().transpose(0, 1), lengths=torch.tensor(lengths))
    with pytest.raises(TypeError, match='integers, not torch.float32'):
        ours(x, lengths=torch.tensor([1.5, 2, 3]))
    with pytest.raises(RuntimeError, match='one for each row'):
        ours(x, lengths=torch.tensor(3))
    wanted = flat(ours(x, lengths=torch.tensor([4, 0, 2])))
    for dtype in (torch.int32, torch.uint8):
        torch.testing.assert_close(flat(ours(x, lengths=torch.tensor([4, 0, 2], dtype=dtype))), wanted)


def test_lengths_of_a_compiled_layer_are_checked_when_it_runs():
    ours, _ = twins('GRU')
    compiled = torch.compile(lambda x, n: ours(x, lengths=n)[0], backend='aot_eager', fullgraph=True)
    x = torch.randn(4, 3, 5)
    for lengths in ([4, 0, 2], [1, 1, 4]):
        n = torch.tensor(lengths)
        torch.testing.assert_close(compiled(x, n), ours(x, lengths=n)[0])
    with pytest.raises(RuntimeError, match=r'lengths\[1\] is 9, needed is 0 to 4'):
        compiled(x, torch.tensor([4, 9, 2]))


def test_faults_of_a_gpu_are_followed_but_in_captures_where_the_first_of_each_launch_stays(monkeypatch):
    """The GPU is the host's memory here."""

    class Graph:
        fault_words = 256, 32  # of two launches

        def follow_faults(self, workspace, stream):
            followed.append(workspace)

        def raise_faults(self, waits=False):
            raised.append(waits)

        def check(self, words):
            found = (ctypes.c_int64 * 4).from_address(words)
            if any(word != -1 for word in found):
                raise pd.ArgumentError(f'at {list(found)}')

    followed, raised, is_captured = [], [], [False]
    monkeypatch.setattr(_faults, 'is_captured', lambda device: is_captured[0])
    faults = _faults.Faults(Graph(), torch.device('cpu'))
    room = torch.zeros(256 + 32, dtype=torch.uint8)

    def run(*words):
        room[256:].view(torch.int64).copy_(torch.tensor(words))
        faults.follow(room)

    run(-1, -1, 7, 6)
    assert followed == [room.data_ptr()]
    faults.raise_ended()
    assert raised == [False]
    faults.raise_all()
    is_captured[0] = True
    run(-1, -1, -1, -1)
    run(5, 4, -1, -1)
    run(9, 8, 3, 2)  # of each launch the first stays
    run(-1, -1, -1, -1)
    faults.raise_ended()  # a graph may be replayed at any time
    assert (len(followed), raised) == (1, [False, True])  # nothing is copied to the host in a capture
    is_captured[0] = False
    with pytest.raises(pd.ArgumentError, match='5, 4, 3, 2'):
        faults.raise_all()
    faults.raise_all()
