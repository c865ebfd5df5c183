# SPDX-License-Identifier: Apache-2.0
"""Loops, branches, layers, files and the profiler."""

import html
import json

import numpy as np
import pytest

import paoding as pd


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_a_scan_is_the_loop_that_it_says():
    xs, h0 = floats(7, 3), floats(3, seed=1)
    with pd.Graph() as graph:
        w = graph.input('w', pd.f32, (3, 3))
        h, ys = pd.scan(
            lambda h, x: (pd.tanh(x + (h[None] @ w)[0]), {'h': h, 'x': x * 2}),
            graph.input('h0', pd.f32, 3),
            graph.input('xs', pd.f32, (7, 3)),
        )
        for name, value in (('h', h), ('hs', ys['h']), ('x2', ys['x'])):
            graph.fetch(name, value)
    w_fed = floats(3, 3, seed=2)
    got = pd.Program(graph)(w=w_fed, h0=h0, xs=xs)
    state, states = h0, []
    for x in xs:
        states.append(state)
        state = np.tanh(x + state @ w_fed)
    np.testing.assert_allclose(got['h'], state, rtol=1e-5)
    np.testing.assert_allclose(got['hs'], states, rtol=1e-5)
    np.testing.assert_allclose(got['x2'], xs * 2)


def test_a_scan_goes_by_count_and_backwards():
    with pd.Graph() as graph:
        one = graph.input('one', pd.i64, ())
        total, seen = pd.scan(lambda c, i: (c + i, c), one, length=5)
        graph.fetch('total', total)
        graph.fetch('seen', seen)
        graph.fetch('reverse', pd.scan(lambda c, i: (c * 2 + i, None), one, length=3, reverse=True)[0])
    got = pd.Program(graph)(one=1)
    assert got['total'].item() == 11 and got['seen'].tolist() == [1, 1, 2, 4, 7]
    assert got['reverse'].item() == ((1 * 2 + 2) * 2 + 1) * 2 + 0


def test_what_goes_wrong_in_a_step_is_said_and_leaves_nothing_behind():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, 3)
        with pytest.raises(ZeroDivisionError):
            pd.scan(lambda c, _: 1 / 0, x, length=2)
        leaked = []
        pd.scan(lambda c, _: (leaked.append(c), (c + 1, None))[1], x, length=2)
        with pytest.raises(pd.ArgumentError, match='after the function that wrote it'):
            leaked[0] + 1
        with pytest.raises(pd.ArgumentError, match='not nested as'):
            pd.scan(lambda c, _: ((c, c), None), x, length=2)
        with pytest.raises(pd.ArgumentError, match='is no value'):
            pd.scan(lambda c, _: (c, 'text'), x, length=2)
        with pytest.raises((pd.ShapeError, pd.Error)):
            pd.scan(lambda c, _: (c[:1], None), x, length=2)
        with pytest.raises(pd.ArgumentError, match='xs or length'):
            pd.scan(lambda c, _: (c, None), x)
        graph.fetch('y', x + 1)
    assert pd.Program(graph)(x=floats(3))['y'].shape == (3,)


def test_constants_in_a_step_need_no_graph():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, 3)
    graph.fetch('y', pd.scan(lambda c, _: (c + pd.ones(3) + pd.random_uniform(3, 0, 0), None), x, length=4)[0])
    np.testing.assert_allclose(pd.Program(graph, pd.Parameters(graph))(x=np.zeros(3, np.float32))['y'], [4] * 3)


def test_branches_and_loops_run_as_python_would():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, ())
        n = graph.input('n', pd.i64, ())
        graph.fetch('cond', pd.cond(x > 0, lambda: {'r': pd.sqrt(x)}, lambda: {'r': x * x})['r'])
        graph.fetch('switch', pd.switch(n, [lambda: x + 1, lambda: x + 2, lambda: x + 3]))
        graph.fetch('while', pd.while_loop(lambda v: v[0] < 100, lambda v: (v[0] * 2, v[1] + 1), (n + 1, n * 0))[1])
        bounded = pd.while_loop(lambda v: v < 10, lambda v: v * 2, x, max_iterations=6)
        graph.fetch('slope', pd.gradients(bounded, x))
        graph.fetch('remade', pd.checkpoint(lambda a, b: pd.exp(a) * b, x, x))
    program = pd.Program(graph)
    for value, number in ((4.0, 0), (-3.0, 1), (0.5, 7)):
        got = program(x=value, n=number)
        assert got['cond'].item() == pytest.approx(value**0.5 if value > 0 else value * value)
        assert got['switch'].item() == value + 1 + min(number, 2)
        count, v = 0, number + 1
        while v < 100:
            v, count = v * 2, count + 1
        assert got['while'].item() == count
        turns, v = 0, value
        while v < 10 and turns < 6:
            v, turns = v * 2, turns + 1
        assert got['slope'].item() == 2**turns
        assert got['remade'].item() == pytest.approx(np.exp(value) * value, rel=1e-5)


