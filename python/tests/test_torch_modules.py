# SPDX-License-Identifier: Apache-2.0
"""pd.nn.from_torch and to_torch, convolutions and losses beside PyTorch."""

import pathlib
import re

import numpy as np
import pytest
from torch_or_skip import torch

import paoding as pd

nn = torch.nn


def program_of(layer, *shapes, call=lambda made, *values: made(*values), dtype='f64'):
    with pd.Graph() as graph:
        values = [graph.input(f'x{i}', dtype, shape) for i, shape in enumerate(shapes)]
        made = call(layer(graph), *values)
        graph.fetch('y', made)
    parameters = pd.Parameters(graph, seed=1)
    return pd.Program(graph, parameters), parameters


def same(module, *shapes, call=lambda made, *values: made(*values), theirs=None, integers=False):
    """Results of a module and of the layer made of it, and of the module with the weights of the layer written back."""
    torch.manual_seed(0)
    module = module.double()
    for each in (*module.parameters(), *module.buffers()):
        if each.is_floating_point():
            each.data += 0.1 * torch.rand(each.shape, dtype=each.dtype)
    xs = [torch.randint(0, 5, shape) if integers else torch.randn(*shape, dtype=torch.float64) for shape in shapes]
    program, parameters = program_of(
        lambda graph: pd.nn.from_torch(module, 'm', graph=graph), *shapes, call=call, dtype='i64' if integers else 'f64'
    )
    feeds = {f'x{i}': x.numpy() for i, x in enumerate(xs)}
    theirs = theirs or (lambda *xs: module(*xs))
    with torch.no_grad():
        wanted = theirs(*xs).numpy()
    np.testing.assert_allclose(program.run(feeds)['y'], wanted, rtol=1e-9, atol=1e-10)

    updated = pd.nn.from_torch_weights(module, 'm')
    assert set(updated) <= set(parameters)
    for name in updated:
        parameters[name] = parameters[name].numpy() * 0.5 + 0.1
    pd.nn.to_torch(parameters, module, 'm')
    with torch.no_grad():
        np.testing.assert_allclose(program.run(feeds)['y'], theirs(*xs).numpy(), rtol=1e-9, atol=1e-10)
    for name, array in pd.nn.from_torch_weights(module, 'm').items():
        np.testing.assert_allclose(array, parameters[name], rtol=1e-12)


@pytest.mark.parametrize(
    ('module', 'shape'),
    [
        (nn.Linear(4, 3), (5, 4)),
        (nn.Linear(4, 3, bias=False), (5, 4)),
        (nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), (2, 4, 11)),
        (nn.Conv1d(4, 6, 4, padding='same'), (2, 4, 11)),
        (nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), bias=False), (2, 4, 7, 6)),
        (nn.Conv2d(4, 6, 4, padding='same'), (2, 4, 7, 6)),
        (nn.Conv3d(2, 4, (1, 2, 3), padding=(0, 1, 1), groups=2), (2, 2, 4, 5, 6)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), (2, 4, 5, 4)),
        (nn.LayerNorm(6, eps=1e-3), (4, 6)),
        (nn.GroupNorm(2, 6), (3, 6, 4)),
        (nn.RMSNorm(6), (4, 6)),
        (nn.RMSNorm(6, eps=0.1), (4, 6)),
        (nn.BatchNorm1d(6).eval(), (4, 6)),
        (nn.BatchNorm2d(6, eps=1e-3).eval(), (2, 6, 3, 4)),
        (nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 2), nn.Softmax(-1)).eval(), (3, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(18, 2)), (3, 1, 8, 8)),
        (nn.Sequential(nn.AvgPool2d(2, padding=1), nn.LeakyReLU(0.2), nn.ELU(0.5), nn.GELU('tanh')), (3, 1, 8, 8)),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, nn.Module) else '',
)
def test_a_layer_made_of_a_module_gives_what_it_gives(module, shape):
    same(module, shape)


def test_rows_of_a_table():
    same(nn.Embedding(5, 3, padding_idx=1), (4, 2), integers=True)


