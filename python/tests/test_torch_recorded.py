# SPDX-License-Identifier: Apache-2.0
"""Layers and functions of ours that are written down: torch.jit, torch.fx, make_fx, torch.export, torch.compile."""

import copy
import gc
import io
import warnings

import pytest

import paoding as pd

from torch_or_skip import torch  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

import paoding.torch as pt
from torch_layers import KINDS, flat, states_of, twins

NEAR = {'rtol': 2e-5, 'atol': 2e-5}
LAYERS = [
    (kind, {**options, **more})
    for kind, options in KINDS
    for more in ({}, {'num_layers': 2, 'bidirectional': True, 'batch_first': True, 'bias': False})
]


class Inside(torch.nn.Module):
    """A model with a layer, its results flat."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.out = torch.nn.Linear((layer.proj_size or 7) * (2 if layer.bidirectional else 1), 2)

    def forward(self, *given):
        output, *last = flat(self.layer(*given))
        return self.out(output), *last


class ByLengths(Inside):
    def forward(self, x, lengths):
        output, *last = flat(self.layer(x, lengths=lengths))
        return self.out(output), *last


class Packed(Inside):
    """Of x [B, T, 5]; results are a PackedSequence's."""

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, last = self.layer(packed)
        return (output.data.relu(), *flat((output, last)))


def traced(model, *given):
    with warnings.catch_warnings():
        warnings.simplefilter('error', torch.jit.TracerWarning)
        warnings.simplefilter('ignore', DeprecationWarning)
        return torch.jit.trace(model, given)


def again(module):
    """As another process has it."""
    file = io.BytesIO()
    torch.jit.save(module, file)
    file.seek(0)
    return torch.jit.load(file)


@pytest.mark.parametrize('kind, options', LAYERS)
@pytest.mark.parametrize('is_training', [False, True])
def test_a_traced_model_is_the_model_on_other_inputs_too(kind, options, is_training):
    model = Inside(twins(kind, **options)[0])
    model.train(is_training)
    with torch.set_grad_enabled(is_training):
        x = torch.randn(6, 3, 5)
        made = again(traced(model, x))
        for other in (x, torch.randn(6, 3, 5), torch.randn(4, 2, 5), torch.randn(1, 7, 5)):
            torch.testing.assert_close(made(other), model(other), **NEAR)
        assert 'paoding::' not in str(made.inlined_graph)  # torch alone can run it
        hx = states_of(model.layer, 6 if model.layer.batch_first else 3)
        made = traced(model, x, hx)
        other, hx = torch.randn(6, 3, 5), states_of(model.layer, 6 if model.layer.batch_first else 3)
        torch.testing.assert_close(made(other, hx), model(other, hx), **NEAR)
        alone = traced(model, torch.randn(6, 5))
        torch.testing.assert_close(alone(x[:, 0]), model(x[:, 0]), **NEAR)


@pytest.mark.parametrize('kind, options', LAYERS)
def test_a_traced_model_takes_lengths_and_packed_sequences(kind, options):
    layer = twins(kind, **options)[0]
    x, lengths = torch.randn(3, 6, 5), torch.tensor([4, 6, 0])
    shape = (x if layer.batch_first else x.transpose(0, 1)).shape
    other, others = torch.randn(shape), torch.tensor([0, 2, 5])
    with torch.no_grad():
        model = ByLengths(layer)
        made = traced(model, torch.randn(shape), lengths)
        torch.testing.assert_close(made(other, others), model(other, others), **NEAR)
        packed = Packed(layer)
        made = traced(packed, x, lengths.clamp(min=1))
        x, lengths = torch.randn(4, 5, 5), torch.tensor([3, 5, 1, 5])
        torch.testing.assert_close(made(x, lengths), packed(x, lengths), **NEAR)


@pytest.mark.parametrize('kind, options', KINDS)
def test_torch_jit_script_makes_torchs_layer_of_ours(kind, options):
    model = torch.nn.Sequential(twins(kind, **options)[0])
    x = torch.randn(6, 3, 5)
    wanted = flat(model(x))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        made = again(torch.jit.script(model))
    torch.testing.assert_close(flat(made(x)), wanted, **NEAR)
    torch.testing.assert_close(flat(model(x)), wanted, **NEAR)


@pytest.mark.parametrize('kind, options', KINDS)
def test_torch_fx_does_not_look_into_layers(kind, options):
    model = torch.nn.Sequential(twins(kind, **options)[0])
    made = torch.fx.symbolic_trace(model)
    assert [node.op for node in made.graph.nodes] == ['placeholder', 'call_module', 'output']
    x = torch.randn(6, 3, 5)
    torch.testing.assert_close(flat(made(x)), flat(model(x)))


@pytest.mark.parametrize('kind, options', LAYERS)
@pytest.mark.parametrize('is_training', [False, True])
def test_what_make_fx_writes_down_is_the_model_on_other_inputs(kind, options, is_training):
    model = Inside(twins(kind, **options)[0])
    x, other = torch.randn(6, 3, 5), torch.randn(6, 3, 5)
    with torch.set_grad_enabled(is_training):
        made = make_fx(model)(x)
        torch.testing.assert_close(made(other), model(other), **NEAR)