def test_an_lstm_layer_is_what_it_says():
    xs, lengths = floats(5, 2, 3), np.array([5, 2], np.int64)
    with pd.Graph() as graph:
        layer = pd.nn.LSTM('lstm', 3, 4)
        result = layer(graph.input('xs', pd.f32, (5, 2, 3)), lengths=graph.input('lengths', pd.i64, 2))
        graph.fetch('outputs', result.outputs)
        graph.fetch('last_c', result.last_c[0])
    parameters = pd.Parameters(graph, seed=3)
    got = pd.Program(graph, parameters)(xs=xs, lengths=lengths)
    w, u, b = (np.asarray(parameters[f'lstm/l0/{name}']) for name in 'wub')
    h, c = np.zeros((2, 4), np.float32), np.zeros((2, 4), np.float32)
    for t in range(5):
        i, f, g, o = np.split(xs[t] @ w + h @ u + b, 4, axis=-1)
        next_c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        next_h = sigmoid(o) * np.tanh(next_c)
        counts = (t < lengths)[:, None]
        h, c = np.where(counts, next_h, h), np.where(counts, next_c, c)
        np.testing.assert_allclose(np.asarray(got['outputs'])[t], np.where(counts, next_h, 0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(got['last_c'], c, rtol=1e-4, atol=1e-6)


def test_layers_run():
    with pd.Graph() as graph:
        ids, images = graph.input('ids', pd.i64, (2, 6)), graph.input('images', pd.f32, (2, 3, 8, 8))
        x = pd.nn.Embedding('embedding', 10, 8)(ids)
        x = pd.nn.LayerNorm('norm', 8)(x + pd.nn.MultiHeadAttention('attention', 8, 2)(x, causal=True))
        graph.fetch('x', pd.dropout(x, 0.5, training=False))
        y = pd.nn.Conv2d('conv', 3, 4, 3, padding=1, activation='relu')(images)
        y = pd.max_pool2d(pd.nn.BatchNorm('batch', 4)(y), 2)
        graph.fetch('y', pd.global_avg_pool(y))
        h = pd.nn.GRU('gru', 8, 5, layers=2, bidirectional=True)(x.transpose(1, 0, 2))
        graph.fetch('h', h.outputs)
        graph.fetch('r', pd.nn.RNN('rnn', 8, 5)(x.transpose(1, 0, 2)).last_h[0])
    got = pd.Program(graph, pd.Parameters(graph, seed=1))(
        ids=np.arange(12).reshape(2, 6) % 10, images=floats(2, 3, 8, 8)
    )
    assert {name: value.shape for name, value in got.items()} == {
        'x': (2, 6, 8),
        'y': (2, 4),
        'h': (6, 2, 10),
        'r': (2, 5),
    }
    np.testing.assert_allclose(np.asarray(got['x']).mean(-1), np.zeros((2, 6)), atol=1e-5)


def test_convolutions_of_other_forms_are_sums_over_windows():
    x, w = floats(1, 2, 4, 5, 3), floats(3, 2, 2, 2, 2, seed=1)
    with pd.Graph() as graph:
        x3, w3 = graph.input('x', pd.f32, x.shape), graph.input('w', pd.f32, w.shape)
        graph.fetch('volume', pd.conv3d(x3, w3, stride=(1, 2, 1), padding=(0, 1, 0)))
        graph.fetch('spread', pd.conv_transpose2d(x3[:, :, 0], w3[:2, :, 0], stride=2))
    got = pd.Program(graph)(x=x, w=w)
    padded = np.pad(x, ((0, 0), (0, 0), (0, 0), (1, 1), (0, 0)))
    for place in np.ndindex(3, 3, 2):
        d, h, v = place[0], 2 * place[1], place[2]
        wanted = np.einsum('cdhw,ocdhw->o', padded[0, :, d : d + 2, h : h + 2, v : v + 2], w)
        np.testing.assert_allclose(np.asarray(got['volume'])[(0, slice(None), *place)], wanted, rtol=1e-4, atol=1e-5)
    spread = np.zeros((2, 10, 6), np.float32)
    for i, j in np.ndindex(5, 3):
        spread[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += np.einsum('c,cohw->ohw', x[0, :, 0, i, j], w[:2, :, 0])
    np.testing.assert_allclose(np.asarray(got['spread'])[0], spread, rtol=1e-4, atol=1e-5)


def regression():
    with pd.Graph() as graph:
        x, y = graph.input('x', pd.f32, (4, 3)), graph.input('y', pd.f32, (4, 2))
        loss = pd.mse_loss(pd.nn.Linear('out', 3, 2)(x), y)
        pd.minimize(loss, pd.AdamW(pd.cosine_decay(0.1, 100)), clip_norm=1.0)
        graph.fetch('loss', loss)
    return graph


def test_training_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path):
    graph, fed = regression(), {'x': floats(4, 3), 'y': floats(4, 2, seed=1)}
    first = pd.Parameters(graph, seed=5)
    program = pd.Program(graph, first)
    for _ in range(3):
        program.run(fed)
    folder = pd.CheckpointFolder(tmp_path / 'run')
    manifest = pd.Manifest()
    manifest.model, manifest.step, manifest.score = 'mine', 3, 0.5
    path = folder.save(manifest, first, files={'words.txt': b'a\nb'})
    assert path == folder.latest() == folder.best()
    losses = [program.run(fed)['loss'].item() for _ in range(3)]

    loaded = pd.load_checkpoint(tmp_path / 'run')
    assert loaded.manifest.model == 'mine' and loaded.manifest.step == 3 and loaded.files == {'words.txt': b'a\nb'}
    second = pd.Parameters(graph, seed=6)
    pd.restore(second, loaded.tensors)
    again = pd.Program(graph, second)
    assert [again.run(fed)['loss'].item() for _ in range(3)] == losses
    with pytest.raises(pd.ArgumentError, match='out/weight'):
        pd.restore(second, {})
    (path / 'parameters.safetensors').write_bytes(b'no')
    with pytest.raises(pd.FileError):
        pd.load_checkpoint(path)
    with pytest.raises(OSError):
        pd.load_checkpoint(tmp_path / 'nowhere')


def test_safetensors_are_the_ones_of_others(tmp_path):
    safetensors = pytest.importorskip('safetensors.numpy')
    tensors = {'a': floats(3, 4), 'b': np.arange(5)}
    pd.save_safetensors(tmp_path / 'ours', tensors, {'made': 'here'})
    for name, array in safetensors.load_file(tmp_path / 'ours').items():
        np.testing.assert_array_equal(array, tensors[name])
    safetensors.save_file(tensors, tmp_path / 'theirs')
    for name, tensor in pd.load_safetensors(tmp_path / 'theirs').items():
        np.testing.assert_array_equal(tensor, tensors[name])


def test_the_profiler_sees_a_run(tmp_path):
    graph = regression()
    program = pd.Program(graph, pd.Parameters(graph))
    with pd.Profiler() as profiler, pd.ProfileRange('my part'):
        program(x=floats(4, 3), y=floats(4, 2))
    text = profiler.report(sort='total', path=str(tmp_path / 'timeline.json'))
    assert 'my part' in text and 'matmul' in text
    assert json.loads((tmp_path / 'timeline.json').read_text())['traceEvents']
    json.loads(profiler.report(format='json'))
    assert 'oneDNN' not in text and 'matmul' in profiler.report(kernels=True)
    assert len(profiler.report(kernels=True).splitlines()) > len(profiler.report().splitlines())
    with pytest.raises(pd.ArgumentError):
        pd.Profiler().report()
    with pytest.raises(pd.ArgumentError, match='sort'):
        profiler.report(sort='length')


def test_the_profiler_writes_a_page(tmp_path):
    graph = regression()
    program = pd.Program(graph, pd.Parameters(graph))
    with pd.Profiler() as profiler:
        program(x=floats(4, 3), y=floats(4, 2))
    page = profiler.html()
    assert page.startswith('<!doctype html>') and 'matmul' in page
    assert profiler.html(tmp_path / 'run.html') == '' and (tmp_path / 'run.html').read_text() == page
    frame = profiler._repr_html_()
    assert frame.startswith('<iframe ')
    assert html.unescape(frame[frame.index('srcdoc="') + 8:frame.rindex('"></iframe>')]) == page
    with pytest.raises(pd.ArgumentError, match='html'):
        profiler.html('page.txt')
    with pytest.raises(pd.ArgumentError, match='nothing was recorded'):
        pd.Profiler().html()


def test_arguments_of_a_range():
    """Are in the report; those of no such type are refused while something is recorded."""
    with pd.Profiler() as profiler:
        with pd.ProfileRange('read', rows=32, name='a', file='x.txt') as read:
            read.set('share', np.float32(0.5))
            read.set('rows', np.int64(31))
            with pytest.raises(pd.ArgumentError, match="'what' is of type list"):
                read.set('what', [1])
    found = {one['name']: one for one in json.loads(profiler.report(format='json'))['range_arguments']}
    assert {name: one.get('total') for name, one in found.items()} == {'rows': 31, 'name': None, 'file': None, 'share': 0.5}
    with pd.ProfileRange('not recorded', what=[1]) as unseen:
        unseen.set('what', [2])
    with pytest.raises(pd.ArgumentError, match='within'):
        pd.ProfileRange('not entered').set('rows', 1)


def test_optimizers_groups_and_averages():
    """Each takes a step down; what a group has frozen stays; averages follow."""
    for optimizer in (pd.Lion(0.01), pd.Lamb(0.01), pd.RmsProp(0.01), pd.Adafactor(0.01)):
        with pd.Graph() as graph:
            w = graph.parameter('w', pd.f32, (4, 3), initial=pd.nn.constant(1))
            b = graph.parameter('b', pd.f32, 3, initial=pd.nn.constant(1))
            loss = pd.mean((w + b) ** 2)
            pd.minimize(loss, optimizer, groups=[pd.ParameterGroup(rank=1, frozen=True)], average_decay=0.5)
            graph.fetch('loss', loss)
        parameters = pd.Parameters(graph)
        step = pd.Program(graph, parameters)
        losses = [step()['loss'].item() for _ in range(3)]
        assert losses[2] < losses[0]
        assert (parameters['b'].numpy() == 1).all()
        average = pd.averages_of(parameters)
        assert set(average) == {'w'}
        assert (average['w'].numpy() > parameters['w'].numpy()).all()


def test_einsum_and_sampling():
    with pd.Graph() as graph:
        a, b = graph.input('a', pd.f32, (2, 3, 4)), graph.input('b', pd.f32, (2, 4, 5))
        graph.fetch('y', pd.einsum('bij,bjk->kib', a, b))
        graph.fetch('greedy', pd.categorical(a, temperature=0))
        graph.fetch('drawn', pd.categorical(a, top_k=2, top_p=0.9))
    feeds = {'a': np.random.rand(2, 3, 4).astype('f4'), 'b': np.random.rand(2, 4, 5).astype('f4')}
    got = pd.Program(graph, pd.Parameters(graph, seed=3)).run(feeds)
    assert np.allclose(got['y'].numpy(), np.einsum('bij,bjk->kib', feeds['a'], feeds['b']), atol=1e-5)
    assert (got['greedy'].numpy() == feeds['a'].argmax(-1)).all()
    assert (got['drawn'].numpy() < 4).all()


def test_layers_of_transformers_say_what_they_take():
    with pd.Graph() as graph:
        x, memory = graph.input('x', pd.f32, (2, 5, 8)), graph.input('memory', pd.f32, (2, 3, 8))
        alone = pd.nn.TransformerDecoderLayer('a', 8, 2, memory=False)
        both = pd.nn.TransformerDecoderLayer('b', 8, 2, activation='gelu', norm_first=True)
        encoder = pd.nn.TransformerEncoderLayer('e', 8, 2, feed_forward=12, initial=pd.nn.constant(0.5))
        graph.fetch('y', both(alone(pd.nn.LearnedPositions('p', 5, 8)(x)), encoder(memory)))
        with pytest.raises(pd.ArgumentError, match="it is 'relu', 'gelu' or 'gelu_tanh'"):
            pd.nn.TransformerEncoderLayer('f', 8, 2, activation='elu')
        with pytest.raises(pd.ArgumentError, match='needs the memory'):
            both(x)
        with pytest.raises(pd.ArgumentError, match='was made without'):
            alone(x, memory)
    parameters = pd.Parameters(graph)
    assert parameters['e/in/weight'].shape == (8, 12)
    assert set(np.asarray(parameters['e/out/weight']).ravel()) == {0.5} and not np.asarray(parameters['e/out/bias']).any()
    got = pd.Program(graph, parameters=parameters)(x=floats(2, 5, 8), memory=floats(2, 3, 8))['y']
    assert got.shape == (2, 5, 8) and np.isfinite(got).all()
