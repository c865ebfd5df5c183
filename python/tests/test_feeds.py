# SPDX-License-Identifier: Apache-2.0
"""Feeds of every dtype and any strides, beside NumPy's own conversion; what cannot be one of the input's is refused."""

import itertools

import numpy as np
import pytest

import paoding as pd

DTYPES = {'f64': 'f8', 'f32': 'f4', 'f16': 'f2', 'i64': 'i8', 'i32': 'i4', 'u8': 'u1', 'bool': '?'}
OTHERS = ('i1', 'i2', 'u2', 'u4', 'u8', '>f4', '>i8', 'g')


def echo(dtype, shape, **options):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', dtype, shape))
    return pd.Program(graph, **options)


def numbers(code, *shape):
    """0 and 1 of bools, else 0, 1, 2 .. which every dtype holds."""
    count = int(np.prod(shape))
    return (np.arange(count) % (2 if code == '?' else 100)).astype(code).reshape(shape)


@pytest.mark.parametrize(('to', 'of'), list(itertools.product(DTYPES, [*DTYPES.values(), *OTHERS])))
def test_numbers_that_both_have_are_the_same(to, of):
    array = numbers('?' if to == 'bool' else of, 5, 7).astype(of)
    made = echo(to, (5, 7))(x=array)['y']
    assert made.dtype == getattr(pd, 'bool_' if to == 'bool' else to)
    np.testing.assert_array_equal(made.numpy(), array.astype(DTYPES[to]), strict=True)


VIEWS = {
    'transposed': lambda a: a.T,
    'of another order': lambda a: a.transpose(2, 0, 1),
    'every second': lambda a: a[:, ::2],
    'from the end': lambda a: a[::-1, :, ::-1],
    'broadcast': lambda a: np.broadcast_to(a[:1, :, :1], a.shape),
    'a column': lambda a: a[..., 2],
    'one element': lambda a: a[1, 2, 3],
    'no element': lambda a: a[:, :0],
    'extents of one': lambda a: a[:, 1:2, 1:2],
    'not at a multiple of its size': lambda a: np.frombuffer(b'\0' + a.tobytes(), np.uint8)[1:].view(a.dtype),
}


@pytest.mark.parametrize('view', VIEWS)
@pytest.mark.parametrize('of', ['f8', 'f4', 'i4', '?', 'f2'])
@pytest.mark.parametrize('to', ['f32', 'f64', 'i64', 'bf16'])
def test_any_strides(view, of, to):
    array = VIEWS[view](numbers(of, 3, 4, 6))
    made = echo(to, array.shape)(x=array)['y']
    np.testing.assert_array_equal(made.astype('f64').numpy(), array.astype('f8'))


def test_floats_round_as_numpy_rounds_them():
    array = np.concatenate([np.random.default_rng(0).standard_normal(5000) * 10.0 ** np.arange(-40, 10).repeat(100),
                            [np.nan, np.inf, -np.inf, -0.0, 1e-46, 3.4028235677973366e38 * (1 - 1e-12)]])
    for of, to in (('f8', 'f32'), ('f8', 'f16'), ('f4', 'f16'), ('f4', 'f64')):
        given = array.astype(of)
        if to == 'f16':
            given = np.where(np.abs(given) < 6e4, given, 1).astype(of)
        made = echo(to, array.shape)(x=given)['y'].numpy()
        np.testing.assert_array_equal(made.view(f'u{made.itemsize}'), given.astype(DTYPES[to]).view(f'u{made.itemsize}'))


