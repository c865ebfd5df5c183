# SPDX-License-Identifier: Apache-2.0
"""Functions that are traced for what comes, held against NumPy and against programs of one size."""

import collections
import copy
import doctest
import pickle
import threading

import numpy as np
import pytest

import paoding as pd


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_the_example_of_the_docstring_is_true():
    for example in doctest.DocTestFinder(recurse=False).find(pd.TracedFunction, globs={'pd': pd}):
        assert example.examples
        assert doctest.DocTestRunner().run(example).failed == 0


def test_every_length_gives_what_numpy_gives_and_is_traced_once():
    calls = []

    @pd.function
    def normalized(x, weights):
        calls.append(x.shape)
        return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3) @ weights

    weights = floats(3, 2)
    for length in (4, 9, 1, 4, 200, 9):
        x = floats(length, 3, seed=length)
        wanted = (x - x.mean(0)) / (x.std(0) + 1e-3) @ weights
        np.testing.assert_allclose(normalized(x, weights), wanted, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(normalized(weights=weights, x=x), wanted, rtol=1e-4, atol=1e-5)
    assert calls == [(4, 3), (9, 3), (1, 3), (200, 3)]
    assert normalized.traces == 4


def test_arguments_and_results_may_be_nested():
    Pair = collections.namedtuple('Pair', 'left right')

    @pd.function
    def both(pair, others, *, scale=2.0):
        return Pair(pair.right * scale, None), [others['a'] + others['b'][0]], {'three': 3}

    a, b = floats(2), floats(2, seed=1)
    made, (added,), three = both(Pair(a, b), {'a': a, 'b': (b,)})
    assert type(made) is Pair and made.right is None
    np.testing.assert_allclose(made.left, 2 * b)
    np.testing.assert_allclose(added, a + b)
    assert three['three'].item() == 3
    np.testing.assert_allclose(both(Pair(a, b), {'a': a, 'b': (b,)}, scale=0.5)[0].left, 0.5 * b)
    assert pd.function(lambda x: {'low': x.min(), 'high': x.max()}).graph(a).fetches == ['low', 'high']
    assert both.graph(Pair(a, b), {'a': a, 'b': (b,)}, scale=3.0).inputs == [
        'pair.0', 'pair.1', 'others.a', 'others.b.0', 'scale'
    ]  # fmt: skip


def test_what_is_static_is_part_of_the_structure():
    @pd.function(static=['training'])
    def scaled(x, training, mode='a'):
        return x * (2 if training else 3) + (mode == 'b')

    x = floats(3)
    np.testing.assert_allclose(scaled(x, True), 2 * x, rtol=1e-6)
    np.testing.assert_allclose(scaled(x, training=False), 3 * x, rtol=1e-6)
    np.testing.assert_allclose(scaled(x, False, 'b'), 3 * x + 1, rtol=1e-6)
    np.testing.assert_allclose(scaled(x, True), 2 * x, rtol=1e-6)
    assert scaled.traces == 3
    with pytest.raises(TypeError, match="'training' is a set, needed are arrays, numbers.*"):
        pd.function(lambda training: training)({1})
    with pytest.raises(pd.ArgumentError, match='static: there is no argument mode'):
        pd.function(static=['mode'])(lambda x: x)


@pytest.mark.parametrize(
    ('given', 'floats_are', 'wanted'),
    [
        (np.zeros(2), 'f32', 'f32'),
        (np.zeros(2), 'f64', 'f64'),
        (np.zeros(2, np.float16), 'f32', 'f16'),
        (np.zeros(2, np.int32), 'f32', 'i32'),
        (np.zeros(2, np.int8), 'f32', 'i64'),
        (np.zeros(2, bool), 'f32', 'bool'),
        (np.float64(1), 'f32', 'f32'),
        (1.5, 'f64', 'f64'),
        (1, 'f32', 'i64'),
        (True, 'f32', 'bool'),
        (pd.Tensor(np.zeros(2)), 'f32', 'f64'),
    ],
)
def test_dtypes_are_those_of_the_arrays(given, floats_are, wanted):
    assert pd.function(floats=floats_are)(lambda x: x)(given).dtype.name == wanted


def test_training_and_prediction_share_parameters_at_every_batch_size():
    def logits(x):
        return pd.nn.Linear('out', 8, 3)(pd.relu(pd.nn.Linear('in', 4, 8)(x)))

    @pd.function(seed=2)
    def step(x, y):
        loss = pd.cross_entropy(logits(x), y)
        pd.minimize(loss, pd.Adam(0.03))
        return loss

    x, y = floats(70, 4), np.arange(70) % 3
    x[np.arange(70), y] += 3
    first = step(x[:32], y[:32]).item()
    for _ in range(60):
        for at in (0, 32, 64):  # the last batch has 6
            last = step(x[at : at + 32], y[at : at + 32])
    assert last.item() < 0.1 * first
    assert step.traces == 2
    assert step.parameters['optimizer/step'].item() == 181
    predict = pd.function(parameters=step.parameters)(lambda x: pd.argmax(logits(x), -1))
    assert (predict(x) == y).mean() > 0.95

    with pd.Graph() as graph:  # the same by programs of one size
        given = graph.input('x', 'f32', (70, 4))
        graph.fetch('best', pd.argmax(logits(given), -1))
    np.testing.assert_array_equal(pd.Program(graph, step.parameters)(x=x)['best'], predict(x))


def test_within_another_function_it_is_the_function():
    inner = pd.function(lambda x: x * 2)
    outer = pd.function(lambda x: inner(x) + inner(x + 1))
    np.testing.assert_allclose(outer(floats(3)), 4 * floats(3) + 2, rtol=1e-6)
    assert (outer.traces, inner.traces) == (1, 0)


def test_a_method_is_traced_for_each_instance():
    class Scale:
        def __init__(self, factor):
            self.factor = factor

        @pd.function
        def times(self, x):
            return x * self.factor

    two, three = Scale(2), Scale(3)
    x = floats(4)
    for each in (two, three, two):
        np.testing.assert_allclose(each.times(x), x * each.factor, rtol=1e-6)
    assert Scale.times.traces == 2


def test_a_store_without_what_a_later_structure_needs_says_so():
    @pd.function(static=['training'])
    def step(x, training):
        loss = pd.nn.Linear('l', 4, 1)(pd.dropout(x, 0.5, training)).sum()
        if training:
            pd.minimize(loss, pd.Sgd(0.1, momentum=0.9))
        return loss

    step(np.ones((2, 4)), False)
    with pytest.raises(pd.ArgumentError, match=r"the store has no 'optimizer/step', which this graph has \(\d parameters"):
        step(np.ones((2, 4)), True)
    whole = pd.Parameters([step.graph(np.ones((2, 4)), each) for each in (False, True)], seed=1)
    both = pd.function(static=['training'], parameters=whole)(step._function)
    both(np.ones((2, 4)), False)
    both(np.ones((2, 4)), True)
    assert whole['optimizer/step'].item() == 1


def test_few_programs_are_kept():
    double = pd.function(keep_at_most=2)(lambda x: x * 2)
    for length in (1, 2, 3, 1):
        assert double(np.ones(length)).tolist() == [2.0] * length
    assert double.traces == 4


def test_copies_have_parameters_of_their_own():
    layer = pd.function(seed=1)(_linear)
    wanted = layer(floats(2, 3)).numpy()
    other = copy.deepcopy(layer)
    layer.parameters['l/weight'] = np.zeros((3, 2))
    np.testing.assert_array_equal(other(floats(2, 3)), wanted)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(other))(floats(2, 3)), wanted)


