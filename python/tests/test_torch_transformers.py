# SPDX-License-Identifier: Apache-2.0
"""GPT-2 and BERT, made of paoding's layers, against Hugging Face's own code with the same random weights: logits, gradients of
every parameter, and the losses of a training."""

import numpy as np
import pytest

import paoding as pd
from torch_or_skip import torch

transformers = pytest.importorskip('transformers', reason='not run: no transformers here (make deps-torch)')


def gpt2(ids, *, vocabulary, width, layers, heads, places, dtype):
    """Logits [B T, vocabulary]."""
    tokens = pd.nn.Embedding('tokens', vocabulary, width, dtype=dtype)
    x = pd.nn.LearnedPositions('positions', places, width, dtype=dtype)(tokens(ids))
    for i in range(layers):
        block = pd.nn.TransformerDecoderLayer(
            f'block{i}', width, heads, activation='gelu_tanh', norm_first=True, memory=False, dtype=dtype
        )
        x = block(x)
    return pd.nn.LayerNorm('norm', width, dtype=dtype)(x).reshape(-1, width) @ tokens.weight.T


def gpt2_names(layers):
    """Hugging Face's name of each of our parameters; its matrices stand on the right like ours."""
    names = {'tokens/weight': 'wte.weight', 'positions/weight': 'wpe.weight'}
    names |= {'norm/gamma': 'ln_f.weight', 'norm/beta': 'ln_f.bias'}
    parts = {'norm1': 'ln_1', 'norm2': 'ln_2', 'self/in': 'attn.c_attn', 'self/out': 'attn.c_proj', 'in': 'mlp.c_fc'}
    parts['out'] = 'mlp.c_proj'
    for i in range(layers):
        for ours, theirs in parts.items():
            kinds = ('gamma', 'beta') if ours.startswith('norm') else ('weight', 'bias')
            names |= {f'block{i}/{ours}/{kind}': f'h.{i}.{theirs}.{last}' for kind, last in zip(kinds, ('weight', 'bias'))}
    return {ours: f'transformer.{theirs}' for ours, theirs in names.items()}


def random_gpt2(seed=0, **sizes):
    torch.manual_seed(seed)
    plain = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **plain))
    with torch.no_grad():
        for name, value in model.named_parameters():
            if value.dim() == 1:  # as they are when they were trained for a while
                value += 0.1 * torch.randn_like(value)
    return model


def loss_and_gradients(graph, logits, labels):
    """A program that fetches logits, the loss, and by their names the gradients of all parameters, which are to be set."""
    loss = pd.cross_entropy(logits, labels.reshape(-1))
    parameters = pd.Parameters(graph)
    names = [each.name for each in parameters.list()]
    for name, value in zip(names, pd.gradients([loss], [graph.find(name) for name in names])):
        graph.fetch(name, value)
    graph.fetch('loss', loss)
    graph.fetch('logits', logits)
    return parameters, names


def check(got, wanted, limit):
    """Relative to the largest element."""
    np.testing.assert_allclose(got, wanted, rtol=0, atol=limit * np.abs(wanted).max())


@pytest.mark.parametrize(
    'sizes, dtype, limit',
    [
        (dict(vocab_size=71, n_positions=20, n_embd=24, n_layer=3, n_head=4), 'f64', 1e-11),
        (dict(vocab_size=50257, n_positions=1024, n_embd=768, n_layer=12, n_head=12), 'f32', 2e-4),
    ],
    ids=['small', 'gpt2'],
)
def test_gpt2_is_that_of_hugging_face(sizes, dtype, limit):
    model = random_gpt2(**sizes)
    model = model.double() if dtype == 'f64' else model
    layers, width = sizes['n_layer'], sizes['n_embd']
    rows, steps = 2, 16
    fed = np.random.default_rng(1).integers(0, sizes['vocab_size'], (rows, steps + 1))
    with pd.Graph() as graph:
        ids, labels = graph.input('ids', pd.i64, (rows, steps)), graph.input('labels', pd.i64, (rows, steps))
        logits = gpt2(ids, vocabulary=sizes['vocab_size'], width=width, layers=layers, heads=sizes['n_head'],
                      places=sizes['n_positions'], dtype=dtype)
        parameters, names = loss_and_gradients(graph, logits, labels)
    theirs = gpt2_names(layers)
    assert sorted(names) == sorted(theirs)
    weights = dict(model.named_parameters())
    for name in names:
        parameters[name] = weights[theirs[name]].detach().numpy()
    got = pd.Program(graph, parameters=parameters)(ids=fed[:, :-1], labels=fed[:, 1:])
    out = model(torch.tensor(fed[:, :-1]))
    loss = torch.nn.functional.cross_entropy(out.logits.reshape(rows * steps, -1), torch.tensor(fed[:, 1:]).reshape(-1))
    loss.backward()
    check(got['logits'], out.logits.detach().numpy().reshape(rows * steps, -1), limit)
    check(got['loss'], loss.detach().numpy(), limit)
    for name in names:
        check(got[name], weights[theirs[name]].grad.numpy(), limit)


