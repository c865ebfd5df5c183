# SPDX-License-Identifier: Apache-2.0
"""Numbers beside values, for values and in lists: each is that very number in the dtype that it gets, or refused."""

import math

import numpy as np
import pytest

import paoding as pd

DTYPES = {'i64': np.int64, 'i32': np.int32, 'u8': np.uint8, 'bool': np.bool_}
NUMBERS = [0.5, -0.5, 1.5, -1, 2, 255, 256, 300, 1e3, -1e10, 2**31, 2.0**31, 2**53 + 1, 2**63 - 1, 2**63, -(2**63), 1e300]
NUMBERS += [math.nan, math.inf, -math.inf, 0, 1, True, 0.0, -0.0, 1.0]


def is_one(number, dtype):
    """Whether an element of `dtype` is the number, by Python's own exact arithmetic."""
    if not math.isfinite(number) or number != int(number):
        return False
    least, most = (0, 1) if dtype == 'bool' else (np.iinfo(DTYPES[dtype]).min, np.iinfo(DTYPES[dtype]).max)
    return least <= int(number) <= most


def result_of(graph, value, **feeds):
    graph.fetch('result', value)
    return np.asarray(pd.Program(graph).run(feeds)['result'])


BESIDE = {
    'a * n': lambda a, n: a * n,
    'n + a': lambda a, n: n + a,
    'n - a': lambda a, n: n - a,
    'a // n': lambda a, n: a // n,
    'n // a': lambda a, n: n // a,
    'a % n': lambda a, n: a % n,
    'a < n': lambda a, n: a < n,
    'n < a': lambda a, n: n < a,
    'a <= n': lambda a, n: a <= n,
    'a == n': lambda a, n: a == n,
    'a != n': lambda a, n: a != n,
    'maximum': lambda a, n: pd.maximum(a, n),
    'minimum': lambda a, n: pd.minimum(n, a),
    'where': lambda a, n: pd.where(a == 1, a, n),
    'call': lambda a, n: pd.call('add', a, n)[0],
}


@pytest.mark.parametrize('name', BESIDE)
@pytest.mark.parametrize('dtype', ['i64', 'i32', 'u8'])
def test_a_number_beside_integers_is_that_number_or_refused(name, dtype):
    array = np.array([1, 2, 3], DTYPES[dtype])
    for number in NUMBERS:
        with pd.Graph() as graph:
            a = graph.input('a', dtype, 3)
            if is_one(number, dtype):
                made = result_of(graph, BESIDE[name](a, number), a=array)
                with np.errstate(all='ignore'):
                    exact = np.array(int(number)).astype(DTYPES[dtype])
                    wanted = {
                        'maximum': lambda: np.maximum(array, exact),
                        'minimum': lambda: np.minimum(array, exact),
                        'where': lambda: np.where(array == 1, array, exact),
                        'call': lambda: array + exact,
                    }.get(name, lambda: BESIDE[name](array, exact))()
                np.testing.assert_array_equal(made, wanted, err_msg=f'{name} {number!r}')
            else:
                with pytest.raises(pd.DtypeError, match=rf': the number .* stands beside {dtype}\[3\], and no {dtype} is that'):
                    BESIDE[name](a, number)


def test_a_number_beside_bools_is_0_or_1():
    with pd.Graph() as graph:
        b = graph.input('b', 'bool', 2)
        for number in (2, 0.5, -1, math.nan):
            with pytest.raises(pd.DtypeError, match='logical_and: the number .* and no bool is that'):
                b & number
        made = result_of(graph, b & True | (b ^ 1), b=np.array([True, False]))
    assert made.tolist() == [True, True]


def test_the_error_says_the_op_the_scope_and_what_to_write():
    with pd.Graph() as graph, graph.scope('decoder'):
        a = graph.input('a', pd.i64, 3)
        with pytest.raises(pd.DtypeError) as caught:
            a * 0.5
    assert str(caught.value) == (
        'mul: the number 0.5 stands beside i64[3], and no i64 is that (in decoder)\n'
        'hint: cast(a, f32) first, or a number that i64 holds'
    )
    with pd.Graph() as graph:
        made = result_of(graph, graph.input('a', pd.i64, 3).astype('f32') * 0.5, a=np.array([1, 2, -3]))
    assert made.tolist() == [0.5, 1.0, -1.5]


