# SPDX-License-Identifier: Apache-2.0
"""Arrays that speak DLPack's protocol and nothing else, on memory of NumPy's, which the pretended GPU takes for its own."""

import ctypes
import enum
import math
import os

import numpy as np

CPU, CUDA = 1, 2


class Kind(enum.IntEnum):
    """As PyTorch and JAX have it."""

    CPU = CPU
    CUDA = CUDA
    ROCM = 10


class _Device(ctypes.Structure):
    _fields_ = [('kind', ctypes.c_int32), ('index', ctypes.c_int32)]


class _Dtype(ctypes.Structure):
    _fields_ = [('code', ctypes.c_uint8), ('bits', ctypes.c_uint8), ('lanes', ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    _fields_ = [
        ('data', ctypes.c_void_p),
        ('device', _Device),
        ('rank', ctypes.c_int32),
        ('dtype', _Dtype),
        ('shape', ctypes.POINTER(ctypes.c_int64)),
        ('strides', ctypes.POINTER(ctypes.c_int64)),
        ('offset', ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    pass


_Deleter = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Managed))
_Managed._fields_ = [('tensor', _Tensor), ('owner', ctypes.c_void_p), ('deleter', _Deleter)]

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

_CODES = {'i': 0, 'u': 1, 'f': 2, 'b': 6}
_LETTERS = {code: letter for letter, code in _CODES.items()}
_kept: list[object] = []  # for good: what is called to let go is among it


class Array:
    """`array` as something on a GPU."""

    def __init__(self, array, kind=Kind.CUDA, index=0, strides=None, is_freed=False, on_free=lambda array: None):
        self.array, self.kind, self.index, self.is_freed, self.on_free = array, kind, index, is_freed, on_free
        self.strides = strides or [each // array.itemsize for each in array.strides]
        self.streams = []
        self.holders = 0

    def __dlpack_device__(self):
        return self.kind, self.index

    def __dlpack__(self, *, stream=None):
        self.streams.append(stream)
        rank = self.array.ndim
        shape = (ctypes.c_int64 * rank)(*self.array.shape)
        strides = (ctypes.c_int64 * rank)(*self.strides)
        dtype = _Dtype(_CODES[self.array.dtype.kind], 8 * self.array.itemsize, 1)
        data = None if self.is_freed else self.array.ctypes.data
        made = _Managed(_Tensor(data, _Device(self.kind, self.index), rank, dtype, shape, strides, 0), None)

        def let_go(_):
            self.holders -= 1
            self.on_free(self.array)

        made.deleter = _Deleter(let_go)
        self.holders += 1
        _kept.append((made, shape, strides, self))
        return _new(ctypes.addressof(made), b'dltensor', None)


def read(exported, stream=1):
    """What is in the memory of another's array, which it says is a GPU's, as work in `stream` sees it."""
    assert exported.__dlpack_device__() == (CUDA, 0)
    capsule = exported.__dlpack__(stream=stream)
    tensor = ctypes.cast(_pointer(capsule, b'dltensor'), ctypes.POINTER(_Managed)).contents.tensor
    assert (tensor.device.kind, tensor.device.index, tensor.offset) == (CUDA, 0, 0)
    shape = [tensor.shape[axis] for axis in range(tensor.rank)]
    if tensor.strides:
        assert [tensor.strides[axis] for axis in range(tensor.rank)] == [math.prod(shape[axis + 1:]) for axis in range(tensor.rank)]
    dtype = np.dtype(f'{_LETTERS[tensor.dtype.code]}{tensor.dtype.bits // 8}')
    made = np.empty(shape, dtype)
    driver = ctypes.CDLL(os.environ['PAODING_CUDA_PATH'] + '/libcuda.so.1')
    stream = ctypes.c_void_p(stream)
    assert driver.cuMemcpyDtoHAsync_v2(ctypes.c_void_p(made.ctypes.data), ctypes.c_uint64(tensor.data), ctypes.c_size_t(made.nbytes), stream) == 0
    assert driver.cuStreamSynchronize(stream) == 0
    return made
