# SPDX-License-Identifier: Apache-2.0
"""Random numbers: a seed from PyTorch's generator for each call, and our Philox for the elements. torch.manual_seed makes
calls repeat, and bits differ from eager mode's, as those of other compilers do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ... import _paoding, ops
from ..._paoding import DType, Value
from ._table import BOOLS, FLOATS, Making, NotTaken, cast, name_of, overloads, takes

aten = torch.ops.aten


def _draw(m: Making, op: str, shape: Sequence[int], streams: int = 1, **attributes: Any) -> Value:
    stream = m.stream()
    for _ in range(streams - 1):
        m.stream()
    count = math.prod(shape)
    index = ops.reshape(_paoding.iota((count,), 0, DType.i64, m.graph), tuple(shape))
    run = m.full(0, DType.i64)
    return _paoding.call(op, index, run, m.seed(), stream=stream, **attributes)[0]


def _chance(m: Making, shape: Sequence[int], probability: float) -> Value:
    if not 0 <= probability <= 1:
        raise NotTaken(f'a probability of {probability}')
    return _draw(m, 'random_bernoulli', shape, probability=float(probability))


@takes(aten.native_dropout.default, dtypes=FLOATS | BOOLS)
def _(m: Making, x: Value, probability: float, train: bool | None) -> list[Value]:
    if train is False or probability == 0:
        return [x, m.full(True, DType.bool, x.shape)]
    is_kept = _chance(m, x.shape, 1 - probability)
    scale = 0.0 if probability == 1 else 1 / (1 - probability)
    wide_x = x if x.dtype in (DType.f32, DType.f64) else cast(x, DType.f32)
    kept = wide_x * cast(is_kept, wide_x.dtype) * m.full(scale, wide_x.dtype)
    return [cast(kept, x.dtype), is_kept]


@takes(*overloads(aten.bernoulli, 'p'), dtypes=FLOATS)
def _(m: Making, x: Value, probability: float = 0.5, *, generator: Any = None) -> Value:
    if generator is not None:
        raise NotTaken('a generator of its own')
    return cast(_chance(m, x.shape, probability), m.dtype)


def _numbers(op: str, streams: int, of_shape: Sequence[Any], of_tensor: Sequence[Any]) -> None:
    def draw(m: Making, shape: Sequence[int], options: dict[str, Any]) -> Value:
        if m.is_elsewhere(options.get('device')):
            raise NotTaken('a tensor of another device')
        return _draw(m, op, shape, streams, dtype=name_of(m.dtype))

    @takes(*of_shape, dtypes=FLOATS)
    def by_shape(m: Making, shape: Sequence[int], **options: Any) -> Value:
        return draw(m, shape, options)

    @takes(*of_tensor, dtypes=FLOATS)
    def by_tensor(m: Making, x: Value, **options: Any) -> Value:
        return draw(m, x.shape, options)


_numbers('random_uniform', 1, overloads(aten.rand, 'default'), overloads(aten.rand_like, 'default'))
_numbers('random_normal', 2, overloads(aten.randn, 'default'), overloads(aten.randn_like, 'default'))
