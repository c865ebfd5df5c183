# SPDX-License-Identifier: Apache-2.0
"""Results and parameters as arrays, and values with NumPy's methods and indexing: every result beside NumPy's own."""

import math
import operator

import numpy as np
import pytest

import paoding as pd

DTYPES = {np.dtype(code): name for code, name in {'f8': 'f64', 'f4': 'f32', 'i8': 'i64', 'i4': 'i32', 'u1': 'u8', '?': 'bool'}.items()}


def run(function, *arrays):
    """function(values of the arrays), computed by a program."""
    with pd.Graph() as graph:
        values = [graph.input(f'x{i}', DTYPES[each.dtype], each.shape) for i, each in enumerate(arrays)]
        graph.fetch('y', function(*values))
    return pd.Program(graph).run({f'x{i}': each for i, each in enumerate(arrays)})['y'].numpy()


def result(array, dtype='f32'):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', dtype, np.shape(array)))
    return pd.Program(graph)(x=array)['y']


X = np.array([[3.0, -1, 2], [0.5, 4, -2]], np.float32)
I = np.array([[3, -1, 2], [5, 4, -2]])
B = X > 0
CUBE = np.arange(60, dtype=np.float32).reshape(3, 4, 5)


# ---- results ----


def test_a_scalar_is_formatted_compared_and_computed_with():
    loss = result(1.5)
    assert f'{loss:.3f} {loss:>6.1f}|{loss}' == '1.500    1.5|1.5'
    assert loss < 2 and loss <= 1.5 and loss > 1 and loss == 1.5 and loss != 2 and not loss > 2
    assert 0.0 + loss == 1.5 and loss * 2 == 3 and 3 - loss == 1.5 and -loss == -1.5 and abs(-loss) == 1.5
    assert sum([loss, loss]) == 3 and max([loss, result(2.5)]) == 2.5 and round(loss) == 2 and round(result(1.26), 1) == 1.3
    assert math.exp(loss) == math.exp(1.5) and int(loss) == 1 and bool(loss)
    assert [1, 2, 3][result(1, 'i64')] == 2
    total = 0.0
    total += loss
    assert total == 1.5
    with pytest.raises(TypeError):
        [1, 2][loss]
    assert f'{result(1.5, "bf16"):.2f}' == '1.50'


@pytest.mark.parametrize('dtype', ['f32', 'bf16', 'i32'])
def test_a_tensor_computes_as_its_array(dtype):
    tensor = result(I, dtype)
    array = I.astype(np.int32 if dtype == 'i32' else np.float32)
    for op in ('add', 'sub', 'mul', 'truediv', 'floordiv', 'mod', 'lt', 'le', 'gt', 'ge', 'eq', 'ne'):
        function = getattr(operator, op)
        for other in (2, array + 10, [1, 2, 3]):
            np.testing.assert_array_equal(function(tensor, other), function(array, np.asarray(other)), err_msg=op)
        np.testing.assert_array_equal(function(tensor, tensor), function(array, array))
        np.testing.assert_array_equal(function(7, tensor), function(7, array))
        np.testing.assert_array_equal(function(array, tensor), function(array, array))
    np.testing.assert_array_equal(tensor @ np.ones((3, 2)), array @ np.ones((3, 2)))
    np.testing.assert_array_equal(np.ones((1, 2)) @ tensor, np.ones((1, 2)) @ array)
    np.testing.assert_array_equal(abs(-tensor) ** 2, array**2)
    assert np.asarray(tensor + 1).dtype == array.dtype


@pytest.mark.parametrize('key', [0, -1, (1, 2), slice(None, None, -1), (slice(None), [2, 0]), ..., (None, 0), [True, False], I > 2, ([0, 1], [2, 0])])
def test_a_tensor_is_indexed_as_its_array(key):
    for dtype in ('f32', 'bf16'):
        np.testing.assert_array_equal(result(I, dtype)[key], I[key])


def test_a_tensor_is_iterated_and_has_numpys_methods():
    tensor = result(X)
    for row, wanted in zip(tensor, X, strict=True):
        np.testing.assert_array_equal(row, wanted)
    first, second = tensor
    assert 4.0 in tensor and 7.0 not in tensor and second[1] == 4 and len(first) == 3
    for name in ('all', 'any', 'argmax', 'argmin', 'argsort', 'cumprod', 'cumsum', 'flatten', 'max', 'mean', 'min', 'prod',
                 'ravel', 'round', 'squeeze', 'std', 'sum', 'transpose', 'var'):
        np.testing.assert_array_equal(getattr(tensor, name)(), getattr(X, name)(), err_msg=name)
    np.testing.assert_array_equal(tensor.mean(axis=0, keepdims=True), X.mean(axis=0, keepdims=True))
    np.testing.assert_array_equal(tensor.clip(0, 1), X.clip(0, 1))
    np.testing.assert_array_equal(tensor.reshape(3, 2), X.reshape(3, 2))
    np.testing.assert_array_equal(tensor.T, X.T)
    np.testing.assert_array_equal(np.mean(tensor, axis=1), X.mean(axis=1))
    np.testing.assert_array_equal(np.exp(tensor), np.exp(X))
    assert len({tensor, tensor}) == 1
    assert tensor.astype(np.float64).dtype == pd.f64 and tensor.astype(np.dtype('int32')).dtype == pd.i32


