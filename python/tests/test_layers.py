# SPDX-License-Identifier: Apache-2.0
"""Layers of paoding.nn beside NumPy, and the options that C++ layers have."""

import doctest

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)


def run(build, seed=3, **arrays):
    """build(values) by parameters made with `seed`: the results as arrays, and the store."""
    with pd.Graph() as graph:
        values = {name: graph.input(name, each.dtype, each.shape) for name, each in arrays.items()}
        results = build(**values)
        for i, value in enumerate(results if isinstance(results, (tuple, list)) else [results]):
            graph.fetch(f'y{i}', value)
    parameters = pd.Parameters(graph, seed=seed)
    return [each.numpy() for each in pd.Program(graph, parameters).run(arrays).values()], parameters


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm_step(x, h, c, w, u, b):
    i, f, g, o = np.split(x @ w + h @ u + b, 4, axis=-1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru_step(x, h, w, u, b):
    hidden = h.shape[-1]
    xr, xz, xn = np.split(x @ w, 3, axis=-1)
    hr, hz, hn = np.split(h @ u, 3, axis=-1)
    r, z = sigmoid(xr + hr + b[:hidden]), sigmoid(xz + hz + b[hidden : 2 * hidden])
    n = np.tanh(xn + b[2 * hidden : 3 * hidden] + r * (hn + b[3 * hidden :]))
    return (1 - z) * n + z * h


def test_the_examples_of_docstrings_are_true():
    seen = 0
    for name in (*pd.nn.__all__, *pd.ctc.__all__):
        thing = getattr(pd.nn, name, None) or getattr(pd, name)
        for example in doctest.DocTestFinder(recurse=False).find(thing, name, globs={'pd': pd}):
            seen += bool(example.examples)
            assert doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(example).failed == 0, name
    assert seen >= 12


def test_cells_are_steps_of_their_formulas():
    x, h, c = (RNG.standard_normal((2, size)) for size in (3, 4, 4))
    made, p = run(lambda x, h, c: pd.nn.LSTMCell('cell', 3, 4, dtype='f64')(x, (h, c)), x=x, h=h, c=c)
    for mine, wanted in zip(made, lstm_step(x, h, c, *(p[f'cell/{each}'].numpy() for each in 'wub')), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-12)
    (mine,), p = run(lambda x, h: pd.nn.GRUCell('cell', 3, 4, dtype='f64')(x, h), x=x, h=h)
    np.testing.assert_allclose(mine, gru_step(x, h, *(p[f'cell/{each}'].numpy() for each in 'wub')), rtol=1e-12)
    for relu, activation in ((False, np.tanh), (True, lambda a: np.maximum(a, 0))):
        (mine,), p = run(lambda x, h: pd.nn.RNNCell('cell', 3, 4, relu=relu, dtype='f64')(x, h), x=x, h=h)
        w, u, b = (p[f'cell/{each}'].numpy() for each in 'wub')
        np.testing.assert_allclose(mine, activation(x @ w + h @ u + b), rtol=1e-12)


def test_a_scan_of_a_cell_is_the_layer():
    x = RNG.standard_normal((6, 2, 3))

    def build(x):
        cell = pd.nn.LSTMCell('l/l0', 3, 4, dtype='f64')

        def step(state, element):
            h, c = cell(element, state)
            return (h, c), h

        (h, _), states = pd.scan(step, cell.start(2), x)
        return h, states

    (h, states), p = run(build, x=x)

    def whole(x):
        made = pd.nn.LSTM('l', 3, 4, dtype='f64')(x)
        return made.last_h[0], made.outputs

    with pd.Graph() as graph:
        for i, value in enumerate(whole(graph.input('x', 'f64', x.shape))):
            graph.fetch(f'y{i}', value)
    made = pd.Program(graph, p)(x=x)
    np.testing.assert_allclose(made['y0'], h, rtol=1e-12)
    np.testing.assert_allclose(made['y1'], states, rtol=1e-12)


def test_a_cell_says_which_input_it_needs():
    with pytest.raises(pd.ShapeError, match=r'cell: x is Value\(f32\[2,5\]\), needed is \[B, 3\]'):
        run(lambda x: pd.nn.GRUCell('cell', 3, 4)(x), x=np.zeros((2, 5), np.float32))


@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
def test_recurrent_dropout_drops_the_same_elements_in_all_steps(kind):
    x = RNG.standard_normal((5, 2, 3))
    layer = getattr(pd.nn, kind)
    (plain,), _ = run(lambda x: layer('l', 3, 4, dtype='f64')(x).outputs, x=x)
    (off,), _ = run(lambda x: layer('l', 3, 4, recurrent_dropout=0.5, training=False, dtype='f64')(x).outputs, x=x)
    (on,), _ = run(lambda x: layer('l', 3, 4, recurrent_dropout=0.5, dtype='f64')(x).outputs, x=x)
    np.testing.assert_array_equal(off, plain)
    np.testing.assert_allclose(on[0], plain[0], rtol=1e-12)  # the first state reads no u
    assert (on[1:] != plain[1:]).any()


@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
def test_zoneout_mixes_old_and_new_states_where_nothing_is_trained(kind):
    x = RNG.standard_normal((4, 2, 3))
    chances = {'zoneout_h': 0.25, **({'zoneout_c': 0.5} if kind == 'LSTM' else {})}
    (mine,), p = run(
        lambda x: getattr(pd.nn, kind)('l', 3, 4, training=False, dtype='f64', **chances)(x).outputs, x=x
    )
    w, u, b = (p[f'l/l0/{each}'].numpy() for each in 'wub')
    h, c = np.zeros((2, 2, 4))
    for t in range(4):
        if kind == 'LSTM':
            new_h, new_c = lstm_step(x[t], h, c, w, u, b)
            c = 0.5 * c + 0.5 * new_c
        elif kind == 'GRU':
            new_h = gru_step(x[t], h, w, u, b)
        else:
            new_h = np.tanh(x[t] @ w + h @ u + b)
        h = 0.25 * h + 0.75 * new_h
        np.testing.assert_allclose(mine[t], h, rtol=1e-10)


def test_recompute_changes_no_gradient():
    x = RNG.standard_normal((7, 2, 3))

    def build(recompute):
        def gradient(x):
            made = pd.nn.GRU('l', 3, 4, recompute=recompute, dtype='f64')(x).outputs
            return pd.gradients((made * made).sum(), x)

        return gradient

    np.testing.assert_allclose(run(build(3), x=x)[0][0], run(build(0), x=x)[0][0], rtol=1e-10)


@pytest.mark.parametrize('rotary', [0, 10000])
def test_a_decoder_step_by_step_is_the_decoder_at_once(rotary):
    x, memory = RNG.standard_normal((2, 5, 8)), RNG.standard_normal((2, 3, 8))
    lengths = np.array([3, 2])

    def build(x, memory, lengths):
        layer = pd.nn.TransformerDecoderLayer('d', 8, 2, rotary_base=rotary, dtype='f64')
        whole = layer(x, memory, memory_lengths=lengths)
        steps = []

        def step(state, element):
            cache, position = state
            made, cache = layer.step(element.reshape(2, 1, 8), cache, position, memory_lengths=lengths)
            return (cache, position + 1), made.reshape(2, 8)

        zero = pd.full((), 0, 'i64')
        _, steps = pd.scan(step, (layer.start(2, 5, memory), zero), x.transpose(1, 0, 2))
        return whole, steps.transpose(1, 0, 2)

    (whole, steps), _ = run(build, x=x, memory=memory, lengths=lengths)
    np.testing.assert_allclose(steps, whole, rtol=1e-10)


def test_a_language_models_layer_has_no_memory_in_its_cache():
    x = RNG.standard_normal((2, 4, 8))

    def build(x):
        layer = pd.nn.TransformerDecoderLayer('d', 8, 2, memory=False, norm_first=True, dtype='f64')
        cache = layer.start(2, 4)
        assert cache[1] is None
        first, cache = layer.step(x[:, :3], cache, pd.full((), 0, 'i64'))
        second, _ = layer.step(x[:, 3:], cache, pd.full((), 3, 'i64'))
        return layer(x), pd.concat([first, second], axis=1)

    (whole, steps), _ = run(build, x=x)
    np.testing.assert_allclose(steps, whole, rtol=1e-10)


def test_attention_in_parts_is_attention():
    x, memory = RNG.standard_normal((2, 5, 8)), RNG.standard_normal((2, 3, 6))

    def build(x, memory):
        layer = pd.nn.MultiHeadAttention('a', 8, 2, key_width=6, value_width=6, dtype='f64')
        kept = layer.project(memory)
        mine = pd.nn.MultiHeadAttention('b', 8, 2, rotary_base=100, dtype='f64')
        made, _ = mine.step(x, mine.empty_cache(2, 5), pd.full((), 0, 'i64'))
        return layer(x, memory), layer.attend(x, kept), mine(x, causal=True), made

    (whole, parts, causal, stepped), _ = run(build, x=x, memory=memory)
    np.testing.assert_allclose(parts, whole, rtol=1e-12)
    np.testing.assert_allclose(stepped, causal, rtol=1e-10)


def test_groups_that_do_not_divide_are_refused():
    for make in (
        lambda: pd.nn.Conv1d('c', 3, 4, 3, groups=2),
        lambda: pd.nn.Conv3d('c', 4, 3, 3, groups=2),
        lambda: pd.nn.ConvTranspose2d('c', 3, 4, 3, groups=0),
    ):
        with pytest.raises(pd.ArgumentError, match='groups do not divide'), pd.Graph():
            make()
    with pytest.raises(pd.ArgumentError, match='the kernel has 2 extents, needed is one number or 3'), pd.Graph():
        pd.nn.Conv3d('c', 4, 4, (3, 3))


def test_a_first_value_may_be_set_after_a_layer_is_made():
    with pd.Graph() as graph:
        graph.fetch('y', pd.nn.Linear('l', 2, 3)(graph.input('x', 'f32', (1, 2))))
    graph.set_initial('l/weight', np.arange(6).reshape(2, 3))
    graph.set_initial('l/bias', pd.nn.constant(2))
    for each in (graph, graph.clone()):
        p = pd.Parameters(each)
        np.testing.assert_array_equal(pd.Program(graph, p)(x=[[1, 1]])['y'], [[5, 7, 9]])
    with pytest.raises(pd.ArgumentError, match="the graph has no parameter 'm/weight'"):
        graph.set_initial('m/weight', 0)
