# SPDX-License-Identifier: Apache-2.0
"""Batches of a data set: shuffled by a seed, sorted into buckets by length, made ahead, gone on with anywhere."""

from .._paoding import split_at_random as split
from ._loader import DataLoader
from ._padding import padded, stacked

__all__ = ['DataLoader', 'padded', 'split', 'stacked']
