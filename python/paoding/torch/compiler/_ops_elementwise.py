# SPDX-License-Identifier: Apache-2.0
"""Elementwise ops: arithmetic, comparisons, functions and choices, with PyTorch's promotion of dtypes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ... import ops
from ..._paoding import DType, Value
from ._table import (
    ANY,
    BOOLS,
    FLOATS,
    INTEGERS,
    NUMBERS,
    Making,
    NotTaken,
    cast,
    check_number,
    computed,
    overloads,
    promoted,
    takes,
    wide,
)

aten = torch.ops.aten


def _arithmetic(m: Making, op: Callable[..., Value], *given: Any) -> Value:
    """In the promoted dtype, which is the result's."""
    if m.dtype == DType.bool:
        raise NotTaken('arithmetic of bools')
    dtype = computed(m, given)
    return cast(op(*(m.value(each, dtype) for each in given)), m.dtype)


def _scaled(m: Making, b: Any, alpha: Any) -> Any:
    if alpha == 1:
        return b
    if not isinstance(b, Value):
        return b * alpha
    dtype = m.dtype
    check_number(alpha, dtype)
    return ops.mul(cast(b, dtype), m.full(alpha, dtype))


def _exact_sum(m: Making, alpha: Any) -> None:
    if alpha != 1 and m.dtype in (DType.f16, DType.bf16):
        raise NotTaken('alpha of 16-bit floats')


@takes(aten.add.Tensor, aten.add.Scalar)
def _(m: Making, a: Any, b: Any, *, alpha: Any = 1) -> Value:
    if m.dtype == DType.bool and alpha == 1:
        return ops.logical_or(m.value(a, DType.bool), m.value(b, DType.bool))
    _exact_sum(m, alpha)
    return _arithmetic(m, ops.add, a, _scaled(m, b, alpha))


@takes(aten.sub.Tensor, aten.sub.Scalar)
def _(m: Making, a: Any, b: Any, *, alpha: Any = 1) -> Value:
    _exact_sum(m, alpha)
    return _arithmetic(m, ops.sub, a, _scaled(m, b, alpha))


@takes(aten.rsub.Scalar, aten.rsub.Tensor)
def _(m: Making, a: Any, b: Any, alpha: Any = 1) -> Value:
    _exact_sum(m, alpha)
    return _arithmetic(m, ops.sub, b, _scaled(m, a, alpha))


@takes(aten.mul.Tensor, aten.mul.Scalar)
def _(m: Making, a: Any, b: Any) -> Value:
    if m.dtype == DType.bool:
        return ops.logical_and(m.value(a, DType.bool), m.value(b, DType.bool))
    return _arithmetic(m, ops.mul, a, b)


@takes(aten.div.Tensor, aten.div.Scalar)
def _(m: Making, a: Any, b: Any) -> Value:
    return _arithmetic(m, ops.div, a, b)


def _divides(m: Making, b: Any) -> None:
    """Integers divided by 0 are an error there, whatever the elements are."""
    if m.dtype in INTEGERS and (isinstance(b, Value) or b == 0):
        raise NotTaken('integers divided by a tensor')


@takes(*overloads(aten.div, 'Tensor_mode', 'Scalar_mode'))
def _(m: Making, a: Any, b: Any, *, rounding_mode: str | None = None) -> Value:
    if rounding_mode is None:
        return _arithmetic(m, ops.div, a, b)
    _divides(m, b)
    if rounding_mode == 'floor':
        return _arithmetic(m, ops.floor_divide, a, b)
    if m.dtype in FLOATS:
        return _arithmetic(m, lambda x, y: ops.trunc(ops.div(x, y)), a, b)
    return _arithmetic(m, lambda x, y: ops.floor_divide(x - ops.fmod(x, y), y), a, b)


@takes(*overloads(aten.fmod, 'Tensor', 'Scalar'))
def _(m: Making, a: Any, b: Any) -> Value:
    _divides(m, b)
    return _arithmetic(m, ops.fmod, a, b)


@takes(*overloads(aten.floor_divide, 'default', 'Scalar'))
def _(m: Making, a: Any, b: Any) -> Value:
    _divides(m, b)
    return _arithmetic(m, ops.floor_divide, a, b)


@takes(aten.remainder.Scalar, aten.remainder.Tensor)
def _(m: Making, a: Any, b: Any) -> Value:
    _divides(m, b)
    return _arithmetic(m, ops.remainder, a, b)


@takes(*overloads(aten.fmax, 'default'))
def _(m: Making, a: Any, b: Any) -> Value:
    return _arithmetic(m, lambda x, y: _unless_nan(x, y, ops.maximum), a, b)


@takes(*overloads(aten.fmin, 'default'))
def _(m: Making, a: Any, b: Any) -> Value:
    return _arithmetic(m, lambda x, y: _unless_nan(x, y, ops.minimum), a, b)


def _unless_nan(a: Value, b: Value, op: Callable[..., Value]) -> Value:
    if a.dtype not in FLOATS:
        return op(a, b)
    return ops.select(ops.isnan(a), b, ops.select(ops.isnan(b), a, op(a, b)))