@pytest.mark.parametrize('dtype', DTYPES)
def test_a_constant_is_its_number_or_refused(dtype):
    for number in NUMBERS:
        makers = {
            'full': lambda: pd.full(3, number, dtype),
            'constant': lambda: pd.constant([number] * 3, dtype),
            'constant of an array': lambda: pd.constant(np.array([number] * 3), dtype),
            'full_like': lambda: pd.full_like(graph.input('like', dtype, 3), number),
            'one_hot': lambda: pd.one_hot(graph.input('ids', pd.i64, 1), 3, on=number, off=number, dtype=dtype),
            'pad': lambda: pd.pad(graph.input('empty', dtype, 0), before=[1], after=[2], value=number),
        }
        feeds = {'like': np.zeros(3, DTYPES[dtype]), 'ids': np.zeros(1, np.int64), 'empty': np.zeros(0, DTYPES[dtype])}
        for name, make in makers.items():
            is_rounded = name in ('one_hot', 'pad') and isinstance(number, int) and float(number) != number
            if is_rounded:  # attributes that are floats
                continue
            with pd.Graph() as graph:
                if is_one(number, dtype):
                    made = result_of(graph, make(), **{each: feeds[each] for each in graph.inputs} or {})
                else:
                    with pytest.raises((pd.ArgumentError, pd.DtypeError), match='cannot hold|of no dtype|no dtype holds'):
                        make()
                    continue
            assert {int(each) for each in made.ravel()} == {int(number)}, (name, number)


@pytest.mark.parametrize('dtype', DTYPES)
def test_lists_for_integers_are_their_numbers_or_refused(dtype):
    with pd.Graph() as graph:
        graph.fetch('x', graph.input('x', dtype, 2))
        graph.fetch('same', graph.input('y', dtype, 2))
        graph.parameter('w', dtype, 2)
    parameters = pd.Parameters(graph)
    program = pd.Program(graph, parameters)
    for number in NUMBERS:
        given = [1, number]
        if is_one(number, dtype) and not (isinstance(number, float) and abs(number) >= 2**53):
            assert [int(each) for each in program(x=given, y=given)['same'].tolist()] == [1, int(number)]
            assert [int(each) for each in pd.Tensor(given, dtype).tolist()] == [1, int(number)]
            parameters['w'] = given
            assert [int(each) for each in parameters['w'].tolist()] == [1, int(number)]
        elif not is_one(number, dtype):
            for take in (
                lambda: program(x=given, y=given),
                lambda: pd.Tensor(given, dtype),
                lambda: parameters.__setitem__('w', given),
            ):
                with pytest.raises(pd.DtypeError, match='cannot hold|no dtype holds|of no dtype'):
                    take()
    with pytest.raises(pd.DtypeError, match=rf"input 'x': its element 0 is 1.7, which {dtype} cannot hold"):
        program(x=[1.7, 2.9], y=[0, 1])
    assert pd.Tensor([], dtype).shape == (0,)


def test_ranges_that_a_dtype_does_not_hold_are_refused():
    with pd.Graph() as graph:
        assert result_of(graph, pd.arange(0, 256, dtype='u8')).tolist() == list(range(256))
    with pd.Graph():
        for arguments in ((0, 257), (-1, 3), (3, -2, -1)):
            with pytest.raises(pd.ArgumentError, match='which u8 cannot hold'):
                pd.arange(*arguments, dtype='u8')
        with pytest.raises(pd.ArgumentError, match='which bool cannot hold'):
            pd.arange(3, dtype='bool')


def test_bounds_of_integers_are_integers():
    with pd.Graph() as graph:
        a = graph.input('a', pd.i32, 3)
        for bounds in ({'max': 1.5}, {'min': -1e10}, {'max': 2.0**31}):
            with pytest.raises(pd.DtypeError, match=r'clamp: inputs are i32\[3\]; bound .* beside i32, and no i32 is that'):
                pd.clamp(a, **bounds)
        made = result_of(graph, pd.clamp(a, min=-1, max=2), a=np.array([-5, 1, 5], np.int32))
    assert made.tolist() == [-1, 1, 2]


def test_rows_are_picked_by_arrays_and_lists_of_integers():
    array = np.arange(12.0).reshape(4, 3)
    for key in (np.array([-1]), np.array([[0, 3], [-4, 2]]), np.array([1, -2], np.int32), [2, -1, 2], np.array(2), np.int64(-3), []):
        with pd.Graph() as graph:
            made = result_of(graph, graph.input('a', pd.f64, (4, 3))[key], a=array)
        wanted = array[np.asarray(key, int) if isinstance(key, list) else key]
        np.testing.assert_array_equal(made, wanted)
    with pd.Graph() as graph:
        a = graph.input('a', pd.f64, (4, 3))
        for key in (np.array([4]), [-5], [0, 9], 4, np.int64(-5), 2**70):
            with pytest.raises(IndexError):
                a[key]
        for key in ([0.5], np.array([1.0]), 1.5, 'a', (np.array([0.0]), 1), True):
            with pytest.raises(TypeError):
                a[key]


def test_initial_values_of_integers_are_integers():
    for initial, is_held in ((pd.nn.constant(2), True), (pd.nn.constant(0.5), False), (pd.nn.uniform(0, 9), False), ([1, 2], True)):
        with pd.Graph() as graph:
            graph.parameter('w', pd.i64, 2, initial=np.array(initial) if isinstance(initial, list) else initial)
        if is_held:
            assert pd.Parameters(graph)['w'].tolist() in ([2, 2], [1, 2])
        else:
            with pytest.raises(pd.DtypeError, match=r'initial value: .* for a parameter of i64\[2\], and no i64 is that'):
                pd.Parameters(graph)