def bert_names(layers):
    """Hugging Face's names of each of our parameters: those of queries, keys and values lie beside each other in ours."""
    names = {'tokens/weight': ['bert.embeddings.word_embeddings.weight'],
             'positions/weight': ['bert.embeddings.position_embeddings.weight'],
             'types/weight': ['bert.embeddings.token_type_embeddings.weight'],
             'norm/gamma': ['bert.embeddings.LayerNorm.weight'], 'norm/beta': ['bert.embeddings.LayerNorm.bias'],
             'head/weight': ['cls.predictions.transform.dense.weight'], 'head/bias': ['cls.predictions.transform.dense.bias'],
             'head_norm/gamma': ['cls.predictions.transform.LayerNorm.weight'],
             'head_norm/beta': ['cls.predictions.transform.LayerNorm.bias'], 'scores/bias': ['cls.predictions.bias']}
    for i in range(layers):
        layer = f'bert.encoder.layer.{i}'
        for kind in ('weight', 'bias'):
            names[f'layer{i}/self/in/{kind}'] = [f'{layer}.attention.self.{part}.{kind}' for part in ('query', 'key', 'value')]
            names[f'layer{i}/self/out/{kind}'] = [f'{layer}.attention.output.dense.{kind}']
            names[f'layer{i}/in/{kind}'] = [f'{layer}.intermediate.dense.{kind}']
            names[f'layer{i}/out/{kind}'] = [f'{layer}.output.dense.{kind}']
        for ours, last in (('gamma', 'weight'), ('beta', 'bias')):
            names[f'layer{i}/norm1/{ours}'] = [f'{layer}.attention.output.LayerNorm.{last}']
            names[f'layer{i}/norm2/{ours}'] = [f'{layer}.output.LayerNorm.{last}']
    return names


def ours_of(name, values):
    """Their values in our layout: matrices stand on the right, except for tables."""
    is_table = name in ('tokens/weight', 'positions/weight', 'types/weight')
    return np.concatenate([v.T if v.ndim == 2 and not is_table else v for v in values], axis=-1)