def test_a_view_is_the_tensors_memory_and_a_copy_is_not():
    for dtype in ('f32', 'bf16'):
        tensor = result(X, dtype)
        tensor[0] = 7
        tensor[1, -1] = -8
        copy = tensor.copy()
        copy[:] = 0
        assert tensor.tolist() == [[7, 7, 7], [0.5, 4, -8]] and isinstance(copy, pd.Tensor)
    tensor = result(X)
    tensor.numpy()[0, 0] = 11
    tensor[1][0] = 12
    assert tensor[0, 0] == 11 and tensor[1, 0] == 12


def test_a_value_beside_a_result_makes_a_value():
    with pd.Graph() as graph:
        value = graph.input('x', 'f32', (2, 3))
        for made in (result(X) + value, value + result(X), value < result(X)):
            assert isinstance(made, pd.Value)


# ---- parameters ----


def parameters():
    with pd.Graph() as graph:
        graph.parameter('w', 'f32', 2, initial=np.array([1, 2]))
        graph.parameter('b', 'bf16', 1)
    return pd.Parameters(graph)


def test_a_write_into_the_copy_of_a_parameter_is_refused():
    store = parameters()
    for write in (
        lambda: store['w'].numpy().__setitem__(..., 7),
        lambda: np.asarray(store['w']).__setitem__(..., 7),
        lambda: dict(store.items())['w'].numpy().__setitem__(..., 7),
        lambda: store.values()[0].numpy().__setitem__(..., 7),
        lambda: store.get('w').numpy().__setitem__(..., 7),
        lambda: memoryview(store['w']).__setitem__(0, 7),
    ):
        with pytest.raises((ValueError, TypeError), match='read-only'):
            write()
    for name in ('w', 'b'):
        with pytest.raises(pd.ArgumentError, match=r'copy of a parameter.*\nhint: parameters\[name\] = array'):
            store[name][:] = 7
    changed = store['w'].copy()
    changed[:] = 7
    assert store['w'].tolist() == [1, 2]
    store['w'] = changed
    store['b'] = store['b'] + 3
    assert store['w'].tolist() == [7, 7] and store['b'].tolist() == [3]
    assert np.array(store['w']).flags.writeable  # a copy, as NumPy has it


def test_a_store_is_a_mapping():
    store = parameters()
    assert store.get('w').tolist() == [1, 2] and store.get('z') is None and store.get('z', 5) == 5
    assert [each.tolist() for each in store.values()] == [[1, 2], [0]]
    assert {name: value.tolist() for name, value in dict(store).items()} == {'w': [1, 2], 'b': [0]}
    for missing in (lambda: store['z'], lambda: store.__setitem__('z', 1), lambda: store.update({'z': 1})):
        with pytest.raises(KeyError, match="none named 'z'; there are: w, b") as caught:
            missing()
        assert isinstance(caught.value, pd.ArgumentError) and str(caught.value).startswith('parameters: ')
    assert 'w' in store and 'z' not in store and 5 not in store
    store.update({'w': [3, 4], 'b': np.ones(1)})
    assert [each.tolist() for each in store.values()] == [[3, 4], [1]]


# ---- values ----


