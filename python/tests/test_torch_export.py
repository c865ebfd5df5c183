# SPDX-License-Identifier: Apache-2.0
"""paoding.torch.export: files beside the PyTorch models that they were made of, at other sizes than the example's."""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import paoding as pd
from torch_or_skip import torch

import paoding.torch as pt
import transformers as tr

nn = torch.nn


def close(made: Any, wanted: Any, most: float = 2e-6) -> None:
    wanted = wanted.detach()
    difference = float((torch.from_dlpack(made) - wanted).abs().max()) / max(1e-6, float(wanted.abs().max()))
    assert tuple(made.shape) == tuple(wanted.shape) and difference <= most


class Speech(nn.Module):
    """Two LSTM layers in both directions, a convolution that halves time, a mean over it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layers = nn.Embedding(50, 16), nn.LSTM(16, 24, 2, batch_first=True, bidirectional=True)
        self.conv, self.norm, self.out = nn.Conv1d(48, 32, 3, stride=2, padding=1), nn.LayerNorm(32), nn.Linear(32, 5)

    def forward(self, ids: Any) -> dict[str, Any]:
        x = torch.relu(self.conv(self.layers(self.table(ids))[0].transpose(1, 2))).mean(2)
        return {'scores': self.out(self.norm(x)), 'state': x}


def speech() -> Any:
    torch.manual_seed(1)
    return Speech().eval()


IDS = torch.arange(36).reshape(3, 12)
ANY = {'ids': {0: 'batch', 1: ('time', 1, 512)}}


@pytest.fixture(scope='module')
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    path = tmp_path_factory.mktemp('export') / 'speech.pd'
    return pt.export(speech(), (IDS,), path, dynamic_shapes=ANY), path


def test_one_file_is_of_every_size(file: tuple[Any, Path]) -> None:
    exported, path = file
    assert exported.inputs == {'ids': 'i64[batch,time]'} and exported.results == ['scores', 'state']
    assert exported.extents['time'] == (1, 512) and exported.extents['batch'][0] == 1
    model, ours = speech(), pd.Model.load(path)
    for batch, time in ((1, 1), (1, 12), (5, 40), (2, 3), (33, 2), (4, 511)):
        ids = torch.randint(0, 50, (batch, time))
        made, wanted = ours(ids=ids), model(ids)
        close(made['scores'], wanted['scores'])
        close(made['state'], wanted['state'])
    with pytest.raises(pd.ShapeError, match='time is 513; this class holds 1 to 512'):
        ours(ids=torch.zeros(1, 513, dtype=torch.long))


def test_what_is_said_of_it_names_inputs_results_and_the_difference(file: tuple[Any, Path]) -> None:
    exported, path = file
    said = str(exported)
    assert said.startswith(f'{path}: run(ids i64[batch,time]) gives scores, state; ')
    assert 'time is 1 to 512' in said and 'from PyTorch' in said
    assert exported.differences[0][0] == {'batch': 3, 'time': 12} and exported.differences[0][1] < 1e-5


def test_a_model_without_names_of_sizes_is_of_the_example_alone(tmp_path: Path) -> None:
    exported = pt.export(speech(), (IDS,), tmp_path / 'fixed.pd')
    assert exported.extents == {} and exported.inputs == {'ids': 'i64[3,12]'}
    ours = pd.Model.load(tmp_path / 'fixed.pd')
    close(ours(ids=IDS)['scores'], speech()(IDS)['scores'])
    with pytest.raises(pd.ShapeError):
        ours(ids=IDS[:2])


def test_results_and_the_entry_have_the_names_that_are_given(tmp_path: Path) -> None:
    exported = pt.export(
        nn.GRU(4, 8, batch_first=True).eval(), (torch.ones(2, 3, 4),), tmp_path / 'gru.pd', results=['all', 'last'], entry='step'
    )
    assert exported.results == ['all', 'last']
    assert pd.Model.load(tmp_path / 'gru.pd').entries == ['step']
    with pytest.raises(pd.ArgumentError, match='needed are 2 names'):
        pt.export(nn.GRU(4, 8).eval(), (torch.ones(2, 3, 4),), tmp_path / 'no.pd', results=['all'])
    assert not (tmp_path / 'no.pd').exists()


def test_arguments_by_keyword_in_lists_and_of_several_dtypes(tmp_path: Path) -> None:
    class Two(nn.Module):
        def forward(self, pair: list[Any], *, mask: Any = None, scale: float = 2.0) -> Any:
            return torch.where(mask, pair[0] * scale, pair[1].to(torch.float32))

    pair = [torch.randn(3, 4), torch.arange(12).reshape(3, 4)]
    mask = torch.rand(3, 4) > 0.5
    exported = pt.export(
        Two().eval(), (pair,), tmp_path / 'two.pd', kwargs={'mask': mask},
        dynamic_shapes={'pair': [{0: 'rows'}, {0: 'rows'}], 'mask': {0: 'rows'}},
    )  # fmt: skip
    assert list(exported.inputs.values()) == ['f32[rows,4]', 'i64[rows,4]', 'bool[rows,4]']
    first, second, third = exported.inputs
    given = [torch.randn(7, 4), torch.ones(7, 4, dtype=torch.long)]
    where = torch.rand(7, 4) > 0.5
    close(
        pd.Model.load(tmp_path / 'two.pd')(**{first: given[0], second: given[1], third: where})['result'],
        Two()(given, mask=where),
    )


def test_tied_weights_are_in_the_file_once(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.out = nn.Embedding(300, 40), nn.Linear(40, 300, bias=False)
            self.out.weight = self.table.weight

        def forward(self, ids: Any) -> Any:
            return self.out(self.table(ids))

    pt.export(Tied().eval(), (IDS,), tmp_path / 'tied.pd')
    assert list(pd.Model.load(tmp_path / 'tied.pd').parameters) == ['table.weight']
    assert (tmp_path / 'tied.pd').stat().st_size < 1.5 * 300 * 40 * 4


def small(**more: Any) -> dict[str, Any]:
    return {
        'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 4, 'intermediate_size': 64, 'vocab_size': 50,
        'max_position_embeddings': 64, **more,
    }  # fmt: skip


class First(nn.Module):
    """The first result of a model of Hugging Face's."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)[0]


