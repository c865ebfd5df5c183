# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend='paoding') beside eager mode: models, in training and inference."""

import copy
import importlib
import pathlib
import re
import unittest.mock
import warnings

import pytest

from torch_or_skip import torch
from torch import nn
from torch.nn import functional as F

import paoding.torch as pt
from paoding.torch.compiler import _fused_cells, _ops_recurrent
from paoding.errors import ArgumentError, UnsupportedError
from paoding.torch import compiler
from paoding.torch.compiler import _backend as backend


@pytest.fixture(autouse=True)
def anew():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch.manual_seed(3)
    with warnings.catch_warnings():
        warnings.filterwarnings('error', message='paoding')
        yield
    torch._dynamo.reset()


class Classifier(nn.Module):
    def __init__(self, kind=nn.LSTM, layers=2, **options):
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.layers = kind(16, 24, layers, batch_first=True, **options)
        self.out = nn.Linear(24 * (2 if options.get('bidirectional') else 1), 5)

    def forward(self, ids):
        return self.out(self.layers(self.table(ids))[0][:, -1])


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, stride=2, groups=2),
            nn.BatchNorm2d(16),
            nn.Hardswish(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(16, 10),
        )

    def forward(self, x):
        return self.body(x).log_softmax(-1)


class Translator(nn.Module):
    """An encoder, and a decoder whose cell looks at it."""

    def __init__(self):
        super().__init__()
        self.table, self.encoder = nn.Embedding(40, 12), nn.GRU(12, 16, bidirectional=True)
        self.cell, self.query, self.out = nn.LSTMCell(12 + 32, 24), nn.Linear(24, 32), nn.Linear(24 + 32, 40)

    def forward(self, source, target):
        memory, _ = self.encoder(self.table(source))
        memory = memory.transpose(0, 1)
        h = c = memory.new_zeros(source.shape[1], 24)
        context, made = memory.mean(1), []
        for ids in self.table(target):
            h, c = self.cell(torch.cat([ids, context], 1), (h, c))
            weights = torch.softmax(torch.bmm(memory, self.query(h).unsqueeze(2)).squeeze(2), 1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            made.append(torch.cat([h, context], 1))
        return self.out(torch.stack(made))


def leaves(results):
    return [each for each in torch.utils._pytree.tree_leaves(results) if isinstance(each, torch.Tensor)]


def compiled_graphs():
    return torch._dynamo.utils.counters['stats']['unique_graphs']


def same(ours, theirs, limit):
    for mine, wanted in zip(leaves(ours), leaves(theirs), strict=True):
        assert mine.dtype == wanted.dtype and mine.stride() == wanted.stride()
        torch.testing.assert_close(mine, wanted, rtol=limit, atol=limit, equal_nan=True)


def compare(model, *args, limit=3e-5, steps=1, **options):
    """Results, strides, gradients, what the call wrote to buffers; then inference."""
    theirs, mine = model, copy.deepcopy(model)
    compiled = torch.compile(mine, backend='paoding', fullgraph=True, **options)
    for _ in range(steps):
        wanted, made = theirs(*args), compiled(*args)
        same(made, wanted, limit)
        for results in (wanted, made):
            torch.manual_seed(5)
            sum((each * torch.randn(each.shape)).sum() for each in leaves(results)).backward()
        for (name, theirs_of), ours_of in zip(theirs.named_parameters(), mine.parameters(), strict=True):
            assert (theirs_of.grad is None) == (ours_of.grad is None), name
            if theirs_of.grad is not None:
                same(ours_of.grad, theirs_of.grad, 10 * limit)
    same(list(mine.buffers()), list(theirs.buffers()), limit)
    with torch.no_grad():
        theirs.eval(), mine.eval()
        same(compiled(*args), theirs(*args), limit)


def test_a_perceptron_is_eagers():
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4), nn.Tanh())
    compare(model, torch.randn(6, 8), options={'strict': True})


def test_a_conv_net_with_batch_norm_is_eagers():
    compare(Images(), torch.randn(4, 3, 14, 14), steps=3, options={'strict': True})