@pytest.mark.parametrize('kind, options', LAYERS)
def test_what_torch_export_writes_down_is_the_model_on_other_inputs(kind, options):
    model = Inside(twins(kind, **options)[0])
    x, other = torch.randn(6, 3, 5), torch.randn(6, 3, 5)
    exported = torch.export.export(model, (x,))
    file = io.BytesIO()
    torch.export.save(exported, file)
    file.seek(0)
    torch.testing.assert_close(torch.export.load(file).module()(other), model(other), **NEAR)


def lerp(weight):
    with pd.Graph() as graph:
        a, b = graph.input('a', pd.f32, (4, 1)), graph.input('b', pd.f32, (4, 3))
        graph.fetch('y', pd.lerp(a, b, weight))
        graph.fetch('which', pd.argmax(b, 1))
    return pt.function(graph)


@pytest.mark.parametrize('is_training', [False, True])
def test_a_function_that_is_written_down_is_the_function_on_other_inputs(is_training):
    function = lerp(0.25)
    (a, b), others = ([torch.randn(4, 1), torch.randn(4, 3)] for _ in range(2))
    with torch.set_grad_enabled(is_training):
        wanted = torch.lerp(others[0].expand(4, 3), others[1], 0.25), others[1].argmax(1)
        torch.testing.assert_close(traced(function, a, b)(*others), wanted)
        torch.testing.assert_close(make_fx(function)(a, b)(*others), wanted)

        class Model(torch.nn.Module):
            def forward(self, a, b):
                return function(a, b)

        torch.testing.assert_close(torch.export.export(Model(), (a, b)).module()(*others), wanted)


def test_torch_fx_and_torch_jit_script_refuse_a_function():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.function = lerp(0.25)

        def forward(self, a, b):
            return self.function(a, b)

    with pytest.raises(torch.fx.proxy.TraceError, match='symbolically traced variables'):
        torch.fx.symbolic_trace(Model())
    with warnings.catch_warnings(), pytest.raises((RuntimeError, torch.jit.frontend.NotSupportedError)):
        warnings.simplefilter('ignore', DeprecationWarning)
        torch.jit.script(Model())


def test_what_was_written_down_of_a_function_never_calls_another_one():
    first, a, b = lerp(0.125), torch.randn(4, 1), torch.randn(4, 3)
    made = again(traced(first, a, b))
    wanted = made(a, b)
    del first
    gc.collect()
    with pd.Graph() as graph:  # with the inputs and results of the first one
        x, y = graph.input('a', pd.f32, (4, 1)), graph.input('b', pd.f32, (4, 3))
        graph.fetch('y', x * y)
        graph.fetch('which', pd.argmin(y, 1))
    second = pt.function(graph)
    with pytest.raises(RuntimeError, match='the graph of this call is not there'):
        made(a, b)
    torch.testing.assert_close(second(a, b)[0], a * b)
    kept = lerp(0.125)  # the same graph made anew
    torch.testing.assert_close(made(a, b), wanted)
    torch.testing.assert_close(kept(a, b), wanted)


@pytest.mark.parametrize('kind, options', [LAYERS[i] for i in (1, 2, 6)])
@pytest.mark.parametrize('is_sorted', [False, True])
def test_a_compiled_model_takes_packed_sequences(kind, options, is_sorted):
    torch._dynamo.reset()
    layer = twins(kind, **options)[0]
    copied = copy.deepcopy(layer)

    def call(layer, packed):
        output, last = layer(packed)
        return PackedSequence(output.data * 2, *output[1:]), last

    whole = not layer.proj_size  # which is a function of ours, made when its extents are known
    compiled = torch.compile(call, backend='aot_eager', fullgraph=whole)
    for lengths in ([4, 2, 1], [5, 5, 3, 2]):
        x = torch.randn(len(lengths), max(lengths), 5)
        made = []
        for function, used in ((compiled, layer), (call, copied)):
            used.zero_grad()
            leaf = x.clone().requires_grad_()
            given = lengths if is_sorted else lengths[::-1]
            results = flat(function(used, pack_padded_sequence(leaf, given, batch_first=True, enforce_sorted=is_sorted)))
            sum(each.square().sum() for each in results).backward()
            made.append([*results, leaf.grad, *(each.grad for each in used.parameters())])
        torch.testing.assert_close(*made, **NEAR)
        hx = states_of(layer, len(lengths))
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        with torch.no_grad():
            again = torch.compile(lambda x, hx: layer(x, hx), backend='aot_eager', fullgraph=whole)
            torch.testing.assert_close(flat(again(packed, hx)), flat(copied(packed, hx)), **NEAR)


def test_ops_of_packed_sequences_are_what_pytorch_thinks_they_are():
    data, batch_sizes = torch.randn(6, 5, requires_grad=True), torch.tensor([3, 2, 1])
    torch.library.opcheck(torch.ops.paoding.pad_packed.default, (data, batch_sizes, 3))
    xs, lengths = torch.randn(3, 3, 5, requires_grad=True), torch.tensor([3, 2, 1])
    torch.library.opcheck(torch.ops.paoding.pack_padded.default, (xs, lengths, 6))
    torch.library.opcheck(torch.ops.paoding.checked_lengths.default, (lengths, 3))
