# SPDX-License-Identifier: Apache-2.0
"""Which graph a layer declares its parameters in."""

from __future__ import annotations

from .._paoding import Graph, zeros


def graph_of(given: Graph | None) -> Graph:
    """The given one, or that of the `with` around the call. ArgumentError where there is neither."""
    return zeros((), graph=given).graph if given is None else given