def test_channels_last_images_stay_so():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).to(memory_format=torch.channels_last)
    compare(model, x)


def test_a_transformer_layer_is_eagers():
    model = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    compare(model, torch.randn(2, 5, 32))


@pytest.mark.parametrize(
    'kind, options',
    [
        (nn.LSTM, {}),
        (nn.LSTM, {'layers': 1, 'bias': False}),
        (nn.GRU, {'layers': 1, 'bidirectional': True}),
        (nn.RNN, {'nonlinearity': 'relu', 'layers': 1}),
    ],
)
def test_a_recurrent_classifier_is_one_graph_and_eagers(kind, options):
    compare(Classifier(kind, **options), torch.randint(0, 50, (3, 7)))


def test_seq2seq_with_attention_is_eagers():
    compare(Translator(), torch.randint(0, 40, (6, 3)), torch.randint(0, 40, (2, 3)))


def test_nodes_of_a_recurrent_model_do_not_depend_on_its_steps():
    counts = []
    for steps in (4, 64):
        torch._dynamo.reset()
        found = pt.explain(Classifier(), torch.randint(0, 50, (2, steps)))
        assert found.breaks == {}
        counts.append([(graph.kind, graph.regions, len(graph.left)) for graph in found.graphs])
    assert counts[0] == counts[1] and {kind for kind, *_ in counts[0]} == {'forward', 'backward'}


@pytest.mark.parametrize('kind', [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_are_in_one_region_with_what_is_around_them(kind):
    found = pt.explain(Classifier(kind, bidirectional=True), torch.randint(0, 50, (3, 7)))
    assert {graph.kind for graph in found.graphs} == {'forward', 'backward'}
    assert [(len(graph.regions), graph.left) for graph in found.graphs] == [(1, [])] * 2


def test_layers_that_pytorch_rounds_otherwise_than_products_are_calls_beside_regions(monkeypatch):
    model, ids = Classifier(), torch.randint(0, 50, (3, 7))
    wanted = model(ids)
    monkeypatch.setattr(_ops_recurrent, 'may_round_recurrence', lambda device: True)
    found = pt.explain(model, ids)
    assert all('allow_tf32' not in str(left) for graph in found.graphs for left in graph.left)  # called as they are
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(model, backend='paoding')(ids), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('has_bias', [True, False])
@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
@pytest.mark.parametrize('kind', [nn.LSTMCell, nn.GRUCell])
def test_cells_as_pytorchs_cuda_library_has_them_are_the_cells_and_their_gradients(kind, dtype, has_bias):
    cell = kind(5, 4, bias=has_bias).double()
    x, h, c = torch.randn(3, 5).double(), *(torch.randn(3, 4).double().requires_grad_() for _ in range(2))
    products = [torch.mm(x, cell.weight_ih.t()), torch.mm(h, cell.weight_hh.t())]
    biases = [cell.bias_ih, cell.bias_hh] if has_bias else [None, None]
    is_lstm = kind is nn.LSTMCell
    wanted = cell(x, (h, c)) if is_lstm else (cell(x, h),)
    given = [None if each is None else each.detach().to(dtype) for each in (*products, c if is_lstm else h, *biases)]
    made = (_fused_cells.lstm_cell if is_lstm else _fused_cells.gru_cell)(*given)
    near = {'rtol': 1e-12, 'atol': 1e-12} if dtype == torch.float64 else {'rtol': 0.03, 'atol': 0.03}
    for ours, theirs in zip(made, wanted):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), theirs, **near)
    seeds = [torch.randn_like(each) for each in wanted]
    leaves = [each.detach().requires_grad_() for each in products]
    previous = (c if is_lstm else h).detach().requires_grad_()
    again = (_fused_cells.lstm_cell if is_lstm else _fused_cells.gru_cell)(*leaves, previous, *biases)[: len(wanted)]
    by = [*leaves, previous, *(each for each in biases if each is not None)]
    expected = torch.autograd.grad(again, by, seeds)  # of ops that are PyTorch's own
    seeds = [each.to(dtype) for each in seeds]
    if is_lstm:
        d_gates, d_c, d_b = _fused_cells.lstm_cell_backward(*seeds, given[2], made[1], made[2], has_bias)
        found = [d_gates, d_gates, d_c, d_b, d_b]
    else:
        found = list(_fused_cells.gru_cell_backward(*seeds, made[1], has_bias))
    for ours, theirs in zip([each for each in found if each is not None], expected, strict=True):
        torch.testing.assert_close(ours.double(), theirs, **near)


