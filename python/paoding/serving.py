# SPDX-License-Identifier: Apache-2.0
"""Models in one file, also of functions that make a graph for every size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ._paoding import Graph, GraphText, Parameters, write_model_file
from .errors import ArgumentError
from .programs import Function

__all__ = ['save_model']

_MOST_GRAPHS = 1024


def save_model(
    path: str | os.PathLike[str],
    graphs: Mapping[str, Graph | GraphText | Function],
    parameters: Parameters | Mapping[str, Any] | None = None,
    *,
    model: str = '',
    batch: str = '',
    options: Mapping[str, str] | None = None,
    notes: Mapping[str, str] | None = None,
    files: Mapping[str, bytes] | None = None,
) -> None:
    """Writes graphs by entry point, and of `parameters` those that they read, into one file, which appears whole or not
    at all: for Model.load, `paoding serve` and C++.

    A graph is named `entry`, or where an entry point has several, by shape, `entry[batch=8,time=16]`. A
    GraphText with extents is one of every size. A pd.function stands for its graphs of every bucket of its extents, which have to be bounded, with its own parameters where none
    are given; its results have the names of the dict that it returns, or are `result0`, `result1` ..

    `batch` is the extent along which rows of inputs and results know nothing of each other: a Model takes any number of
    them, and the server answers requests together. `model` is its name; `options`, `notes` and `files` are kept with it.

    ArgumentError: a graph that Model.load would refuse, or that drops values as in training; a parameter without a
    value; a batch that no graph has, or that a result has no axis of; a function of more than 1024 buckets. FileError
    where the file cannot be written.

    >>> import os, tempfile, numpy as np
    >>> @pd.function(x=('f32', ['rows', 2]), extents={'rows': (1, 8, pd.powers_of_two())})
    ... def double(x):
    ...     return {'y': x * 2}
    >>> path = os.path.join(tempfile.mkdtemp(), 'double.pd')
    >>> pd.save_model(path, {'double': double}, batch='rows')
    >>> pd.Model.load(path)(x=np.ones((3, 2), np.float32))['y'].tolist()
    [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
    """
    written: dict[str, Graph | GraphText] = {}
    values: dict[str, Any] = {}
    for name, each in graphs.items():
        if isinstance(each, Function):
            written.update(_graphs_of(name, each))
            if parameters is None:
                values.update(each.parameters.items())
        else:
            written[name] = each
    write_model_file(
        path,
        written,
        values or None if parameters is None else parameters,
        model=model,
        batch=batch,
        options=dict(options or {}),
        notes=dict(notes or {}),
        files=dict(files or {}),
    )


def _graphs_of(entry: str, function: Function) -> dict[str, Graph]:
    extents = function.extents
    for name in extents.names:
        if extents.bounds(name)[1] is None:
            raise ArgumentError(
                f"save_model: '{entry}': {name} has no maximum, so there is no end of graphs\n"
                f"hint: extents={{'{name}': (1, 64, pd.powers_of_two())}}"
            )
    count = 1
    for name in extents.names:
        count *= len(extents.buckets(name))
    if count > _MOST_GRAPHS:
        raise ArgumentError(
            f"save_model: '{entry}' has {count} buckets, a graph for each; at most {_MOST_GRAPHS} are written\n"
            'hint: pd.multiples_of(n) and pd.powers_of_two() make fewer'
        )
    made = {}
    for sizes in extents.every_bucket():
        text = ','.join(f'{name}={size}' for name, size in sizes.items())
        made[f'{entry}[{text}]' if text else entry] = function.graph(**sizes)
    return made
