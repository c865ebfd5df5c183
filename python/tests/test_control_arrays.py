# SPDX-License-Identifier: Apache-2.0
"""Loops and branches that begin with numbers and arrays, beside loops of Python's."""

import collections

import numpy as np
import pytest

import paoding as pd

X = np.array([[3.0, -1, 2], [0.5, 4, -2]], np.float32)


def run(function, array=X, dtype='f32'):
    """The values that function(value of the array) makes, computed by a program."""
    with pd.Graph() as graph:
        made = function(graph.input('x', dtype, array.shape))
        for i, each in enumerate(made if isinstance(made, (tuple, list)) else [made]):
            graph.fetch(f'{i}', each)
    return [each.numpy() for each in pd.Program(graph)(x=array).values()]


def test_a_scan_begins_with_a_number_or_an_array():
    for zero in (np.zeros(3), np.zeros(3, np.float32), np.zeros(6)[::2], pd.Tensor(np.zeros(3, np.float32))):
        total, seen = run(lambda x: pd.scan(lambda c, e: (c + e, c), zero, x))
        np.testing.assert_array_equal(total, X.sum(axis=0))
        np.testing.assert_array_equal(seen, [[0, 0, 0], X[0]])
        assert total.dtype == np.float32
    total, count, seen = run(lambda x: (lambda c, s: (*c, s))(*pd.scan(lambda c, e: ((c[0] + e.sum(), c[1] + 1), c[1]), (0.0, 0), x)))
    assert total == X.sum() and count == 2 and seen.tolist() == [0, 1] and total.dtype == np.float32 and count.dtype == np.int64


@pytest.mark.parametrize('dtype', ['f64', 'f32', 'f16'])
def test_numbers_get_the_dtype_of_the_floats_beside_them(dtype):
    with pd.Graph() as graph:
        x = graph.input('x', dtype, 4)
        last, stacked = pd.scan(lambda c, e: (c * e, c), 1.0, x)
        assert (last.dtype, stacked.dtype) == (x.dtype, x.dtype)
        assert pd.scan(lambda c, e: (c + e, None), np.zeros(()), x)[0].dtype == x.dtype
        assert pd.scan(lambda c, e: (c + e, None), x[0], np.ones(3))[0].dtype == x.dtype
        assert pd.cond(x[0] > 0, lambda: np.zeros(4), lambda: x).dtype == x.dtype  # otherwise() is called first
        assert pd.scan(lambda c, e: (c + 1, None), 0, x)[0].dtype == pd.i64
        assert pd.scan(lambda c, e: (~c, None), True, x)[0].dtype == pd.bool_


def test_a_scan_goes_over_an_array():
    weights = np.arange(12.0).reshape(4, 3)
    for xs in (weights, weights.astype(np.float32), weights[::-1][::-1], pd.Tensor(weights.astype(np.float32))):
        last, stacked = run(lambda x: pd.scan(lambda c, e: (c + e, (c * e).sum()), x[0], xs))
        carry, wanted = X[0], []
        for each in weights.astype(np.float32):
            wanted.append((carry * each).sum())
            carry = carry + each
        np.testing.assert_allclose(last, carry)
        np.testing.assert_allclose(stacked, wanted)
    with pd.Graph() as graph:  # no value at all
        graph.fetch('y', pd.scan(lambda c, e: (c + e, None), 0.0, np.ones((5, 2)).sum(axis=1))[0])
    assert pd.Program(graph)()['y'].item() == 10


def test_a_step_may_return_the_carry_alone():
    last, nothing = [], []
    made = run(lambda x: (lambda c, s: (nothing.append(s), c)[1])(*pd.scan(lambda c, e: pd.tanh(c + e), np.zeros(3), x)))
    carry = np.zeros(3)
    for each in X:
        carry = np.tanh(carry + each)
    np.testing.assert_allclose(made[0], carry, rtol=1e-6)
    assert nothing == [None] and last == []
    State = collections.namedtuple('State', 'h c')
    h, c = run(lambda x: pd.scan(lambda s, e: State(s.h + e, s.c * 2), State(np.zeros(3), 1.0), x)[0])
    np.testing.assert_array_equal(h, X.sum(axis=0))
    assert c == 4
    made = run(lambda x: pd.scan(lambda s, e: {'h': s['h'] + e}, {'h': 0.0}, x[0])[0]['h'])
    assert made[0] == X[0].sum()


def test_a_step_may_return_numbers():
    last, stacked = run(lambda x: pd.scan(lambda c, e: (1.5, 7), x[0, 0], x))
    assert last == 1.5 and last.dtype == np.float32 and stacked.tolist() == [7, 7]


def test_a_pair_that_is_meant_as_the_carry_is_told():
    with pytest.raises(pd.ArgumentError, match=r'not nested as those.*\nhint: a step returns \(carry, outputs\), and \(carry, None\)'):
        run(lambda x: pd.scan(lambda s, e: (s[0] + e, s[1]), (x[0], x[1]), x)[0])


def test_a_while_loop_begins_with_numbers():
    count, product = run(lambda x: pd.while_loop(lambda s: s[0] < 10, lambda s: (s[0] + 1, s[1] * x), (0, 1.0)), np.array(1.5, np.float32))
    assert count == 10
    np.testing.assert_allclose(product, 1.5**10)
    with pd.Graph() as graph:
        graph.fetch('y', pd.while_loop(lambda v: v < 100.0, lambda v: v * 3, 1.0))
    assert pd.Program(graph)()['y'].item() == 243


def test_branches_give_numbers_and_arrays():
    for value, wanted in ((2.0, 2), (-2.0, 0)):
        assert run(lambda x: pd.cond(x > 0, lambda: x, lambda: 0.0), np.array(value, np.float32))[0] == wanted
        assert run(lambda x: pd.cond(x > 0, lambda: 1, lambda: 0), np.array(value, np.float32))[0] == (value > 0)
    picked = run(lambda x: pd.switch(x, [lambda: np.zeros(2), lambda: [np.ones(2)][0], lambda: np.full(2, 5)]), np.array(1), 'i64')
    assert picked[0].tolist() == [1, 1]


def test_seeds_of_gradients_are_arrays():
    made = run(lambda x: pd.gradients(x * x, x, np.full((2, 3), 0.5)))
    np.testing.assert_array_equal(made[0], X)


@pytest.mark.parametrize('given', ['text', object(), {1, 2}, lambda: 0])
def test_what_is_no_value_is_named(given):
    with pytest.raises(pd.ArgumentError, match='is no value: values'):
        run(lambda x: pd.scan(lambda c, e: (c, None), given, x)[0])
    with pytest.raises(pd.ArgumentError, match='is no value: values'):
        run(lambda x: pd.scan(lambda c, e: (c, given), x[0], x)[0])