@pytest.mark.parametrize(
    ('to', 'array', 'said'),
    [
        ('i64', [1.0, 1.5], r"element 1 is 1.5, which i64 cannot hold\nhint: numpy.trunc\(array\)"),
        ('i64', [np.nan, 0], 'element 0 is nan, which i64 cannot hold'),
        ('i64', [0, 2.0**63], r'element 1 is 9.22.*e\+18, which i64 cannot hold'),
        ('i32', np.int64([0, 1 << 31]), 'element 1 is 2147483648, which i32 cannot hold\nhint: numpy.clip'),
        ('i32', np.int64([0, (1 << 62) + 1]), 'element 1 is 4611686018427387905, which i32'),
        ('u8', np.int32([0, -1]), 'element 1 is -1, which u8 cannot hold'),
        ('u8', [0, 256.0], 'element 1 is 256.0, which u8 cannot hold'),
        ('bool', np.int64([1, 2]), 'element 1 is 2, which bool cannot hold'),
        ('bool', [0.5, 1], 'element 0 is 0.5, which bool cannot hold'),
        ('f32', [1e39, 1], r'element 0 is 1e\+39, which f32 cannot hold'),
        ('f16', np.int64([0, 70000]), 'element 1 is 70000, which f16 cannot hold'),
        ('bf16', [1, 3.4e38 * 2], 'element 1 is .*which bf16 cannot hold'),
        ('f32', np.uint64([0, 1 << 63]), '2\\^63'),
        ('f32', np.complex64([0, 1]), "NumPy's complex64, which are of no dtype"),
        ('f32', np.array(['0', '1']), 'of no dtype'),
        ('f32', np.array([0, 1]).astype('M8[D]'), 'of no dtype'),
        ('f32', np.array([0, None]), "NumPy's object"),
    ],
)
def test_what_the_input_cannot_hold_is_named(to, array, said):
    array = np.asarray(array)
    for each in (array, array[::-1][::-1]):
        with pytest.raises(pd.DtypeError, match="input 'x'.*" + said):
            echo(to, 2)(x=each)


def test_the_bounds_of_integers_are_held():
    for to, low, high in (('i32', -(2**31), 2**31 - 1), ('u8', 0, 255), ('i64', -(2**53), 2**53)):
        for of in ('i8', 'f8'):
            made = echo(to, 2)(x=np.array([low, high], of))['y']
            assert made.tolist() == [low, high]


def test_a_large_array_is_looked_at_to_its_end():
    array = np.zeros(100_003)
    for bad in (0, 4096, 65_537, 100_002):
        array[:] = 1
        array[bad] = 1e300
        with pytest.raises(pd.DtypeError, match=rf'element {bad} is 1e\+300'):
            echo('f32', array.shape)(x=array)
        array[bad] = np.inf
        assert np.asarray(echo('f32', array.shape)(x=array)['y'])[bad] == np.inf


def test_the_shape_is_told_before_anything_is_converted():
    program = echo('f32', (2, 3))
    with pytest.raises(pd.ShapeError, match=r"input 'x' is f32\[2,3\], not f64\[3,2\]"):
        program(x=np.zeros((3, 2)))
    assert program.report['converted_feeds'] == 0


def test_a_strict_program_takes_dtype_and_layout_alone():
    program = echo('f32', (2, 3), strict=True)
    assert program(x=np.ones((2, 3), np.float32))['y'].tolist() == [[1] * 3] * 2
    with pytest.raises(pd.DtypeError, match=r"is f32\[2,3\], not f64\[2,3\]\nhint: array.astype\('float32'\), or strict=False"):
        program(x=np.ones((2, 3)))
    with pytest.raises(pd.DtypeError, match='of no dtype'):
        program(x=np.ones((2, 3), np.int16))
    with pytest.raises(pd.ArgumentError, match='do not lie densely'):
        program(x=np.ones((3, 2), np.float32).T)
    assert program(x=[[1, 2, 3], [4, 5, 6]])['y'].tolist() == [[1, 2, 3], [4, 5, 6]]

    @pd.function(x=('f32', ['n']), extents={'n': (1, 9, pd.multiples_of(4))}, options={'strict': True})
    def double(x):
        return x * 2

    assert double(np.ones(3, np.float32)).tolist() == [2] * 3
    with pytest.raises(pd.DtypeError, match='strict=False'):
        double(np.ones(3))


