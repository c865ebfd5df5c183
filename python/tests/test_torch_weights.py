# SPDX-License-Identifier: Apache-2.0
"""Weights that were written are the ones that paoding.torch reads, whoever wrote them and whatever PyTorch knows of it.
What is right says a torch.nn layer that is made anew of the same weights."""

import copy

import numpy as np
import pytest

import paoding as pd
from torch_or_skip import torch

import paoding.torch as pt

WEIGHTS = ('weight_ih_l0', 'weight_hh_l0', 'bias_ih_l0', 'bias_hh_l0')


def layer(kind='LSTM', inputs=5, hidden=7, **options):
    torch.manual_seed(3)
    return getattr(pt, kind)(inputs, hidden, **options)


def outputs(module, x):
    """Without gradients, in both modes that PyTorch has for that."""
    with torch.no_grad():
        plain = module(x)[0]
    with torch.inference_mode():
        return plain, module(x)[0].clone()


def check(module, x, limit=1e-5):
    options = {name: getattr(module, name) for name in ('num_layers', 'bidirectional')}
    if module.proj_size > 0:
        options['proj_size'] = module.proj_size
    theirs = getattr(torch.nn, type(module).__name__)(module.input_size, module.hidden_size, dtype=x.dtype, **options)
    with torch.no_grad():
        for name, value in module.named_parameters():
            getattr(theirs, name).copy_(value)
        wanted = theirs(x)[0]
    for got in outputs(module, x):
        torch.testing.assert_close(got, wanted, rtol=limit, atol=limit)
    return wanted


def changes(module, x, write, limit=1e-5):
    """What write(module) does is seen; it is called twice, with results of before each time."""
    before = check(module, x, limit)
    for _ in range(2):
        write(module)
        after = check(module, x, limit)
        assert not torch.allclose(before, after, rtol=2 * limit, atol=2 * limit)
        before = after


def by_data(module):
    for name in WEIGHTS:
        getattr(module, name).data.mul_(0.5)


def by_averages(module):
    """As of a model whose weights are means over time: written through .data, of a model that is trained."""
    torch.manual_seed(8)
    trained = type(module)(module.input_size, module.hidden_size)
    for mine, theirs in zip(module.parameters(), trained.parameters()):
        mine.data.mul_(0.25).add_(theirs.data, alpha=1.5)


def by_clipping(module):
    limit = 0.5 * max(parameter.abs().max().item() for parameter in module.parameters())
    for parameter in module.parameters():
        parameter.data.clamp_(-limit, limit)


def by_forget_gates(module):
    n = module.hidden_size
    with torch.no_grad():
        value = module.bias_ih_l0[n].item() + 1
    for name in ('bias_ih_l0', 'bias_hh_l0'):
        getattr(module, name).data[n : 2 * n].fill_(value)


def by_numpy(module):
    for name in WEIGHTS:
        getattr(module, name).detach().numpy()[...] *= 0.5


def by_rows_of_numpy(module):
    module.weight_hh_l0.detach().numpy()[3] += 2


def by_data_of_others(module):
    for name in WEIGHTS:
        parameter = getattr(module, name)
        parameter.data = parameter.data * 0.5


def by_memory_given_back(module):
    """As shards of weights come and go: storages of no size, which then have their size again, most often where it was."""
    for name in WEIGHTS:
        parameter = getattr(module, name)
        values, storage = parameter.detach() * 0.5, parameter.untyped_storage()
        size = storage.size()
        storage.resize_(0)
        storage.resize_(size)
        parameter.data.copy_(values)


def by_set(module):
    with torch.no_grad():
        for name in WEIGHTS:
            parameter = getattr(module, name)
            parameter.set_(parameter * 0.5)


def by_parameters(module):
    with torch.no_grad():
        for name in WEIGHTS:
            getattr(module, name).mul_(0.5)


def by_foreach(module):
    with torch.no_grad():
        torch._foreach_mul_(list(module.parameters()), 0.5)


def by_state(module):
    module.load_state_dict({name: value * 0.5 for name, value in module.state_dict().items()})


def by_assigned_state(module):
    module.load_state_dict({name: value * 0.5 for name, value in module.state_dict().items()}, assign=True)


def by_flat_vector(module):
    flat = torch.nn.utils.parameters_to_vector(module.parameters()).detach() * 0.5
    torch.nn.utils.vector_to_parameters(flat, module.parameters())


