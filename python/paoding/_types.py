# SPDX-License-Identifier: Apache-2.0
"""What arguments may be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Union

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._paoding import Buckets, DType, Initializer, Tensor, Value

# Beside a Value a number or an array becomes a constant.
ValueLike: TypeAlias = Union['Value', 'Tensor', 'NDArray[Any]', Sequence[Any], float]
Ints: TypeAlias = Union[int, Sequence[int]]
# Bounds of an extent and its buckets; None: 1 or more.
ExtentLike: TypeAlias = Union[
    'Buckets', tuple[int, Union[int, None]], tuple[int, Union[int, None], Union['Buckets', None]], None
]
# A parameter's first value.
Initial: TypeAlias = Union[
    'Initializer', 'NDArray[Any]', 'Tensor', Callable[[tuple[int, ...], 'DType', int], Any], None
]