def test_the_cost_is_counted_and_no_conversion_is_none():
    program = echo('f32', (4, 8))
    program(x=np.ones((4, 8), np.float32))
    program(x=pd.Tensor(np.ones((4, 8), np.float32)))
    assert [program.report[key] for key in ('converted_feeds', 'converted_bytes', 'convert_milliseconds')] == [0, 0, 0]
    for _ in range(3):
        program(x=np.ones((4, 8)))
    assert [program.report[key] for key in ('converted_feeds', 'converted_bytes')] == [3, 3 * 4 * 8 * 4]
    assert program.report['convert_milliseconds'] > 0


def test_converted_memory_is_not_used_again_while_a_result_is_there():
    """A result may be the feed itself."""
    program = echo('f32', 1000)
    results = [program(x=np.full(1000, float(i)))['y'] for i in range(5)]
    assert [float(np.asarray(each)[999]) for each in results] == [0, 1, 2, 3, 4]


def test_kept_feeds_stay_what_they_were():
    with pd.Graph() as graph:
        graph.fetch('sum', graph.input('a', 'f32', 3) + graph.input('b', 'f32', 3))
    program = pd.Program(graph)
    program(a=np.ones(3), b=np.zeros(3))
    assert program.run({'b': np.full(3, 2)}, keep=True)['sum'].tolist() == [3] * 3
    assert program.run({'a': np.full(3, 5.0)}, keep=True)['sum'].tolist() == [7] * 3


def test_parameters_and_initial_values_take_what_feeds_take():
    with pd.Graph() as graph:
        graph.fetch('y', graph.parameter('w', 'f32', (2, 3), initial=np.arange(6.0).reshape(3, 2).T) * 1)
    parameters = pd.Parameters(graph)
    np.testing.assert_array_equal(np.asarray(parameters['w']), np.arange(6.0).reshape(3, 2).T)
    parameters['w'] = np.arange(6).reshape(2, 3)[::-1]
    np.testing.assert_array_equal(np.asarray(parameters['w']), np.arange(6).reshape(2, 3)[::-1])
    with pytest.raises(pd.ShapeError, match=r"parameter 'w' is f32\[2,3\], not i64\[3,2\]"):
        parameters['w'] = np.zeros((3, 2), int)


def test_a_function_of_sizes_converts():
    @pd.function(x=('f32', ['n', 2]), y=('i64', ['n']), extents={'n': (1, 9, pd.multiples_of(4))})
    def rows(x, y):
        return x * y.reshape(-1, 1).astype('f32')

    for n in (3, 4):
        x, y = np.random.default_rng(n).standard_normal((2, n)).T, np.arange(n, dtype=np.uint8)
        np.testing.assert_allclose(np.asarray(rows(x, y)), x * y[:, None], rtol=1e-6)


def test_constants_of_any_strides():
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (2, 3))
        graph.fetch('y', x + np.arange(6, dtype=np.float32).reshape(3, 2).T)
    made = pd.Program(graph)(x=np.zeros((2, 3)))['y']
    np.testing.assert_array_equal(np.asarray(made), np.arange(6).reshape(3, 2).T)


def test_what_numpy_makes_an_array_of():
    """pandas' frames: __array__, and elements of Python's where columns differ."""

    class Frame:
        def __init__(self, array):
            self.array = array

        def __array__(self, dtype=None, copy=None):
            return np.asarray(self.array, dtype)

    mixed = np.array([[1, 0.5, True], [2, 0.25, False]], dtype=object)
    for given in (mixed, Frame(mixed), Frame(np.asfortranarray(np.float64([[1, 0.5, 1], [2, 0.25, 0]])))):
        assert echo('f32', (2, 3))(x=given)['y'].tolist() == [[1, 0.5, 1], [2, 0.25, 0]]
    assert echo('i64', 2)(x=Frame(np.array([1, 2], dtype=object)))['y'].tolist() == [1, 2]
    with pytest.raises(pd.DtypeError, match='0.5, which i64 cannot hold'):
        echo('i64', (2, 3))(x=mixed)
