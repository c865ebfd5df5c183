# SPDX-License-Identifier: Apache-2.0
"""Ops by the names, and with the arguments, that NumPy has for them."""

from __future__ import annotations

from collections.abc import Sequence

from . import ops
from ._paoding import Value, call_one
from ._types import ValueLike
from .ops import abs as absolute
from .ops import add, maximum, minimum
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
    'broadcast_to',
    'clip',
    'concatenate',
    'divide',
    'einsum',
    'expand_dims',
    'maximum',
    'minimum',
    'mod',
    'multiply',
    'negative',
    'pow',
    'power',
    'subtract',
    'swapaxes',
    'take',
    'take_along_axis',
    'transpose',
    'where',
]


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