def test_an_lstm_that_projects_is_a_graph_break_and_eagers():
    model = nn.LSTM(5, 7, 2, proj_size=3)
    compiled, x = torch.compile(lambda x: model(x.sin()), backend='paoding'), torch.randn(4, 2, 5)
    same(compiled(x), model(x.sin()), 3e-5)


class OfPacked(nn.Module):
    def __init__(self, kind=nn.LSTM, sorts=True, batch_first=True, padding=0.0, total=None, **options):
        super().__init__()
        self.table, self.layers = nn.Embedding(50, 8), kind(8, 12, 2, batch_first=batch_first, **options)
        self.packing = {'batch_first': batch_first, 'enforce_sorted': not sorts}
        self.padding = {'batch_first': batch_first, 'padding_value': padding, 'total_length': total}

    def forward(self, ids, lengths, hx=None):
        packed = nn.utils.rnn.pack_padded_sequence(self.table(ids), lengths, **self.packing)
        output, last = self.layers(packed, hx)
        padded, counts = nn.utils.rnn.pad_packed_sequence(output, **self.padding)
        return padded, counts, last


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'kind': nn.GRU, 'bidirectional': True, 'total': 9},
        {'kind': nn.RNN, 'batch_first': False, 'padding': -2.0},
        {'sorts': False, 'bidirectional': True, 'bias': False},
        {'batch_first': False, 'total': 8, 'padding': 1.0, 'dropout': 0.0},
    ],
)
def test_layers_of_packed_sequences_are_whole_and_eagers(options):
    model = OfPacked(**options)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend='paoding')
    torch.manual_seed(1)
    for lengths in ([7, 4, 4], [5, 5, 1], [6, 2, 2]):
        if options.get('sorts', True):
            lengths = lengths[1:] + lengths[:1]
        lengths = torch.tensor(lengths, device='cpu')
        ids = torch.randint(0, 50, (3, 7) if options.get('batch_first', True) else (7, 3))
        made, wanted = compiled(ids, lengths), model(ids, lengths)
        same(made, wanted, 3e-5)
        seeds = [torch.randn_like(each) for each in leaves(wanted) if each.requires_grad]
        grads = []
        for results, module in ((made, twin), (wanted, model)):
            floats = [each for each in leaves(results) if each.requires_grad]
            grads.append(torch.autograd.grad(floats, list(module.parameters()), seeds))
        for a, b in zip(*grads):
            same(a, b, 1e-4)
    if options.get('sorts') is False:
        return  # nothing but the batch's first size says how many rows there are: the layers are PyTorch's
    counters = torch._dynamo.utils.counters['graph_break']
    assert all('pack_padded_sequence' in reason for reason in counters), counters
    assert any('recurrent' in str(node.target) for node in nodes_compiled(twin, ids, lengths)), 'the layers are ops of ours'


def nodes_compiled(model, *args):
    """Of the graphs that Dynamo makes of a model."""
    found = []

    def keep(gm, inputs, settings, listener):
        found.extend(gm.graph.nodes)
        return gm.forward

    torch._dynamo.reset()
    with unittest.mock.patch.object(backend, 'compiled', keep):
        torch.compile(model, backend='paoding')(*args)
    return found


def test_a_layer_of_a_packed_sequence_takes_states():
    model = nn.GRU(8, 8)

    def call(x, lengths, h):
        output, last = model(nn.utils.rnn.pack_padded_sequence(x, lengths), h)
        return output.data * 2, last

    x, lengths, h = torch.randn(6, 3, 8), torch.tensor([6, 4, 2], device='cpu'), torch.randn(1, 3, 8)
    same(torch.compile(call, backend='paoding')(x, lengths, h), call(x, lengths, h), 3e-5)