TIMES: Any = {'x': {0: 'batch', 1: ('time', 2, 64)}}
IMAGES: Any = {'x': {0: 'batch'}}
PUBLIC: dict[str, Callable[[], tuple[Any, Any, Any]]] = {
    'bert': lambda: (tr.BertModel(tr.BertConfig(**small())), TIMES, (2, 16)),
    'gpt2': lambda: (
        tr.GPT2LMHeadModel(tr.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=50, n_positions=64, use_cache=False)),
        TIMES, (2, 16),
    ),
    'llama': lambda: (tr.LlamaForCausalLM(tr.LlamaConfig(**small(num_key_value_heads=2, use_cache=False))), TIMES, (2, 16)),
    'xlnet': lambda: (tr.XLNetModel(tr.XLNetConfig(d_model=32, n_layer=1, n_head=4, d_inner=64, vocab_size=50)), TIMES, (2, 16)),
    't5': lambda: (
        tr.T5EncoderModel(tr.T5Config(d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, vocab_size=50)), TIMES, (2, 16),
    ),
    'vit': lambda: (
        tr.ViTModel(tr.ViTConfig(**small(image_size=32, patch_size=8))), IMAGES, (2, 3, 32, 32),
    ),
    'resnet': lambda: (
        tr.ResNetModel(tr.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])),
        {'x': {0: 'batch', 2: ('height', 32, 256), 3: ('width', 32, 256)}}, (2, 3, 64, 48),
    ),
}  # fmt: skip


