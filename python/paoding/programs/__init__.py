# SPDX-License-Identifier: Apache-2.0
"""Programs of one model for many sizes: extents with names, buckets, and functions that make a program for every size
by themselves."""

from ._decorator import function
from ._function import Function
from ._programs import Programs
from ._traced import TracedFunction

__all__ = ['Function', 'Programs', 'TracedFunction', 'function']