def test_recurrent_layers_of_other_backends_are_left():
    calls = []

    def other(gm, example_inputs):
        calls.append(gm)
        return gm

    model = Classifier().eval()
    ids = torch.randint(0, 50, (2, 4))
    with torch.no_grad():
        same(torch.compile(model, backend=other)(ids), model(ids), 0)
    assert all('lstm' not in str(gm.graph) for gm in calls) and not torch._dynamo.config.allow_rnn


def test_a_training_step_with_an_optimizer_is_eagers():
    theirs, mine = (Classifier(layers=1) for _ in range(2))
    mine.load_state_dict(theirs.state_dict())
    ids, labels = torch.randint(0, 50, (8, 6)), torch.randint(0, 5, (8,))

    def trained(model, call):
        optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
        for _ in range(25):
            optimizer.zero_grad()
            loss = call(model, ids, labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    def step(model, ids, labels):
        return F.cross_entropy(model(ids), labels, ignore_index=4)

    wanted, made = trained(theirs, step), trained(mine, torch.compile(step, backend='paoding'))
    assert made == pytest.approx(wanted, rel=1e-3) and made[-1] < made[0] / 2


def test_batches_of_any_size_are_compiled_once_more():
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.LayerNorm(16), nn.Linear(16, 3))
    compiled = torch.compile(model, backend='paoding')
    for rows in (4, 5, 7, 5):
        x = torch.randn(rows, 8, requires_grad=True)
        made = compiled(x)
        same(made, model(x), 3e-5)
        (mine,) = torch.autograd.grad(made.square().sum(), x)
        (wanted,) = torch.autograd.grad(model(x).square().sum(), x)
        same(mine, wanted, 3e-5)
    assert compiled_graphs() == 2


def test_sequences_of_any_length_are_compiled_once_more():
    model = Classifier().eval()
    compiled = torch.compile(model, backend='paoding')
    with torch.no_grad():
        for steps in (4, 6, 9):
            ids = torch.randint(0, 50, (3, steps))
            same(compiled(ids), model(ids), 3e-5)
    assert compiled_graphs() == 2


@pytest.mark.parametrize('layer', [nn.LSTM, nn.GRU])
def test_recurrent_layers_in_training_are_compiled_once_more_for_all_lengths(layer):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(20, 8)
            self.layer = layer(8, 12, 2, batch_first=True, bidirectional=True)

        def forward(self, ids):
            return self.layer(self.embed(ids))[0].mean(1)

    model = Mean()
    compiled = torch.compile(model, backend='paoding')
    for steps in (4, 6, 9, 13):
        ids = torch.randint(0, 20, (3, steps))
        made = compiled(ids)
        same(made, model(ids), 3e-5)
        mine = torch.autograd.grad(made.square().sum(), model.parameters())
        wanted = torch.autograd.grad(model(ids).square().sum(), model.parameters())
        for a, b in zip(mine, wanted):
            same(a, b, 1e-4)
    assert compiled_graphs() == 2


def test_autocast_computes_as_eager_does():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    compiled = torch.compile(copy.deepcopy(model), backend='paoding')
    x = torch.randn(4, 16)
    with torch.autocast('cpu', torch.bfloat16):
        same(compiled(x), model(x), 0.03)


def test_dropout_keeps_its_share_and_repeats_with_a_seed():
    def dropped(x):
        return F.dropout(x, 0.25) + 0 * x

    compiled = torch.compile(dropped, backend='paoding', options={'min_nodes': 1})
    x = torch.ones(200, 500, requires_grad=True)
    torch.manual_seed(9)
    first = compiled(x)
    second = compiled(x)
    torch.manual_seed(9)
    again = compiled(x)
    assert torch.equal(first, again) and not torch.equal(first, second)
    share = (first == 0).float().mean().item()
    assert share == pytest.approx(0.25, abs=0.01)
    assert first.max().item() == pytest.approx(1 / 0.75)
    (gradient,) = torch.autograd.grad(again.sum(), x)
    assert torch.equal(gradient == 0, again == 0)  # the same zeros
    both = ((first == 0) & (second == 0)).float().mean().item()
    assert both == pytest.approx(0.0625, abs=0.005)  # calls are independent