@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
@pytest.mark.parametrize(
    'options',
    [{}, {'num_layers': 2, 'bidirectional': True}, {'bias': False}, {'proj_size': 2}, {'nonlinearity': 'relu'}],
)
def test_recurrent_layers(kind, options):
    if ('proj_size' in options and kind != 'LSTM') or ('nonlinearity' in options and kind != 'RNN'):
        options = {'num_layers': 3}
    module = getattr(nn, kind)(3, 4, **options)
    if options.get('bias') is False:  # written back, a bias has no place
        program, _ = program_of(
            lambda graph: pd.nn.from_torch(module, 'm', graph=graph), (5, 2, 3), call=lambda m, x: m(x).outputs, dtype='f32'
        )
        x = torch.randn(5, 2, 3)
        np.testing.assert_allclose(program(x0=x)['y'], module(x)[0].detach(), rtol=1e-4, atol=1e-6)
        return
    same(module, (5, 2, 3), call=lambda made, x: made(x).outputs, theirs=lambda x: module(x)[0])


def test_cells():
    same(nn.GRUCell(3, 4), (2, 3), (2, 4))
    same(nn.RNNCell(3, 4, nonlinearity='relu'), (2, 3), (2, 4))
    cell = nn.LSTMCell(3, 4)
    same(
        cell, (2, 3), (2, 4), (2, 4),
        call=lambda made, x, h, c: made(x, (h, c))[1], theirs=lambda x, h, c: cell(x, (h, c))[1],
    )  # fmt: skip


@pytest.mark.parametrize('options', [{}, {'kdim': 6, 'vdim': 5}, {'bias': False}])
def test_attention(options):
    module = nn.MultiheadAttention(8, 2, batch_first=True, **options)
    widths = (8, options.get('kdim', 8), options.get('vdim', 8))
    shapes = [(2, 5 if i == 0 else 3, width) for i, width in enumerate(widths)]
    same(module, *shapes, theirs=lambda q, k, v: module(q, k, v)[0])


@pytest.mark.parametrize('norm_first', [False, True])
@pytest.mark.parametrize('activation', ['relu', 'gelu'])
def test_layers_of_transformers(norm_first, activation):
    options = dict(dim_feedforward=12, batch_first=True, norm_first=norm_first, activation=activation)
    encoder = nn.TransformerEncoderLayer(8, 2, **options).eval()
    same(encoder, (2, 5, 8))
    decoder = nn.TransformerDecoderLayer(8, 2, **options).eval()
    mask = torch.triu(torch.full((5, 5), float('-inf'), dtype=torch.float64), 1)
    same(decoder, (2, 5, 8), (2, 3, 8), theirs=lambda x, memory: decoder(x, memory, tgt_mask=mask))


@pytest.mark.parametrize('has_norm', [False, True])
def test_stacks_of_transformer_layers(has_norm):
    options = dict(dim_feedforward=12, batch_first=True, dropout=0.0)
    norm = (lambda: nn.LayerNorm(8)) if has_norm else (lambda: None)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, **options), 2, norm(), enable_nested_tensor=False)
    same(encoder, (2, 5, 8))
    hidden = torch.tensor([[False] * 5, [False, False, False, True, True]])
    same(
        encoder, (2, 5, 8),
        call=lambda made, x: made(x, lengths=pd.constant(np.array([5, 3]), graph=x.graph))[:, :3],
        theirs=lambda x: encoder(x, src_key_padding_mask=hidden)[:, :3],
    )  # fmt: skip
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, **options), 2, norm())
    mask = torch.triu(torch.full((5, 5), float('-inf'), dtype=torch.float64), 1)
    same(decoder, (2, 5, 8), (2, 3, 8), theirs=lambda x, memory: decoder(x, memory, tgt_mask=mask))


def test_what_a_layer_cannot_do_is_refused():
    for module, problem in (
        (nn.Bilinear(2, 2, 2), 'Bilinear is no module that paoding.nn has'),
        (nn.Conv2d(1, 1, 3, padding=1, padding_mode='reflect'), 'padding_mode'),
        (nn.LayerNorm((2, 3)), 'several_axes'),
        (nn.Embedding(3, 2, max_norm=1.0), 'max_norm'),
        (nn.Sequential(nn.Linear(2, 2), nn.Bilinear(2, 2, 2)), 'Bilinear'),
        (nn.AvgPool2d(2, ceil_mode=True), 'ceil_mode'),
    ):
        with pd.Graph() as graph, pytest.raises(pd.UnsupportedError, match=problem):
            pd.nn.from_torch(module, 'm')
        assert graph.parameters == []
    module = nn.LSTM(3, 4, bias=False)
    with pd.Graph() as graph:
        pd.nn.from_torch(module, 'm')
    parameters = pd.Parameters(graph)
    parameters['m/l0/b'] = np.ones(16)
    with pytest.raises(pd.ArgumentError, match="'l0/b' is not 0, and the module has no place for it"):
        pd.nn.to_torch(parameters, module, 'm')