def _linear(x):
    return pd.nn.Linear('l', 3, 2)(x)


def test_threads_trace_one_function_at_once():
    lock = threading.Lock()
    double = pd.function(lambda x: x * 2)
    wrong = []

    def work(length):
        for _ in range(20):
            with lock:  # a program is for one thread at a time
                made = double(np.ones(length))
            if made.tolist() != [2.0] * length:
                wrong.append(length)

    threads = [threading.Thread(target=work, args=(length,)) for length in range(1, 5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong and double.traces == 4


def test_mistakes_are_named():
    with pytest.raises(TypeError, match='missing'):
        pd.function(lambda x, y: x)(np.ones(1))
    with pytest.raises(TypeError, match='unexpected'):
        pd.function(lambda x: x)(np.ones(1), z=1)
    with pytest.raises(pd.ArgumentError, match='extents, pad_with and crop are of inputs that are declared'):
        pd.function(extents={'n': (1, 2)})(lambda x: x)
    with pytest.raises(pd.ArgumentError, match='there are no parameters before the first call'):
        pd.function(lambda x: x).parameters  # noqa: B018
    with pytest.raises(pd.ArgumentError, match="floats is 'i64'"):
        pd.function(floats='i64')(lambda x: x)
    with pytest.raises(pd.ShapeError):
        pd.function(lambda x, y: x + y)(np.ones(2), np.ones(3))
