# SPDX-License-Identifier: Apache-2.0
"""paoding.torch.compare: models equal to their graphs, and faults that were put into an op, a weight or a dtype are named."""

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paoding as pd
from torch_or_skip import torch

import paoding.torch as pt

nn = torch.nn


class Tagger(nn.Module):
    def __init__(self, kind: Any = nn.LSTM) -> None:
        super().__init__()
        self.table = nn.Embedding(20, 8)
        self.layers = kind(8, 12, 2, batch_first=True, bidirectional=True)
        self.norm, self.out = nn.LayerNorm(24), nn.Linear(24, 3)

    def forward(self, ids: Any) -> dict[str, Any]:
        x = self.norm(self.layers(self.table(ids))[0])
        x = torch.relu(x)
        return {'scores': self.out(x), 'best': x.argmax(-1)}


def line_with(text: str) -> int:
    lines, begin = inspect.getsourcelines(Tagger)
    return begin + next(i for i, line in enumerate(lines) if text in line)


def tagger(kind: Any = nn.LSTM) -> Any:
    torch.manual_seed(3)
    return Tagger(kind).eval()


IDS = torch.arange(12).reshape(2, 6)


@pytest.mark.parametrize('kind', [nn.LSTM, nn.GRU, nn.RNN])
def test_a_model_is_equal_to_its_graph_in_every_node(kind: Any) -> None:
    found = pt.compare(tagger(kind), (IDS,), tolerance=1e-5)
    assert found.is_equal and found.first is None and found.nodes > 10
    assert set(found.results) == {'scores', 'best'} and found.results['scores'][1] < 1e-5
    assert str(found).endswith('equal')


def test_an_op_that_is_converted_wrongly_is_named_with_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from paoding.torch.compiler import _table

    pt.compare(tagger(), (IDS,))  # fills the table
    entry = _table.found(torch.ops.aten.relu.default)
    assert entry is not None
    before = _table.found

    def found_wrong(target: Any) -> Any:
        made = before(target)
        if target is not torch.ops.aten.relu.default:
            return made
        return (lambda m, x: entry[0](m, x) * 1.01), entry[1]

    monkeypatch.setattr('paoding.torch.compiler._convert.found', found_wrong)
    found = pt.compare(tagger(), (IDS,))
    assert not found.is_equal and found.first is not None
    assert found.first.op == 'aten.relu.default' and found.first.line == f"{__file__}:{line_with('torch.relu(x)')}"
    assert found.first.ours == pytest.approx(1.01 * found.first.theirs)
    assert found.first.relative == pytest.approx(0.01, rel=1e-3)
    assert f"aten.relu.default ({found.first.line}): element {list(found.first.index)} of float32[2, 6, 24] is" in str(found)


@pytest.mark.parametrize('value', [7.0, float('nan')])
def test_a_weight_that_was_changed_in_the_file_is_found_where_it_is_read(tmp_path: Path, value: float) -> None:
    model, path = tagger(), tmp_path / 'tagger.pd'
    pt.export(model, (IDS,), path)
    assert pt.compare(model, (IDS,), path=path).is_equal
    with torch.no_grad():
        changed = tagger()
        changed.norm.bias[5] = value
    pt.export(changed, (IDS,), path, check=False)
    found = pt.compare(model, (IDS,), path=path)
    assert not found.is_equal and found.first is not None
    assert found.first.layer == 'norm' and found.first.line.endswith(f":{line_with('self.norm(self.layers')}")
    assert found.first.index[-1] == 5 and found.first.op == 'aten.native_layer_norm.default, result 0'
    assert np.isnan(found.first.ours) == np.isnan(value)


def test_precision_counts_as_its_own_rounding_and_no_more() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Linear(64, 64)

        def forward(self, x: Any) -> Any:
            return self.w(x).tanh()

    torch.manual_seed(1)
    model, x = Product().eval(), torch.randn(8, 64)
    assert pt.compare(model, (x,), precision='bf16').is_equal
    found = pt.compare(model, (x,), precision='bf16', tolerance=1e-5)
    assert not found.is_equal and found.first is not None and found.first.layer == 'w'
    assert 1e-5 < found.results['result'][1] < 6e-2


def test_what_cannot_be_compared_is_an_error_of_the_call(tmp_path: Path) -> None:
    with pytest.raises(pd.ArgumentError, match='compare: the model is in training mode'):
        pt.compare(nn.Linear(2, 2), (torch.ones(1, 2),))
    with pytest.raises(pd.ArgumentError, match='compare: args is a tensor'):
        pt.compare(nn.Linear(2, 2).eval(), torch.ones(1, 2))
    with pytest.raises(pd.ArgumentError, match='compare: tolerance is -1'):
        pt.compare(nn.Linear(2, 2).eval(), (torch.ones(1, 2),), tolerance=-1)
    pt.export(nn.Linear(2, 2).eval(), (torch.ones(2, 2),), tmp_path / 'two.pd')
    with pytest.raises(pd.ArgumentError, match=r"'weight' has the shape \[2, 2\] in .*two.pd, \[3, 2\] in the model"):
        pt.compare(nn.Linear(2, 3).eval(), (torch.ones(2, 2),), path=tmp_path / 'two.pd')
    with pytest.raises(pd.ArgumentError, match="has no 'table.weight'"):
        pt.compare(tagger(), (IDS,), path=tmp_path / 'two.pd')
