# SPDX-License-Identifier: Apache-2.0
"""Layers of paoding.torch at every length of a data set: what is made for a length is made once."""

import threading

import pytest
from torch_or_skip import torch

import paoding.torch as pt
from paoding.torch import _recurrence

LENGTHS = range(3, 203)


class CountedPlan(_recurrence._Plan):
    made = 0

    def __init__(self, *key):
        CountedPlan.made += 1
        super().__init__(*key)


@pytest.mark.parametrize('is_trained', [False, True])
def test_two_hundred_lengths_are_planned_once_each(monkeypatch, is_trained):
    monkeypatch.setattr(_recurrence, '_Plan', CountedPlan)
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    ours, theirs = pt.LSTM(4, 5), torch.nn.LSTM(4, 5)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(max(LENGTHS), 2, 4)

    def sweep():
        for length in LENGTHS:
            results = []
            for layer in (ours, theirs):
                with torch.set_grad_enabled(is_trained):
                    output, _ = layer(x[:length])
                if is_trained:
                    layer.zero_grad()
                    output.square().sum().backward()
                results.append((output.detach(), layer.weight_hh_l0.grad))
            torch.testing.assert_close(results[0][0], results[1][0])
            if is_trained:
                torch.testing.assert_close(results[0][1], results[1][1], rtol=1e-3, atol=1e-3)

    def counted():  # a thread has plans of its own
        CountedPlan.made = 0
        sweep()
        first = CountedPlan.made
        sweep()
        counts.append((first, CountedPlan.made))

    counts = []
    thread = threading.Thread(target=counted)
    thread.start()
    thread.join()
    torch.set_num_threads(threads)
    assert counts == [(len(LENGTHS), len(LENGTHS))]
