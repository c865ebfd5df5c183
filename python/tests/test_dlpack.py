# SPDX-License-Identifier: Apache-2.0
"""What is taken over by DLPack: whose it is, how long it stays, and capsules that say what cannot be."""

import ctypes
import gc
import threading

import numpy as np
import pytest
from dlpack_arrays import CPU, Array, Kind, _new

import paoding as pd


class Anew:
    """An array whose capsule alone has its memory: made for it, and written over when it is let go of."""

    def __init__(self, values):
        self.values, self.made, self.freed = np.asarray(values), 0, 0

    def __dlpack_device__(self):
        return CPU, 0

    def __dlpack__(self):
        self.made += 1
        return Array(self.values.copy(), kind=Kind.CPU, on_free=self.free).__dlpack__()

    def free(self, array):
        self.freed += 1
        array[...] = -1


def doubling(*shape):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.f32, shape) * 2)
    return pd.Program(graph)


def test_what_only_a_capsule_holds_stays_while_it_is_read():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = Anew(values)
    program = doubling(3, 4)
    for turn in range(1, 4):
        np.testing.assert_array_equal(program(x=given)['y'].numpy(), 2 * values)
        assert given.made == turn
    tensor = pd.Tensor(given)
    gc.collect()
    np.testing.assert_array_equal(tensor.numpy(), values)
    view = tensor.numpy()
    del tensor
    np.testing.assert_array_equal(view, values)
    del view
    gc.collect()
    assert given.freed == given.made == 4  # and no longer


def test_everything_that_takes_arrays_keeps_them():
    values = np.array([1.5, 2.5, 3.5], np.float32)
    given = Anew(values)
    with pd.Graph() as graph:
        w = graph.parameter('w', pd.f32, 3, initial=given)
        graph.fetch('y', w * given + pd.constant(given))
    parameters = pd.Parameters(graph)
    program = pd.Program(graph, parameters)
    np.testing.assert_array_equal(program()['y'].numpy(), values * values + values)
    parameters['w'] = given
    np.testing.assert_array_equal(parameters['w'].numpy(), values)
    pd.restore(parameters, {'w': given})
    np.testing.assert_array_equal(parameters['w'].numpy(), values)


def test_a_capsule_is_taken_once_and_says_so():
    exported = Array(np.ones(3, np.float32), kind=Kind.CPU)
    capsule = exported.__dlpack__()

    class Same:
        def __dlpack__(self, **_):
            return capsule

    tensor = pd.Tensor(Same())
    assert "used_dltensor" in repr(capsule)
    with pytest.raises(pd.ArgumentError, match='taken before'):
        pd.Tensor(Same())
    assert exported.holders == 1
    del tensor
    assert exported.holders == 0


def test_memory_is_let_go_of_in_whatever_thread_is_the_last():
    given = Anew(np.arange(4, dtype=np.float32))
    tensors = [pd.Tensor(given) for _ in range(8)]
    thread = threading.Thread(target=tensors.clear)
    thread.start()
    thread.join()
    assert given.freed == 8


class Versioned:
    """DLPack from version 1 on, by hand, of f32 [2]."""

    class Managed(ctypes.Structure):
        _fields_ = [
            ('version', ctypes.c_uint32 * 2),
            ('owner', ctypes.c_void_p),
            ('deleter', ctypes.c_void_p),
            ('flags', ctypes.c_uint64),
            ('data', ctypes.c_void_p),
            ('device', ctypes.c_int32 * 2),
            ('rank', ctypes.c_int32),
            ('dtype', ctypes.c_uint8 * 4),
            ('shape', ctypes.c_void_p),
            ('strides', ctypes.c_void_p),
            ('offset', ctypes.c_uint64),
        ]

    def __init__(self, array, **changed):
        self.array, self.asked = array, []
        self.shape = (ctypes.c_int64 * 1)(2)
        fields = {
            'version': (1, 1),
            'data': array.ctypes.data,
            'device': (CPU, 0),
            'rank': 1,
            'dtype': (2, 32, 1, 0),
            'shape': ctypes.addressof(self.shape),
            **changed,
        }
        arrays = {'version': ctypes.c_uint32 * 2, 'device': ctypes.c_int32 * 2, 'dtype': ctypes.c_uint8 * 4}
        self.managed = self.Managed(**{k: arrays[k](*v) if k in arrays else v for k, v in fields.items()})

    def __dlpack__(self, *, max_version=None):
        self.asked.append(max_version)
        return _new(ctypes.addressof(self.managed), b'dltensor_versioned', None)


def test_arrays_of_version_1_are_read_and_nobody_writes_to_those_that_are_read_only():
    array = np.array([3, 4], np.float32)
    given = Versioned(array)
    tensor = pd.Tensor(given)
    assert given.asked == [(1, 0)] and tensor.tolist() == [3, 4]
    tensor.numpy()[0] = 7
    assert array[0] == 7  # the same memory
    tensor = pd.Tensor(Versioned(array, flags=1))
    tensor.numpy()[0] = 9
    assert array[0] == 7


@pytest.mark.parametrize(
    ('changed', 'error', 'words'),
    [
        ({'shape': None}, pd.ArgumentError, 'says 1 axes and has no shape'),
        ({'rank': -1}, pd.ArgumentError, 'says -1 axes'),
        ({'rank': 9}, pd.ShapeError, 'more than 8 axes'),
        ({'data': None}, pd.ArgumentError, 'its memory was freed'),
        ({'version': (2, 0)}, pd.ArgumentError, 'DLPack of version 2, needed is 1 or 0'),
        ({'dtype': (5, 64, 1, 0)}, pd.DtypeError, 'code 5 with 64 bits are of no dtype'),
        ({'dtype': (2, 32, 4, 0)}, pd.DtypeError, 'of no dtype'),
    ],
)
def test_a_capsule_that_says_what_cannot_be_is_refused(changed, error, words):
    with pytest.raises(error, match=words):
        pd.Tensor(Versioned(np.zeros(2, np.float32), **changed))


def test_an_extent_below_0_is_refused():
    given = Versioned(np.zeros(2, np.float32))
    given.shape[0] = -2
    with pytest.raises(pd.ShapeError, match='extent -2'):
        pd.Tensor(given)


def test_an_offset_counts():
    given = Versioned(np.array([1, 2, 3], np.float32), offset=4)
    assert pd.Tensor(given).tolist() == [2, 3]


@pytest.mark.parametrize('error', [KeyboardInterrupt, SystemExit, ZeroDivisionError, BufferError, TypeError])
def test_what_dlpack_raises_is_raised(error):
    class Raises:
        def __dlpack__(self, **_):
            raise error('from __dlpack__')

    for take in (pd.Tensor, lambda given: doubling(3)(x=given)):
        with pytest.raises(error, match='from __dlpack__'):
            take(Raises())


def test_feeds_may_change_while_they_are_read():
    class Removes:
        def __dlpack__(self, **options):
            feeds.clear()
            gc.collect()
            return np.ones(3, np.float32).__dlpack__(**options)

    feeds = {'x': Removes()}
    np.testing.assert_array_equal(doubling(3).run(feeds)['y'].numpy(), [2, 2, 2])
    assert not feeds


def test_what_is_no_capsule_is_refused():
    class No:
        def __dlpack__(self, **_):
            return 5

    with pytest.raises(pd.ArgumentError, match='gives no DLPack of version 1 or 0'):
        pd.Tensor(No())