@takes(aten.maximum.default)
def _(m: Making, a: Any, b: Any) -> Value:
    return _larger(m, a, b)


@takes(aten.minimum.default)
def _(m: Making, a: Any, b: Any) -> Value:
    return _smaller(m, a, b)


def _larger(m: Making, a: Any, b: Any) -> Value:
    return _arithmetic(m, ops.maximum, a, b)


def _smaller(m: Making, a: Any, b: Any) -> Value:
    return _arithmetic(m, ops.minimum, a, b)


@takes(*overloads(aten.clamp, 'default', 'Tensor'))
def _(m: Making, a: Value, min: Any = None, max: Any = None) -> Value:
    for bound in (min, max):
        if isinstance(bound, float) and math.isnan(bound):
            raise NotTaken('a bound that is NaN')
    if min is not None:
        a = _larger(m, a, min)
    return a if max is None else _smaller(m, a, max)


@takes(*overloads(aten.clamp_min, 'default', 'Tensor'))
def _(m: Making, a: Value, min: Any) -> Value:
    return _larger(m, a, min)


@takes(*overloads(aten.clamp_max, 'default', 'Tensor'))
def _(m: Making, a: Value, max: Any) -> Value:
    return _smaller(m, a, max)


# ---- powers ----


@takes(aten.pow.Tensor_Scalar)
def _(m: Making, a: Value, exponent: Any) -> Value:
    dtype = wide(m.dtype)
    a = cast(a, dtype)
    if m.dtype in INTEGERS:
        if exponent != int(exponent) or not 0 <= exponent <= 64:
            raise NotTaken(f'integers to the power of {exponent}')
        return a ** int(exponent)
    check_number(exponent, dtype)
    if exponent == 0.5:
        made = ops.sqrt(a)
    elif exponent == 2:
        made = ops.mul(a, a)
    elif exponent == 3:
        made = ops.mul(ops.mul(a, a), a)
    elif exponent == -1:
        made = ops.reciprocal(a)
    elif exponent == -0.5:
        made = ops.rsqrt(a)
    else:
        made = a ** m.full(exponent, dtype)
    return cast(made, m.dtype)


@takes(aten.pow.Tensor_Tensor, aten.pow.Scalar)
def _(m: Making, a: Any, b: Any) -> Value:
    if m.dtype not in FLOATS:
        raise NotTaken('integers to the power of a tensor')
    return _arithmetic(m, lambda x, y: x**y, a, b)


@takes(aten.exp2.default)
def _(m: Making, a: Value) -> Value:
    a = cast(a, wide(m.dtype))
    return cast(m.full(2, a.dtype) ** a, m.dtype)


# ---- comparisons ----


def _comparison(op: Callable[..., Value], *of: Any) -> None:
    @takes(*of)
    def compare(m: Making, a: Any, b: Any) -> Value:
        dtype = promoted(a, b)
        if isinstance(b, float) and math.isnan(b):
            raise NotTaken('a comparison with NaN')
        dtype = wide(dtype) if not isinstance(b, Value) else dtype
        if dtype == DType.bool:
            dtype = DType.i32
        return op(m.value(a, dtype), m.value(b, dtype))


_comparison(ops.equal, aten.eq.Tensor, aten.eq.Scalar)
_comparison(ops.not_equal, aten.ne.Tensor, aten.ne.Scalar)
_comparison(ops.less, aten.lt.Tensor, aten.lt.Scalar)
_comparison(ops.less_equal, aten.le.Tensor, aten.le.Scalar)
_comparison(ops.greater, aten.gt.Tensor, aten.gt.Scalar)
_comparison(ops.greater_equal, aten.ge.Tensor, aten.ge.Scalar)


def as_bool(m: Making, a: Value) -> Value:
    return a if a.dtype == DType.bool else ops.not_equal(a, m.full(0, a.dtype))


def _logical(op: Callable[..., Value], *of: Any) -> None:
    @takes(*of)
    def combine(m: Making, *given: Value) -> Value:
        return op(*(as_bool(m, each) for each in given))


_logical(ops.logical_and, aten.logical_and.default)
_logical(ops.logical_or, aten.logical_or.default)
_logical(ops.logical_xor, aten.logical_xor.default)
_logical(ops.logical_not, aten.logical_not.default)


def _bitwise(of_bools: Callable[..., Value], of_integers: Callable[..., Value], *of: Any) -> None:
    @takes(*of, dtypes=BOOLS | INTEGERS)
    def combine(m: Making, *given: Any) -> Value:
        op = of_bools if m.dtype == DType.bool else of_integers
        return op(*(m.value(each, m.dtype) for each in given))


for _name, _of_bools, _of_integers in (
    ('bitwise_and', ops.logical_and, ops.bitwise_and),
    ('bitwise_or', ops.logical_or, ops.bitwise_or),
    ('bitwise_xor', ops.logical_xor, ops.bitwise_xor),
    ('bitwise_not', ops.logical_not, ops.bitwise_not),
):
    _bitwise(_of_bools, _of_integers, *overloads(getattr(aten, _name), 'default', 'Tensor', 'Scalar'))


