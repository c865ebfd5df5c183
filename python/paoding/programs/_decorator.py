# SPDX-License-Identifier: Apache-2.0
"""pd.function: a function of arrays of any size, with or without a declaration of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from .._paoding import Parameters
from ..errors import ArgumentError
from ._function import Function, InputLike
from ._programs import ExtentsLike
from ._traced import TracedFunction


@overload
def function(given: Callable[..., Any], /) -> TracedFunction: ...


@overload
def function(
    *,
    static: Sequence[str] = (),
    floats: str = 'f32',
    parameters: Parameters | None = None,
    seed: int = 0,
    keep_at_most: int = 256,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[[Callable[..., Any]], TracedFunction]: ...


@overload
def function(
    *,
    static: Sequence[str] = (),
    floats: str = 'f32',
    extents: ExtentsLike | None = None,
    parameters: Parameters | None = None,
    seed: int = 0,
    keep_at_most: int = 256,
    pad_with: Mapping[str, float] | None = None,
    crop: bool = True,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    **inputs: InputLike,
) -> Callable[[Callable[..., Any]], Function]: ...


def function(
    given: Callable[..., Any] | None = None,
    /,
    *,
    static: Sequence[str] = (),
    floats: str = 'f32',
    extents: ExtentsLike | None = None,
    parameters: Parameters | None = None,
    seed: int = 0,
    keep_at_most: int = 256,
    pad_with: Mapping[str, float] | None = None,
    crop: bool = True,
    device: str | None = None,
    options: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> Any:
    """A decorator that makes a function of Values one of arrays of any size.

    `@pd.function`, alone or with options, makes a TracedFunction, which is traced for the dtypes and shapes that come.
    With inputs, `@pd.function(x=('f32', ['batch', 'time', 80]))`, it makes a Function: dtypes are as declared, extents
    have names, bounds and buckets, and arrays are padded to these. `options` are those of Program.

    >>> import numpy as np
    >>> @pd.function(a=('f32', ['n', 3]), b=('f32', ['n', 3]))
    ... def distances(a, b):
    ...     return ((a - b) ** 2).sum(axis=1) ** 0.5
    >>> for n in (1, 2):
    ...     print(distances(np.ones((n, 3), np.float32), np.ones((n, 3), np.float32)).tolist())
    [0.0]
    [0.0, 0.0]
    """
    chosen = dict(options or {})
    if device is not None:
        chosen['device'] = device
    common = {'parameters': parameters, 'seed': seed, 'keep_at_most': keep_at_most, **chosen}

    def made(of: Callable[..., Any]) -> Function | TracedFunction:
        if not inputs:
            if extents is not None or pad_with is not None or not crop:
                raise ArgumentError('function: extents, pad_with and crop are of inputs that are declared: x=(dtype, shape)')
            return TracedFunction(of, static=static, floats=floats, **common)
        if static or floats != 'f32':
            raise ArgumentError('function: static and floats are of functions whose inputs are not declared')
        return Function(of, inputs, extents=extents, pad_with=pad_with, crop=crop, **common)

    return made if given is None else made(given)