def test_random_numbers_are_what_they_are_called():
    def draw(x):
        return torch.rand_like(x) + 0 * x, torch.randn_like(x) + 0 * x

    uniform, normal = torch.compile(draw, backend='paoding', options={'min_nodes': 1})(torch.zeros(300, 300))
    assert 0 <= uniform.min() and uniform.max() < 1
    assert uniform.mean().item() == pytest.approx(0.5, abs=0.01)
    assert normal.mean().item() == pytest.approx(0, abs=0.02) and normal.std().item() == pytest.approx(1, abs=0.02)


# ---- what a user may do between calls ----


def test_parameters_that_changed_between_calls_are_read():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    compiled = torch.compile(model, backend='paoding')
    x = torch.randn(3, 4)
    with torch.no_grad():
        compiled(x)
        model[0].weight.mul_(2)
        same(compiled(x), model(x), 3e-5)
        model[2].weight.data = torch.randn(2, 8)
        same(compiled(x), model(x), 3e-5)
        model.load_state_dict({name: torch.randn_like(each) for name, each in model.state_dict().items()})
        same(compiled(x), model(x), 3e-5)
        model.double()
        same(compiled(x.double()), model(x.double()), 1e-9)


def test_threads_call_a_model_at_the_same_time():
    import threading

    model = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)).eval()
    compiled = torch.compile(model, backend='paoding')
    inputs = [torch.randn(8, 16) for _ in range(4)]
    wrong = []
    with torch.no_grad():
        compiled(inputs[0])

    def work(x):
        with torch.no_grad():
            wanted = model(x)
            for _ in range(30):
                if not torch.allclose(compiled(x), wanted, atol=1e-5):
                    wrong.append(x)

    threads = [threading.Thread(target=work, args=(x,)) for x in inputs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_position_that_is_outside_is_an_error_and_the_next_call_works():
    table = nn.Embedding(5, 8)
    compiled = torch.compile(lambda ids: (table(ids) @ torch.eye(8)).relu(), backend='paoding')
    with torch.no_grad():
        compiled(torch.tensor([1, 2]))
        with pytest.raises((ArgumentError, IndexError)):
            compiled(torch.tensor([1, 7]))
        same(compiled(torch.tensor([4, 0])), table(torch.tensor([4, 0])).relu(), 1e-6)


# ---- what stays PyTorch's ----


def test_explain_says_why_an_op_stays_and_where_it_was_called():
    def model(x, w):
        y = (x @ w).relu()
        y = torch.lgamma(y)  # the line that is named
        return (y @ w).tanh()

    found = pt.explain(model, torch.randn(4, 4), torch.randn(4, 4))
    (graph,) = found.graphs
    assert len(graph.regions) == 2 and [left.op for left in graph.left] == ['aten.lgamma.default']
    assert graph.left[0].why == 'there is no such op'
    file, number = graph.left[0].line.rsplit(':', 1)
    with open(file) as lines:
        assert 'the line that is named' in lines.readlines()[int(number) - 1]
    assert 'lgamma' in str(found) and __file__.rsplit('/', 1)[-1] in str(found)


def test_parts_of_a_tensor_are_views_and_in_the_same_region():
    def cell(x, h, c):
        i, f, g, o = (x @ h).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c, g

    args = torch.randn(4, 8), torch.randn(8, 32), torch.randn(4, 8)
    (graph,) = pt.explain(cell, *args).graphs
    assert len(graph.regions) == 1 and graph.left == []
    made, wanted = torch.compile(cell, backend='paoding')(*args), cell(*args)
    same(made, wanted, 3e-5)
    assert made[2]._is_view() and made[2].storage_offset() == wanted[2].storage_offset()


class OwnCell(torch.nn.Module):
    """An LSTM with layer norm, as people write it: Dynamo unrolls its loop."""

    def __init__(self):
        super().__init__()
        self.x, self.h, self.n = torch.nn.Linear(6, 32), torch.nn.Linear(8, 32, bias=False), torch.nn.LayerNorm(32)

    def forward(self, x):
        h = c = torch.zeros(x.shape[1], 8, device=x.device)
        made = []
        for t in range(x.shape[0]):
            i, f, g, o = self.n(self.x(x[t]) + self.h(h)).chunk(4, 1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            made.append(h)
        return torch.stack(made)


def test_a_loop_of_python_is_a_loop_again_and_explain_says_so():
    torch.manual_seed(0)
    model, x = OwnCell(), torch.randn(12, 3, 6)
    with torch.no_grad():
        (graph,) = pt.explain(model, x).graphs
        assert graph.left == []
        (loop,) = graph.loops
        assert re.fullmatch(r'1[12] turns of \d+ nodes of test_torch_compile\.py:\d+ are one loop, which carries 2 values', loop)
        assert loop in str(graph)
        same(torch.compile(model, backend='paoding')(x), model(x), 3e-6)


def test_gradients_through_a_loop_of_python_are_eagers():
    torch.manual_seed(0)
    model, x = OwnCell(), torch.randn(12, 3, 6, requires_grad=True)
    assert len(pt.explain(model, x).graphs[0].loops) == 1
    compiled = torch.compile(model, backend='paoding')
    leaves = [x, *model.parameters()]
    for made, wanted in zip(*(torch.autograd.grad(call(x).square().sum(), leaves) for call in (compiled, model))):
        same(made, wanted, 3e-5)


class OverCells(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.cell, self.out = kind(5, 6), nn.Linear(6, 4)

    def forward(self, x):
        state = x.new_zeros(x.shape[1], 6)
        if isinstance(self.cell, nn.LSTMCell):
            state = (state, state)
        made = []
        for t in range(x.shape[0]):
            state = self.cell(x[t], state)
            made.append(state[0] if isinstance(state, tuple) else state)
        return self.out(torch.stack(made))


@pytest.mark.parametrize('kind', [nn.LSTMCell, nn.GRUCell])
def test_loops_over_cells_of_torch_nn_are_loops_in_both_directions(kind):
    model, x = OverCells(kind), torch.randn(9, 3, 5)
    compare(model, x)
    torch._dynamo.reset()
    found = pt.explain(model, x)
    assert [(graph.left, len(graph.regions)) for graph in found.graphs] == [([], 1)] * 2
    assert len(found.graphs[0].loops) == 1


def test_the_gradient_of_a_loop_of_python_is_a_loop():
    counts = []
    for steps in (6, 24):
        torch._dynamo.reset()
        found = pt.explain(OwnCell(), torch.randn(steps, 3, 6))
        assert [each.kind for each in found.graphs] == ['forward', 'backward'] and not any(each.left for each in found.graphs)
        assert found.graphs[0].loops
        counts.append(nodes_of_halves(OwnCell(), torch.randn(steps, 3, 6)))
    assert counts[0] == counts[1], 'what is kept for the gradient does not depend on the steps'


def nodes_of_halves(model, *args):
    """Of the forward and the backward graph."""
    found, split = [], backend.split

    def keep(*given, **more):
        found.append(split(*given, **more))
        return found[-1]

    with unittest.mock.patch.object(backend, 'split', keep):
        torch.compile(model, backend='paoding')(*args).sum().backward()
    return [len(each.graph.nodes) for each in found[0]]


@pytest.mark.parametrize('change', ['mask of a buffer', 'a result without a gradient', 'an input that is written to', 'dropout'])
def test_loops_in_training_beside_what_is_pytorchs_are_eagers(change):
    class Model(OwnCell):
        def __init__(self):
            super().__init__()
            self.register_buffer('mask', torch.rand(3, 8) > 0.3)
            self.register_buffer('count', torch.zeros(()))

        def forward(self, x):
            y = super().forward(x)
            if change == 'mask of a buffer':
                return y * self.mask
            if change == 'a result without a gradient':
                return y, y.argmax(-1), y.detach() * 2
            if change == 'an input that is written to':
                self.count += y.detach().mean()
                return y * 2
            return F.dropout(y, 0.0)

    torch.manual_seed(0)
    model, x = Model(), torch.randn(7, 3, 6, requires_grad=True)
    twin = copy.deepcopy(model)
    compiled = torch.compile(twin, backend='paoding')
    for _ in range(2):
        made, wanted = compiled(x), model(x)
        same(made, wanted, 3e-5)
        first = [each[0] if isinstance(each, tuple) else each for each in (made, wanted)]
        (mine,) = torch.autograd.grad(first[0].square().sum(), x, retain_graph=True)
        (theirs,) = torch.autograd.grad(first[1].square().sum(), x, retain_graph=True)
        same(mine, theirs, 3e-5)
        for a, b in zip(*(torch.autograd.grad(y.square().sum(), list(m.parameters())) for y, m in zip(first, (twin, model)))):
            same(a, b, 3e-5)
    same(twin.count, model.count, 3e-5)


def test_a_workspace_of_many_megabytes_lives_as_long_as_the_call():
    def call(x, w, v):
        wide = (x @ w).sin()  # of 80 MB, which is not kept from call to call
        return (wide @ v).tanh()

    args = torch.randn(10000, 8), torch.randn(8, 2000), torch.randn(2000, 8)
    compiled = torch.compile(call, backend='paoding')
    for _ in range(2):
        same(compiled(*args), call(*args), 1e-3)


def test_explain_tells_of_graph_breaks_and_leaves_gradients():
    model = nn.Linear(3, 3)
    model.weight.grad = torch.ones(3, 3)

    def call(x):
        y = model(x)
        torch._dynamo.graph_break()
        return y.sin()

    found = pt.explain(call, torch.randn(2, 3))
    assert len(found.breaks) == 1
    found = pt.explain(model, torch.randn(2, 3))
    assert torch.equal(model.weight.grad, torch.ones(3, 3))
    assert {graph.kind for graph in found.graphs} == {'forward', 'backward'}


def test_strict_refuses_what_stays_pytorchs():
    compiled = torch.compile(lambda x: torch.lgamma(x), backend='paoding', options={'strict': True})
    with pytest.raises(Exception, match='lgamma.*no such op'):
        compiled(torch.randn(3))


def test_options_that_nobody_knows_are_errors():
    for given in ({'options': {'sctrict': True}}, {'options': {'strict': 1}}, {'mode': 'fastest'}):
        with pytest.raises(Exception, match="sctrict|'strict' is 1|fastest"):
            torch.compile(lambda x: x + 1, backend='paoding', **given)(torch.ones(2))
    assert issubclass(UnsupportedError, Exception)


def test_ops_and_dtypes_that_ours_lacks_are_pytorchs():
    def model(x, w):
        y = x @ w
        z = torch.fft.rfft(y)  # complex
        q = (y * 10).to(torch.int8)
        return torch.complex(y, y) * z.abs().sum(), q.sum(), torch.linalg.inv(y @ y.T + torch.eye(4, device=y.device)), (y @ w).exp()

    x, w = torch.randn(4, 4), torch.randn(4, 4)
    same(torch.compile(model, backend='paoding')(x, w), model(x, w), 1e-3)


def test_an_exception_of_the_models_own_comes_through():
    def model(x):
        if x.shape[0] == 3:
            raise KeyError('mine')
        return (x @ x.T).relu()

    compiled = torch.compile(model, backend='paoding')
    same(compiled(torch.eye(2)), torch.eye(2), 0)
    with pytest.raises(KeyError, match='mine'):
        compiled(torch.eye(3))


def test_the_how_to_is_so(tmp_path, monkeypatch):
    text = (pathlib.Path(__file__).parents[2] / 'docs/howto/torch_compile.md').read_text()
    blocks = re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    (tmp_path / 'how_to_blocks.py').write_text(''.join(blocks))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module('how_to_blocks')
    shown = re.search(r'```text\n(.*?)```', text, re.DOTALL).group(1)
    assert str(module.found).split(' (')[0] == shown.split(' (')[0] and len(blocks) == 4


def test_the_backend_is_listed():
    assert 'paoding' in torch._dynamo.list_backends()
    assert compiler.backend.__doc__


def test_writes_by_positions_and_masks_are_paodings():
    def call(x, mask, cache, places, new):
        x, cache = x.clone(), cache.clone()
        x[mask] = 0.0
        x[:, 1:3][mask[:, 1:3]] = 7.0
        cache[:, places] = new
        return torch.relu(x) + 1, cache * 2, cache.scatter(2, (cache[..., :1] * 0).long() + 1, new[:, :1].expand(-1, 8, -1) + 1)

    x, cache = torch.randn(4, 5), torch.zeros(2, 8, 3)
    for places in ([3], [5, 0], [4, 4]):  # of equal positions the last one counts
        given = x, x > 0.3, cache, torch.tensor(places), torch.randn(2, len(places), 3)
        torch._dynamo.reset()
        found = pt.explain(call, *given)
        assert found.left == [], str(found)
        expected = call(*(each.cpu() for each in given))  # eager on a GPU takes any of equal positions
        for made, wanted in zip(torch.compile(call, backend='paoding')(*given), expected, strict=True):
            assert torch.equal(made.cpu(), wanted)
    torch._dynamo.reset()
    with pytest.raises(ArgumentError, match='positions of axis 1'):
        torch.compile(call, backend='paoding')(x, x > 0.3, cache, torch.tensor([8]), torch.randn(2, 1, 3))
        pt.synchronize()  # a GPU's faults are raised then


def test_numbers_of_the_cpu_are_made_where_ops_read_them():
    from torch._subclasses import FakeTensorMode

    from paoding.torch.compiler._constants import make_numbers_on

    class Root(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.number = torch.tensor(7.0)

    aten, graph, device = torch.ops.aten, torch.fx.Graph(), torch.device('cuda:0')
    x, number = graph.placeholder('x'), graph.get_attr('number')
    copy = graph.call_function(aten.lift_fresh_copy.default, (number,))
    there = graph.call_function(aten.mul.Tensor, (x, copy))
    here = graph.call_function(aten.neg.default, (copy,))
    graph.output((there, here))
    module = torch.fx.GraphModule(Root(), graph)
    with FakeTensorMode():
        x.meta['val'] = there.meta['val'] = torch.empty(3, device=device)
        copy.meta['val'] = here.meta['val'] = torch.empty([])
    make_numbers_on(module.graph, device)
    made = there.args[1]
    assert made.target is aten.full.default and made.args == ([], 7.0) and made.kwargs['device'] == device
    assert made.meta['val'].device == device and made.meta['val'].shape == ()
    assert here.args[0] is copy and copy.args[0] is number
    module.graph.lint()


def test_a_graph_that_is_one_region_is_called_with_inputs_of_any_order_and_repeated_results():
    w, u, unused = torch.randn(6, 6), torch.randn(6, 6), torch.randn(2)
    first = torch.compile(lambda u, unused, x, w: (torch.tanh((x @ w).relu() @ u), (x @ w).relu()), backend='paoding')
    for rows in (3, 3, 5):
        x = torch.randn(rows, 6)
        y = (x @ w).relu()
        same(first(u, unused, x, w), (torch.tanh(y @ u), y), 1e-5)
    twice = torch.compile(lambda x, w: (lambda y: (y, x, y))((x @ w).relu().tanh()), backend='paoding')
    y, same_x, again = twice(x, w)
    assert same_x is x or same_x.data_ptr() == x.data_ptr()
    same((y, again), ((x @ w).relu().tanh(),) * 2, 1e-5)


def test_inputs_that_begin_between_kernels_vectors_are_read_in_any_turn():
    compiled, w = torch.compile(lambda x, w: ((x @ w).relu() * 2).tanh(), backend='paoding'), torch.randn(8, 8)
    memory = torch.randn(200)
    turns = [memory[:32].view(4, 8), memory[1:33].view(4, 8), memory[:32].view(4, 8), memory[3:35].view(4, 8)]
    for x in [*turns, *turns]:
        same(compiled(x, w), ((x @ w).relu() * 2).tanh(), 1e-5)
