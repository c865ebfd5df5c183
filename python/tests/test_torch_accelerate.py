# SPDX-License-Identifier: Apache-2.0
"""What accelerate() changes of a model, what it leaves, and what it says of both."""

import copy
import warnings

import pytest

from torch_or_skip import torch
from torch.nn.utils import parametrizations, parametrize

import paoding.torch as pt
from torch_layers import flat, twins


class OwnGRU(torch.nn.GRU):
    pass


def test_accelerate_reports_what_it_changed_and_what_it_left_and_why():
    model = torch.nn.ModuleDict(
        {'a': torch.nn.LSTM(5, 7), 'b': torch.nn.Sequential(torch.nn.GRU(5, 7), OwnGRU(5, 7)), 'c': torch.nn.RNN(5, 7)}
    )
    model['mine'] = pt.LSTM(5, 7)
    model['c'].forward = lambda x: x
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)
        model['scripted'] = torch.jit.script(torch.nn.LSTM(5, 7))
    with pytest.warns(UserWarning, match='not every recurrent layer was changed') as caught:
        assert pt.accelerate(copy.deepcopy(model)) is not model
    assert caught[0].filename == __file__
    assert 'b.1: left, test_torch_accelerate.OwnGRU is a class of its own' in str(caught[0].message)
    made, report = pt.accelerate(model, return_report=True)
    assert made is model
    assert report.changed == {'a': 'LSTM', 'b.0': 'GRU'}
    assert list(report.left) == ['b.1', 'c', 'scripted']
    assert 'derived from torch.nn.GRU' in report.left['b.1'] and 'forward of its own' in report.left['c']
    assert 'torch.jit' in report.left['scripted']
    assert 'a: a paoding.torch.LSTM now' in str(report)
    assert [type(module) for module in (model['a'], model['b'][1])] == [pt.LSTM, OwnGRU]
    _, report = pt.accelerate(torch.nn.GRU(5, 7), return_report=True)
    assert str(report) == 'the model itself: a paoding.torch.GRU now'
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        whole = torch.nn.Sequential(torch.nn.LSTM(5, 7), torch.nn.Linear(7, 2))
        assert pt.accelerate(whole) is whole


@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
def test_parametrized_layers_are_accelerated_and_stay_parametrized(kind):
    _, theirs = twins(kind)
    parametrizations.weight_norm(theirs, 'weight_hh_l0')
    ours = copy.deepcopy(theirs)
    _, report = pt.accelerate(ours, return_report=True)
    assert report.changed == {'': kind} and isinstance(ours, getattr(pt, kind))
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    x = torch.randn(4, 3, 5)
    for _ in range(2):
        made = []
        for module in (ours, theirs):
            module.zero_grad()
            results = flat(module(x))
            sum(each.square().sum() for each in results).backward()
            made.append([*results, *(each.grad for each in module.parameters())])
            with torch.no_grad():
                made[-1] += flat(module(x))
                for each in module.parameters():
                    each -= 0.1 * each.grad
        torch.testing.assert_close(*made, rtol=1e-4, atol=1e-5)
    assert isinstance(copy.deepcopy(ours), getattr(pt, kind))
    parametrize.remove_parametrizations(ours, 'weight_hh_l0')
    assert type(ours) is getattr(pt, kind)
    torch.testing.assert_close(flat(ours(x)), flat(theirs(x)), rtol=1e-4, atol=1e-5)


def test_weights_that_hooks_make_are_read():
    theirs, ours = (twins('GRU')[1] for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        for module in (theirs, ours):
            torch.nn.utils.weight_norm(module, 'weight_hh_l0')
    assert type(pt.accelerate(ours)) is pt.GRU
    x = torch.randn(4, 3, 5)
    with torch.no_grad():
        for module in (ours, theirs):
            module.weight_hh_l0_g *= 2
    torch.testing.assert_close(flat(ours(x)), flat(theirs(x)), rtol=1e-4, atol=1e-5)


class Cells(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.LSTMCell(4, 8)
        self.gated = torch.nn.GRUCell(4, 8)
        self.layer = torch.nn.GRU(4, 8)


def test_cells_are_left_and_reported_without_a_warning(recwarn):
    model, report = pt.accelerate(Cells(), return_report=True)
    assert report.changed == {'layer': 'GRU'} and type(model.cell) is torch.nn.LSTMCell
    assert 'is one step a call' in report.left['cell'] and report.left['gated'].endswith('is a torch.nn.GRU')
    pt.accelerate(Cells())
    assert not recwarn.list


def test_restore_takes_it_back_and_leaves_parameters_as_they_are():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({'a': torch.nn.LSTM(4, 8), 'b': torch.nn.GRU(4, 8), 'c': torch.nn.RNN(4, 8), 'd': torch.nn.LSTM(4, 8)})
    torch.nn.utils.parametrizations.weight_norm(model['d'], 'weight_hh_l0')
    model['e'] = type('Own', (pt.LSTM,), {})(4, 8)
    x = torch.randn(5, 3, 4)
    kinds = {name: type(each) for name, each in model.items()}
    before = {name: each(x)[0] for name, each in model.items()}
    weights = [each.data_ptr() for each in model.parameters()]
    pt.accelerate(model)
    assert all(isinstance(model[name], pt.LSTM) for name in 'ad')
    same, report = pt.restore(model, return_report=True)
    assert same is model and [each.data_ptr() for each in model.parameters()] == weights
    assert report.changed == {'a': 'LSTM', 'b': 'GRU', 'c': 'RNN', 'd': 'LSTM'} and 'Own' in report.left['e']
    assert str(report).startswith('a: a torch.nn.LSTM now')
    assert {name: type(model[name]) for name in 'abce'} == {name: kinds[name] for name in 'abce'}
    assert isinstance(model['d'], torch.nn.LSTM) and torch.nn.utils.parametrize.is_parametrized(model['d'])
    for name, each in model.items():
        torch.testing.assert_close(each(x)[0], before[name])
    assert pt.restore(pt.LSTM(4, 8)).__class__ is torch.nn.LSTM


def test_the_profiler_of_torch_names_the_layer():
    layer, x = pt.GRU(4, 8, bidirectional=True), torch.randn(5, 3, 4)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        layer(x)[0].sum().backward()
    rows = {each.key: each.count for each in profiler.key_averages()}
    assert rows['paoding.torch.GRU(4, 8, bidirectional=True)'] == 1


def test_inputs_of_another_dtype_are_refused_as_torch_nn_does():
    with pytest.raises(ValueError, match='Convert input: input.to.torch.float32.'):
        pt.LSTM(4, 8)(torch.randn(5, 3, 4, dtype=torch.float64))


def test_the_meta_device_gives_shapes():
    layer = pt.LSTM(4, 8, num_layers=2, device='meta')
    output, (h, c) = layer(torch.zeros(5, 3, 4, device='meta'))
    assert output.shape == (5, 3, 8) and h.shape == c.shape == (2, 3, 8) and output.device.type == 'meta'