def test_bert_is_that_of_hugging_face():
    width, layers, heads, vocabulary, places = 24, 2, 3, 53, 30
    torch.manual_seed(2)
    model = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=vocabulary, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=40,
        max_position_embeddings=places, type_vocab_size=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)).double()
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn_like(value)
    rows, steps = 4, 11
    random = np.random.default_rng(3)
    fed, kinds = random.integers(0, vocabulary, (rows, steps)), random.integers(0, 2, (rows, steps))
    labels = np.where(random.random((rows, steps)) < 0.3, random.integers(0, vocabulary, (rows, steps)), -100)
    lengths = np.array([11, 7, 1, 10])
    labels[np.arange(steps) >= lengths[:, None]] = -100
    with pd.Graph() as graph:
        ids, types = graph.input('ids', pd.i64, (rows, steps)), graph.input('types', pd.i64, (rows, steps))
        seen, wanted = graph.input('lengths', pd.i64, rows), graph.input('labels', pd.i64, (rows, steps))
        tokens = pd.nn.Embedding('tokens', vocabulary, width, padding=0, dtype='f64')
        x = tokens(ids) + pd.nn.Embedding('types', 2, width, dtype='f64')(types)
        x = pd.nn.LearnedPositions('positions', places, width, dtype='f64')(x)
        x = pd.nn.LayerNorm('norm', width, epsilon=1e-12, dtype='f64')(x)
        options = dict(feed_forward=40, activation='gelu', epsilon=1e-12, dtype='f64')
        for i in range(layers):
            x = pd.nn.TransformerEncoderLayer(f'layer{i}', width, heads, **options)(x, lengths=seen)
        h = pd.gelu(pd.nn.Linear('head', width, width, dtype='f64')(x))
        h = pd.nn.LayerNorm('head_norm', width, epsilon=1e-12, dtype='f64')(h)
        logits = h.reshape(-1, width) @ tokens.weight.T + graph.parameter('scores/bias', pd.f64, vocabulary)
        parameters, names = loss_and_gradients(graph, logits, wanted)
    theirs = bert_names(layers)
    assert sorted(names) == sorted(theirs)
    weights = dict(model.named_parameters())
    for name in names:
        parameters[name] = ours_of(name, [weights[each].detach().numpy() for each in theirs[name]])
    got = pd.Program(graph, parameters=parameters)(ids=fed, types=kinds, lengths=lengths, labels=labels)
    mask = torch.tensor(np.arange(steps) < lengths[:, None])
    out = model(
        torch.tensor(fed), attention_mask=mask.long(), token_type_ids=torch.tensor(kinds), labels=torch.tensor(labels)
    )
    out.loss.backward()
    is_seen = mask.numpy().reshape(-1)
    check(got['logits'][is_seen], out.logits.detach().numpy().reshape(rows * steps, -1)[is_seen], 1e-11)
    check(got['loss'], out.loss.detach().numpy(), 1e-11)
    for name in names:
        check(got[name], ours_of(name, [weights[each].grad.numpy() for each in theirs[name]]), 1e-10)


def test_a_training_loses_what_pytorch_loses():
    """300 steps of AdamW with gradients clipped, matrices alone decaying, of the same windows of a text."""
    sizes = dict(vocab_size=128, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = random_gpt2(seed=5, **sizes).double()
    rows, steps = 4, 16
    text = np.frombuffer(__doc__.encode('ascii') * 8, np.uint8).astype(np.int64)
    random = np.random.default_rng(6)
    starts = random.integers(0, len(text) - steps - 1, (300, rows))
    batches = [np.stack([text[at : at + steps + 1] for at in each]) for each in starts]
    with pd.Graph() as graph:
        ids, labels = graph.input('ids', pd.i64, (rows, steps)), graph.input('labels', pd.i64, (rows, steps))
        logits = gpt2(ids, vocabulary=128, width=16, layers=2, heads=2, places=16, dtype='f64')
        loss = pd.cross_entropy(logits, labels.reshape(-1))
        rest = pd.ParameterGroup(rank=1, weight_decay=0.0)
        pd.minimize(loss, pd.AdamW(3e-3, weight_decay=0.1), clip_norm=1.0, groups=[rest])
        graph.fetch('loss', loss)
    parameters = pd.Parameters(graph)
    weights, names = dict(model.named_parameters()), gpt2_names(2)
    for ours, theirs in names.items():
        parameters[ours] = weights[theirs].detach().numpy()
    program = pd.Program(graph, parameters=parameters)
    groups = [{'params': [v for v in weights.values() if (v.dim() > 1) == decays], 'weight_decay': 0.1 if decays else 0.0}
              for decays in (True, False)]
    optimizer = torch.optim.AdamW(groups, lr=3e-3)
    losses = []
    for batch in batches:
        optimizer.zero_grad()
        out = model(torch.tensor(batch[:, :-1])).logits
        wanted = torch.nn.functional.cross_entropy(out.reshape(rows * steps, -1), torch.tensor(batch[:, 1:]).reshape(-1))
        wanted.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append((program(ids=batch[:, :-1], labels=batch[:, 1:])['loss'].item(), wanted.item()))
    ours, theirs = np.array(losses).T
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)
    assert np.mean(ours[-20:]) < 0.5 * ours[0], 'it learns'