METHODS = {
    'clip': lambda x: x.clip(0, 1),
    'clip, one end': lambda x: x.clip(max=1),
    'argmax': lambda x: x.argmax(axis=1),
    'argmax, flat': lambda x: x.argmax(),
    'argmin, kept': lambda x: x.argmin(axis=0, keepdims=True),
    'argmin, flat, kept': lambda x: x.argmin(keepdims=True),
    'argsort': lambda x: x.argsort(),
    'std': lambda x: x.std(),
    'std along': lambda x: x.std(axis=1, keepdims=True),
    'var': lambda x: x.var(axis=0),
    'var, ddof': lambda x: x.var(axis=1, ddof=1),
    'flatten': lambda x: x.flatten(),
    'ravel': lambda x: x.ravel(),
    'squeeze': lambda x: x[:, None].squeeze(),
    'squeeze one': lambda x: x[None, :, None].squeeze(0),
    'cumsum': lambda x: x.cumsum(axis=1),
    'cumsum, flat': lambda x: x.cumsum(),
    'cumprod': lambda x: x.cumprod(axis=0),
    'T': lambda x: x.T,
    'round': lambda x: x.round(),
    'round to': lambda x: (x / 3).round(2),
    'swapaxes': lambda x: x.swapaxes(0, 1),
    'repeat': lambda x: x.repeat(2, axis=1),
    'repeat, flat': lambda x: x.repeat(2),
    'take': lambda x: x.take([2, 0], axis=1),
    'take, flat': lambda x: x.take([[5, 0], [1, 1]]),
    'dot': lambda x: x.dot(np.ones(3, np.float32)),
    'vector @ matrix': lambda x: np.ones(2, np.float32) @ x,
    'vector @ vector': lambda x: x[0] @ x[1],
    'matrix @ vector': lambda x: x @ x[0],
    'sum of negatives': lambda x: (x < 0).sum(),
    'mean of a comparison': lambda x: (x > 0).mean(axis=1),
}


@pytest.mark.parametrize('name', METHODS)
def test_a_method_is_numpys(name):
    made, wanted = run(METHODS[name], X), METHODS[name](X)
    np.testing.assert_allclose(made, wanted, rtol=1e-6)
    assert made.shape == np.shape(wanted)


@pytest.mark.parametrize('array', [I, I.astype(np.int32), np.abs(I).astype(np.uint8), B], ids=['i64', 'i32', 'u8', 'bool'])
def test_integers_and_bools_have_sums_and_means(array):
    for axis in (None, 0, (0, 1)):
        for name in ('sum', 'prod', 'mean', 'var', 'std'):
            wanted = getattr(array, name)(axis=axis)
            for made in (run(lambda x: getattr(x, name)(axis), array), run(lambda x: getattr(pd, name)(x, axis), array)):
                np.testing.assert_allclose(made, wanted, rtol=1e-6, err_msg=name)
                assert made.shape == np.shape(wanted) and (made.dtype.kind == 'i') == (name in ('sum', 'prod'))
    for name in ('cumsum', 'cumprod'):
        np.testing.assert_array_equal(run(lambda x: getattr(x, name)(1), array), getattr(array, name)(1))
        np.testing.assert_array_equal(run(lambda x: getattr(pd, name)(x, 1), array), getattr(array, name)(1))
    assert run(lambda x: pd.argmax(x), array.astype('i4')) == array.argmax()


def test_sums_of_bytes_do_not_wrap_and_means_of_large_integers_are_right():
    assert run(lambda x: x.sum(), np.full(1000, 255, np.uint8)) == 255000
    assert run(lambda x: x.sum(), np.ones(70000, bool)) == 70000
    large = np.array([2**40, 2**40 + 2, 5])
    np.testing.assert_allclose(run(lambda x: x.mean(), large), large.mean(), rtol=1e-7)
    large = np.full(3, 2**31 - 1, np.int32)
    np.testing.assert_allclose(run(lambda x: x.mean(), large), large.mean(), rtol=1e-7)


def test_numpys_f64_beside_a_float_is_of_its_dtype():
    for dtype in ('f32', 'f64', 'f16'):
        with pd.Graph() as graph:
            x = graph.input('x', dtype, 2)
            for made in (x - np.array([1.0, 2.0]), np.array([1.0, 2.0]) - x, pd.maximum(x, np.zeros(2)), x * np.float64(2), x < np.zeros(2),
                         pd.where(x > 0, x, np.zeros(2)), x + [1.0, 2.0]):
                assert made.dtype in (x.dtype, pd.bool_)
    with pd.Graph() as graph:
        x, i = graph.input('x', 'f32', 2), graph.input('i', 'i64', 2)
        assert (i - np.array([1.0, 2.0])).dtype == pd.f64  # an integer has no f64 in it
        assert (x - pd.Tensor(np.array([1.0, 2.0]))).dtype == pd.f64  # somebody chose it
        assert (x - pd.constant(np.array([1.0, 2.0]))).dtype == pd.f64
        assert (x.astype('f16') - np.ones(2, np.float32)).dtype == pd.f32
    np.testing.assert_array_equal(run(lambda x: x - np.array([0.1, 0.2, 0.3]), X), X - np.float32([0.1, 0.2, 0.3]))