@pytest.mark.parametrize('name', PUBLIC)
def test_models_of_the_public_at_other_sizes(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made, shapes, extents = PUBLIC[name]()
    model = First(made).eval()

    def example(*sizes: int) -> Any:
        return torch.randint(0, 50, sizes) if len(sizes) == 2 else torch.randn(sizes)

    pt.export(model, (example(*extents),), tmp_path / 'model.pd', dynamic_shapes=shapes)
    ours = pd.Model.load(tmp_path / 'model.pd')
    others = [(1, *extents[1:]), (5, *extents[1:])]
    if len(shapes['x']) > 1:
        others += [(3, 23), (1, 2)] if len(extents) == 2 else [(1, 3, 33, 90)]
    for sizes in others:
        x = example(*sizes)
        close(ours(x=x)['result'], model(x), 5e-6)


def refused(error: type[Exception], pattern: str, model: Any, args: Any, path: Path, **more: Any) -> None:
    with pytest.raises(error, match=pattern):
        pt.export(model, args, path / 'never.pd', **more)
    assert not (path / 'never.pd').exists()


class Fixes(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.reshape(3, -1) if x.shape[0] == 3 else x


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('calls', torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return x + self.calls


class Solves(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.solve(x, x)


class Draws(nn.Module):
    def forward(self, x: Any) -> Any:
        return x + torch.rand_like(x)


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    x, square = torch.randn(3, 4), torch.eye(4)
    training = nn.Sequential(nn.Linear(4, 4), nn.Dropout())
    refused(pd.ArgumentError, r'the model is in training mode; call model.eval\(\)', training, (x,), tmp_path)
    refused(pd.ArgumentError, r"args is a tensor, needed is the tuple", training.eval(), x, tmp_path)
    refused(pd.ArgumentError, 'needed is a torch.nn.Module', torch.relu, (x,), tmp_path)
    refused(pd.ArgumentError, "names 'y'; the model is called with x", Fixes().eval(), (x,), tmp_path, dynamic_shapes={'y': {}})
    refused(pd.ArgumentError, 'names axis 2 of x, which has 2 axes', Fixes().eval(), (x,), tmp_path, dynamic_shapes={'x': {2: 'a'}})
    refused(
        pd.ArgumentError, 'rows is 1 in the example', Fixes().eval(), (x[:1],), tmp_path, dynamic_shapes={'x': {0: 'rows'}}
    )
    refused(
        pd.UnsupportedError, 'the model fixes rows to 3', Fixes().eval(), (x,), tmp_path, dynamic_shapes={'x': {0: 'rows'}}
    )
    refused(pd.UnsupportedError, "a call of the model writes to 'calls'", Writes().eval(), (x,), tmp_path)
    refused(pd.UnsupportedError, r'(?s)not paoding.s.*test_torch_export.py:\d+', Solves().eval(), (square,), tmp_path)
    refused(pd.UnsupportedError, 'random numbers', Draws().eval(), (x,), tmp_path)


def without_numbers(text: str) -> str:
    """Weights are random, and the program stands in another file."""
    return re.sub(r'-?\d+(\.\d+)?(e-\d+)?', '#', re.sub(r'\([^()]*\.py:\d+\)', '()', text))


def test_the_how_to_is_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / 'docs/howto/export_a_pytorch_model.md').read_text()
    blocks = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    (tmp_path / 'export_how_to.py').write_text(''.join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module('export_how_to')
    shown = re.search(r'```text\n(.*?)```', text, re.DOTALL)
    assert shown is not None and len(blocks) == 3
    assert str(module.written).splitlines()[:3] == shown.group(1).splitlines()[:3]
    shown_of_compare = re.findall(r'```text\n(.*?)```', text, re.DOTALL)[1]
    assert without_numbers(str(module.found)) == without_numbers(shown_of_compare.strip())
    assert re.search(r'`(slice.*?)`', text).group(1).replace('%15.0', '') in re.sub(r'%[\d.]+', '', (tmp_path / 'classifier.pd').read_bytes().decode('latin-1'))  # type: ignore[union-attr]


def test_a_file_that_says_its_batch_takes_any_number_of_rows(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3)).eval()
    path = tmp_path / 'model.pd'
    pt.export(
        model, (torch.randn(4, 4),), path, dynamic_shapes=({0: ('rows', 1, 16)},), results=['y'], batch='rows'
    )
    loaded = pd.Model.load(path)
    assert loaded.batch == 'rows'
    (inputs,) = loaded.inputs('run')
    for rows in (1, 3, 16, 40):
        x = torch.randn(rows, 4)
        made = torch.from_numpy(loaded.run({next(iter(inputs)): x})['y'].numpy())
        torch.testing.assert_close(made, model(x), atol=1e-5, rtol=1e-5)
    with pytest.raises(pd.ArgumentError, match='no graph has this extent; there are: rows'):
        pt.export(model, (torch.randn(4, 4),), path, dynamic_shapes=({0: 'rows'},), batch='batch')
