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