KEYS = {
    'integers': np.array([1, 0, 2, 1]),
    'integers, negative': [[-1, 0], [1, -3]],
    'integers of a column': (slice(None), [3, 0, -1]),
    'integers behind': (..., np.array([4, 0], np.int32)),
    'a pair': ([0, 1, 2], [3, 2, -1]),
    'a pair that is broadcast': (np.array([[0], [2]]), [1, 3]),
    'a pair behind': (slice(None), [1, 2], [0, 4]),
    'a pair apart': ([0, 1], slice(None), [0, 4]),
    'a pair apart, of a part': ([0, 1], slice(1, 4, 2), [0, 4]),
    'a pair with a new axis between': ([0, 1], None, [1, 2]),
    'three': ([0, 1], [1, 2], [0, 4]),
    'a number and integers': (1, [0, 2]),
    'integers and a number': ([0, 2], slice(None), 1),
    'a number, a slice, integers': (0, slice(None), [1, 3]),
    'a new axis and integers': (None, [1, 0]),
    'integers and a new axis': ([1, 0], None),
    'a slice backwards and integers': (slice(None, None, -1), [1, 0]),
    'bools': [True, False, True],
    'bools of a column': (slice(None), np.array([True, False, False, True])),
    'bools of two axes': CUBE[..., 0] > 12,
    'bools of all axes': CUBE > 31,
    'bools behind': (..., CUBE[0, 0] > 2),
    'bools and integers': (np.array([True, False, True]), [1, 2]),
    'no bools': np.zeros(3, bool),
    'no integers': [],
    'a scalar array': np.array(2),
}


@pytest.mark.parametrize('name', KEYS)
def test_an_index_is_numpys(name):
    made = run(lambda x: x[KEYS[name]], CUBE)
    np.testing.assert_array_equal(made, CUBE[KEYS[name]])
    assert made.shape == CUBE[KEYS[name]].shape


def test_values_are_indices():
    i, j = np.array([2, 0, 1]), np.array([3, 1, 0])
    for index, wanted in (
        (lambda x, i, j: x[i], CUBE[i]),
        (lambda x, i, j: x[i, j], CUBE[i, j]),
        (lambda x, i, j: x[:, j], CUBE[:, j]),
        (lambda x, i, j: x[..., i], CUBE[..., i]),
        (lambda x, i, j: x[np.arange(3), j], CUBE[np.arange(3), j]),
        (lambda x, i, j: x[i[:, None], j], CUBE[i[:, None], j]),
        (lambda x, i, j: x[0, j], CUBE[0, j]),
        (lambda x, i, j: x[i, :, j], CUBE[i, :, j]),
        (lambda x, i, j: x[i - 3, j - 4], CUBE[i - 3, j - 4]),
    ):
        np.testing.assert_array_equal(run(index, CUBE, i, j), wanted)
    np.testing.assert_array_equal(run(lambda x, i: x[i], X, np.array(1)), X[1])
    with pytest.raises(pd.ArgumentError, match='an index'):
        run(lambda x, i: x[i, i], CUBE, np.array([0, 3]))


def test_an_index_has_a_gradient():
    """Elements that are picked twice count twice."""
    rows, columns = np.array([0, 1, 1]), np.array([2, 0, 0])
    made = run(lambda x: pd.gradients((x[rows, columns] * np.array([1, 10, 100])).sum(), x), X)
    wanted = np.zeros_like(X)
    np.add.at(wanted, (rows, columns), [1, 10, 100])
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ('key', 'kind', 'said'),
    [
        ([0, 3], IndexError, 'index 3 is out of range for axis 0 with 3 elements'),
        ((0, [-5]), IndexError, 'index -5 is out of range for axis 1 with 4 elements'),
        (([0, 1], [0, 1, 2]), ValueError, 'broadcast'),
        ([0.5], TypeError, 'array of float64, needed are integers or bools'),
        (['a'], TypeError, 'needed are integers or bools'),
        ([True, False], IndexError, '2 bools stands for axis 0 with 3 elements'),
        (True, TypeError, 'a single bool'),
        (([0], [0], [0], [0]), IndexError, '3 axes has no 4'),
        ((..., [0], ...), IndexError, r'more than one \.\.\.'),
        ('x', TypeError, 'an index is of type str; needed are'),
    ],
)
def test_an_index_that_is_none_is_refused(key, kind, said):
    with pd.Graph() as graph:
        with pytest.raises(kind, match=said):
            graph.input('x', 'f32', (3, 4, 5))[key]


def test_bools_that_are_not_known_yet_are_refused_with_what_to_write():
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', 3)
        with pytest.raises(TypeError, match=r'Value\(bool\[3\]\), needed are integers\nhint: pd.where'):
            x[x > 0]
        with pytest.raises(TypeError, match=r"needed are integers\nhint: index.astype\('i64'\)"):
            x[x]