WRITES = [
    *(by_data, by_averages, by_clipping, by_forget_gates, by_numpy, by_rows_of_numpy, by_data_of_others),
    *(by_memory_given_back, by_set, by_parameters, by_foreach, by_state, by_assigned_state),
    *(by_flat_vector,),
]


@pytest.mark.parametrize('kind', ['LSTM', 'GRU'])
@pytest.mark.parametrize('write', WRITES, ids=lambda write: write.__name__)
def test_what_was_written_is_read(kind, write):
    changes(layer(kind), torch.randn(4, 2, 5), write)


@pytest.mark.parametrize('write', [by_data, by_numpy], ids=lambda write: write.__name__)
@pytest.mark.parametrize(
    'steps, batch, hidden', [(1, 1, 64), (1, 4, 40), (3, 2, 129), (16, 1, 64), (16, 1, 50), (2, 33, 64)]
)
def test_what_was_written_is_read_by_every_kernel(write, steps, batch, hidden):
    for kind in ('LSTM', 'GRU', 'RNN'):
        changes(layer(kind, 16, hidden), torch.randn(steps, batch, 16), write)


@pytest.mark.parametrize('steps, batch', [(1, 1), (4, 2), (17, 1), (3, 20)])
@pytest.mark.parametrize('dtype, limit', [(torch.float64, 1e-9), (torch.bfloat16, 0.02), (torch.float16, 0.003)])
def test_what_was_written_is_read_in_every_dtype(dtype, limit, steps, batch):
    for kind in ('LSTM', 'GRU'):
        changes(layer(kind, 16, 64).to(dtype), 2 * torch.randn(steps, batch, 16).to(dtype), by_data, limit)


@pytest.mark.parametrize('options', [{'num_layers': 2, 'bidirectional': True}, {'proj_size': 4}])
def test_what_was_written_is_read_by_every_layer(options):
    def write(module):
        for parameter in module.parameters():
            parameter.data.mul_(0.6)

    changes(layer(**options), torch.randn(4, 2, 5), write)


OPTIMIZERS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad]


@pytest.mark.parametrize('optimizer', OPTIMIZERS, ids=lambda each: each.__name__)
@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
def test_losses_of_a_fused_optimizer_are_torchs(kind, optimizer):
    torch.manual_seed(1)
    theirs = getattr(torch.nn, kind)(5, 7)
    ours = pt.accelerate(copy.deepcopy(theirs))
    x, wanted = torch.randn(6, 3, 5), torch.randn(6, 3, 7).tanh()
    losses = []
    for module in (ours, theirs):
        steps = optimizer(module.parameters(), lr=0.05, fused=True)
        found = []
        for _ in range(4):
            with torch.no_grad():
                found.append((module(x)[0] - wanted).square().mean().item())
            for _ in range(3):
                steps.zero_grad()
                (module(x)[0] - wanted).square().mean().backward()
                steps.step()
        losses.append(found)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    assert losses[0][3] < 0.99 * losses[0][0]


def test_weights_in_the_memory_of_others_are_read_where_they_are():
    theirs = torch.nn.LSTM(5, 7)
    ours = pt.accelerate(copy.deepcopy(theirs))
    x = torch.randn(4, 2, 5)
    rooms = {}
    for name, parameter in ours.named_parameters():
        room = np.zeros(parameter.numel() + 1, 'f4')[1:].reshape(parameter.shape)  # at no address that PyTorch would give
        room[...] = parameter.detach().numpy()
        rooms[name] = room
        parameter.data = torch.from_numpy(room)
    for _ in range(2):
        check(ours, x)
        for room in rooms.values():
            room *= 0.5


def test_autocast_rounds_what_was_written():
    module, x = layer(), torch.randn(4, 2, 5)
    for _ in range(2):
        with torch.no_grad():
            wanted = module(x)[0]
            with torch.autocast('cpu', torch.bfloat16):
                torch.testing.assert_close(module(x)[0].float(), wanted, rtol=0.03, atol=0.03)
        for parameter in module.parameters():
            parameter.data.mul_(2)


def test_a_function_reads_what_was_written():
    with pd.Graph() as graph:
        x, w = graph.input('x', pd.f32, (2, 64)), graph.input('w', pd.f32, (256, 64))
        graph.fetch('y', x @ pd.tanh(w).T)
    call, x, w = pt.function(graph), torch.randn(2, 64), torch.randn(256, 64)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(call(x, w), x @ torch.tanh(w).T, rtol=1e-5, atol=1e-4)
        w.numpy()[...] *= -0.5