@pytest.mark.parametrize('reduction', ['mean', 'sum', 'none'])
@pytest.mark.parametrize('blank', [0, 3])
def test_ctc_loss_and_its_gradient(reduction, blank):
    random = np.random.default_rng(1)
    logits = random.standard_normal((12, 4, 6))
    targets = (random.integers(1, 6, (4, 5)) + blank) % 6
    targets[1, :3] = targets[1, 0]  # repeats need a blank between them
    lengths, target_lengths = np.array([12, 9, 5, 12]), np.array([5, 3, 0, 1])
    given = torch.tensor(logits, requires_grad=True)
    wanted = torch.nn.functional.ctc_loss(
        given.log_softmax(-1), torch.tensor(targets), torch.tensor(lengths), torch.tensor(target_lengths),
        blank=blank, reduction=reduction,
    )  # fmt: skip
    wanted.sum().backward()
    with pd.Graph() as graph:
        x = graph.input('x', 'f64', logits.shape)
        y, n, m = (graph.input(name, 'i64', each.shape) for name, each in zip('ynm', (targets, lengths, target_lengths)))
        loss = pd.ctc_loss(pd.log_softmax(x), y, n, m, blank, reduction)
        graph.fetch('loss', loss)
        graph.fetch('dx', pd.gradients(loss.sum(), x))
    made = pd.Program(graph)(x=logits, y=targets, n=lengths, m=target_lengths)
    np.testing.assert_allclose(made['loss'], wanted.detach(), rtol=1e-9)
    np.testing.assert_allclose(made['dx'], given.grad, rtol=1e-7, atol=1e-9)


def test_ctc_loss_of_a_target_that_is_too_long():
    logits = np.zeros((2, 2, 3), np.float32)
    targets, lengths, target_lengths = np.array([[1, 1, 2], [1, 2, 1]]), np.array([2, 2]), np.array([3, 2])
    for zero_infinity, first in ((False, np.inf), (True, 0)):
        with pd.Graph() as graph:
            x = graph.input('x', 'f32', logits.shape)
            y, n, m = (pd.constant(each) for each in (targets, lengths, target_lengths))
            losses = pd.ctc_loss(pd.log_softmax(x), y, n, m, reduction='none', zero_infinity=zero_infinity)
            graph.fetch('losses', losses)
            graph.fetch('dx', pd.gradients(losses.sum(), x))
        made = pd.Program(graph)(x=logits)
        np.testing.assert_allclose(made['losses'], [first, 2 * np.log(3)], rtol=1e-6)
        assert np.isfinite(made['dx']).all() and (made['dx'].numpy()[:, 0] == 0).all()
    with pytest.raises(pd.ShapeError, match=r'needed are \[T, B, classes\] and \[B, S\]'), pd.Graph():
        pd.ctc_loss(pd.zeros((3, 4)), pd.zeros((3, 4), 'i64'), pd.zeros(3, 'i64'), pd.zeros(3, 'i64'))
    with pytest.raises(pd.ArgumentError, match='blank is 9, needed is one of 4 classes'), pd.Graph():
        pd.ctc_loss(pd.zeros((3, 2, 4)), pd.zeros((2, 4), 'i64'), pd.zeros(2, 'i64'), pd.zeros(2, 'i64'), 9)


def test_the_how_to_is_so(capsys):
    text = (pathlib.Path(__file__).parents[2] / 'docs/howto/weights_from_pytorch.md').read_text()
    blocks = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    assert len(blocks) == 5
    exec(compile(''.join(blocks), 'weights_from_pytorch.md', 'exec'), {})
    assert capsys.readouterr().out == re.search(r'```text\n(.*?)```', text, re.DOTALL).group(1)