# ---- functions of one tensor ----


def _function(op: Callable[[Value], Value], *of: Any) -> None:
    """Integers and bools become the float that PyTorch gives."""

    @takes(*of)
    def apply(m: Making, a: Value) -> Value:
        return op(cast(a, m.dtype))


for _ours, _theirs in {
    ops.exp: aten.exp,
    ops.expm1: aten.expm1,
    ops.log: aten.log,
    ops.log1p: aten.log1p,
    ops.log2: aten.log2,
    ops.log10: aten.log10,
    ops.sqrt: aten.sqrt,
    ops.rsqrt: aten.rsqrt,
    ops.sin: aten.sin,
    ops.cos: aten.cos,
    ops.tan: aten.tan,
    ops.asin: aten.asin,
    ops.acos: aten.acos,
    ops.atan: aten.atan,
    ops.sinh: aten.sinh,
    ops.cosh: aten.cosh,
    ops.asinh: aten.asinh,
    ops.acosh: aten.acosh,
    ops.atanh: aten.atanh,
    ops.tanh: aten.tanh,
    ops.sigmoid: aten.sigmoid,
    ops.erf: aten.erf,
    ops.erfc: aten.erfc,
    ops.reciprocal: aten.reciprocal,
}.items():
    _function(_ours, _theirs.default)


@takes(*overloads(aten.atan2, 'default'))
def _(m: Making, a: Value, b: Value) -> Value:
    return _arithmetic(m, ops.atan2, a, b)


def _of_numbers(op: Callable[[Value], Value], *of: Any) -> None:
    @takes(*of, dtypes=NUMBERS)
    def apply(m: Making, a: Value) -> Value:
        return op(a)


_of_numbers(ops.neg, aten.neg.default)
_of_numbers(ops.abs, aten.abs.default)


def _rounding(op: Callable[[Value], Value], of: Any) -> None:
    @takes(of, dtypes=NUMBERS)
    def apply(m: Making, a: Value) -> Value:
        return op(a) if a.dtype in FLOATS else a


_rounding(ops.floor, aten.floor.default)
_rounding(ops.ceil, aten.ceil.default)
_rounding(ops.trunc, aten.trunc.default)
_rounding(ops.round, aten.round.default)


@takes(*overloads(aten.round, 'decimals'), dtypes=FLOATS)
def _(m: Making, a: Value, *, decimals: int = 0) -> Value:
    if decimals == 0:
        return ops.round(a)
    scale = m.full(10.0 ** abs(decimals), wide(a.dtype))
    wide_a = cast(a, scale.dtype)
    made = ops.round(wide_a * scale) / scale if decimals > 0 else ops.round(wide_a / scale) * scale
    return cast(made, a.dtype)


@takes(*overloads(aten.angle, 'default'), dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    """Of a real number: 0, or pi where it is below 0; NaN stays."""
    made = ops.select(ops.less(a, m.full(0, a.dtype)), m.full(math.pi, a.dtype), m.full(0, a.dtype))
    return ops.select(ops.isnan(a), a, made)


@takes(aten.sign.default, dtypes=FLOATS)
def _(m: Making, a: Value) -> Value:
    made = ops.sign(a)
    return ops.select(ops.equal(a, a), made, m.full(0, a.dtype))  # NaN gives 0 there


@takes(aten.isnan.default, dtypes=FLOATS | BOOLS)
def _(m: Making, a: Value) -> Value:
    return ops.isnan(a)


@takes(aten.isinf.default, dtypes=FLOATS | BOOLS)
def _(m: Making, a: Value) -> Value:
    return ops.isinf(a)


# ---- choices, copies, casts ----


@takes(aten.where.self, dtypes=ANY)
def _(m: Making, condition: Value, a: Value, b: Value) -> Value:
    return ops.select(as_bool(m, condition), cast(a, m.dtype), cast(b, m.dtype))


@takes(*overloads(aten.copy, 'default'), dtypes=ANY)
def _(m: Making, into: Value, a: Value, non_blocking: bool = False) -> Value:
    made = _checked_cast(m, a)
    return made if made.shape == into.shape else ops.expand(made, into.shape)


@takes(aten.clone.default, aten.lift_fresh_copy.default, dtypes=ANY)
def _(m: Making, a: Value, **_: Any) -> Value:
    return a


def _checked_cast(m: Making, a: Value) -> Value:
    if m.dtype == DType.bool:
        return as_bool(m, a)
    if m.dtype == DType.u8 and a.dtype not in BOOLS:
        raise NotTaken('a conversion to u8')
    return cast(a, m.dtype)


@takes(aten._to_copy.default, dtypes=ANY)
def _(m: Making, a: Value, *, device: Any = None, layout: Any = None, pin_memory: Any = None, **_: Any) -> Value:
    if m.is_elsewhere(device) or pin_memory:
        raise NotTaken('a copy to another device')
    return _checked_cast(m, a)


@takes(*overloads(torch.ops.prims.convert_element_type, 'default'), dtypes=ANY)
def _(m: Making, a: Value, dtype: Any) -> Value:
    return _checked_cast(m, a)
