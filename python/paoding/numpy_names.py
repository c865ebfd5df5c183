# SPDX-License-Identifier: Apache-2.0
"""Ops by the names, and with the arguments, that NumPy has for them."""

from __future__ import annotations

from collections.abc import Sequence

from . import ops
from ._paoding import DType, Value, call_one, constant
from ._types import Ints, ValueLike
from .ops import abs as absolute
from .ops import acos as arccos
from .ops import acosh as arccosh
from .ops import add, maximum, minimum
from .ops import asin as arcsin
from .ops import asinh as arcsinh
from .ops import atan as arctan
from .ops import atan2 as arctan2
from .ops import atanh as arctanh
from .ops import div as divide
from .ops import expand as broadcast_to
from .ops import gather as take
from .ops import gather_elements as take_along_axis
from .ops import max as amax
from .ops import min as amin
from .ops import mul as multiply
from .ops import neg as negative
from .ops import remainder as mod
from .ops import select as where
from .ops import sub as subtract
from .ops import unsqueeze as expand_dims

__all__ = [
    'absolute',
    'add',
    'amax',
    'amin',
    'arccos',
    'arccosh',
    'arcsin',
    'arcsinh',
    'arctan',
    'arctan2',
    'arctanh',
    'argmax',
    'argmin',
    'broadcast_to',
    'clip',
    'concatenate',
    'cumprod',
    'cumsum',
    'divide',
    'einsum',
    'expand_dims',
    'maximum',
    'mean',
    'minimum',
    'mod',
    'multiply',
    'negative',
    'pow',
    'power',
    'prod',
    'std',
    'subtract',
    'sum',
    'swapaxes',
    'take',
    'take_along_axis',
    'transpose',
    'var',
    'where',
]


def _value(a: ValueLike) -> Value:
    return a if isinstance(a, Value) else constant(a)


def sum(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """The sum over `axis`, of all without one; an i64 of bools and of u8."""
    return _value(a).sum(axis, keepdims)


def prod(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """The product over `axis`, of all without one; an i64 of bools and of u8."""
    return _value(a).prod(axis, keepdims)


def mean(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """The mean over `axis`, of all without one; an f32 of integers and bools."""
    return _value(a).mean(axis, keepdims)


def var(a: ValueLike, axis: Ints | None = None, keepdims: bool = False, correction: int = 0) -> Value:
    """sum((a - mean)^2) / (count - correction) over `axis`; an f32 of integers and bools."""
    return _value(a).var(axis, keepdims, correction=correction)


def std(a: ValueLike, axis: Ints | None = None, keepdims: bool = False, correction: int = 0) -> Value:
    """The square root of var()."""
    return _value(a).std(axis, keepdims, correction=correction)


def argmax(a: ValueLike, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the largest element along `axis` is, the first of several; in a as one row without an axis."""
    return _value(a).argmax(axis, keepdims)


def argmin(a: ValueLike, axis: int | None = None, keepdims: bool = False) -> Value:
    """Where the smallest element along `axis` is, the first of several; in a as one row without an axis."""
    return _value(a).argmin(axis, keepdims)


def _summable(a: ValueLike) -> ValueLike:
    return a.astype('i64') if isinstance(a, Value) and a.dtype in (DType.bool, DType.u8) else a


def cumsum(a: ValueLike, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    """Running sums along `axis`; an i64 of bools and of u8."""
    return ops.cumsum(_summable(a), axis, exclusive, reverse)


def cumprod(a: ValueLike, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    """Running products along `axis`; an i64 of bools and of u8."""
    return ops.cumprod(_summable(a), axis, exclusive, reverse)


def transpose(a: Value, axes: Sequence[int] | None = None) -> Value:
    """The axes in another order; reversed when none is given."""
    return a.transpose(*(axes or ()))


def einsum(formula: str, *operands: ValueLike) -> Value:
    """The sum of products that the formula names: einsum('bij,bjk->bik', a, b)."""
    return call_one('einsum', operands, {'formula': formula})


def swapaxes(a: Value, axis1: int, axis2: int) -> Value:
    """a with two axes exchanged."""
    return ops.swap_axes(a, axis1, axis2)


def concatenate(values: Sequence[ValueLike], axis: int = 0) -> Value:
    """The values one after the other along `axis`."""
    return ops.concat(values, axis)


def pow(a: Value, b: ValueLike) -> Value:
    """a^b; a whole b in [0, 64] serves integers too."""
    return a**b


power = pow


def clip(a: Value, min: ValueLike | None = None, max: ValueLike | None = None) -> Value:
    """a, but at least `min` and at most `max`; max where they cross."""
    if min is not None:
        a = ops.maximum(a, min)
    return a if max is None else ops.minimum(a, max)
