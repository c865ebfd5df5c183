# SPDX-License-Identifier: Apache-2.0
"""paoding inside PyTorch: a backend of torch.compile, LSTM, GRU and RNN in place of torch.nn's, and graphs as functions.

import paoding.torch

lstm = paoding.torch.LSTM(80, 256, num_layers=2)        # constructor, state_dict and call as torch.nn.LSTM's
paoding.torch.accelerate(model)                         # every torch.nn.LSTM, GRU and RNN of a model
paoding.torch.restore(model)                            # and back
lerp = paoding.torch.function(graph)                    # a graph, with its gradient
fast = torch.compile(model, backend='paoding')          # any model; what does not fit stays PyTorch's
print(paoding.torch.explain(model, x))                  # and why
paoding.torch.export(model, (x,), 'model.pd')           # a file that runs without Python
print(paoding.torch.compare(model, (x,)))                # the first op whose result is not PyTorch's
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._accelerate import Report, accelerate, restore
from ._faults import synchronize
from ._function import function
from ._modules import GRU, LSTM, RNN

if TYPE_CHECKING:
    import torch

    from .compiler import Comparison, Explanation, Exported

__all__ = ['GRU', 'LSTM', 'RNN', 'Report', 'accelerate', 'compare', 'explain', 'export', 'function', 'restore', 'synchronize']


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Calls the model once, compiled by torch.compile(model, backend='paoding'), and its backward pass if its results have
    one, and tells what became of it: its graphs, what paoding computes of each, what stays PyTorch's, why, and on which line
    of yours. The model is not changed, but for what a call does to it; gradients that were there are put back."""
    from .compiler import explain as of_compiler  # torch._dynamo takes seconds to import

    return of_compiler(model, *args, **kwargs)


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    results: Sequence[str] | None = None,
    entry: str = 'run',
    batch: str = '',
    check: bool = True,
) -> Exported:
    """Writes a model, as model(*args, **kwargs) calls it, to a file that `paoding serve`, pd.Model and C++ run without Python or
    PyTorch, on a CPU or GPU.

    The model is in evaluation mode. `dynamic_shapes` says which sizes may vary, as in torch.export: by the name of an
    argument, or in their order, the axes; an axis has a name ('time'), ('time', minimum, maximum), or a torch.export.Dim.
    Sizes with one name are one size. The example has 2 or more of each. `results` names what the model gives (else the keys of
    its dict, or result, result1 ..); `entry` is the graph's name in the file, and `batch` the size whose
    rows know nothing of each other: the server answers requests together along it. Where `check` is, the file is run on the CPU beside
    the model with `args`.

    Errors: (argument) a model in training mode, sizes that do not fit, or results that differ by more than rounding does (f32:
    a thousandth of the largest number); (unsupported) torch.export cannot trace the model, it fixes a size that should vary, a
    call writes to a buffer, or ops are not paoding's: which, and on which lines of yours."""
    from .compiler import export as of_compiler

    return of_compiler(
        model,
        args,
        path,
        kwargs=kwargs,
        dynamic_shapes=dynamic_shapes,
        results=results,
        entry=entry,
        batch=batch,
        check=check,
    )


def compare(
    model: torch.nn.Module,
    args: Sequence[Any],
    *,
    kwargs: Mapping[str, Any] | None = None,
    path: str | os.PathLike[str] | None = None,
    tolerance: float | None = None,
    device: str = 'cpu',
    precision: str = 'f32',
) -> Comparison:
    """Runs a model, as model(*args, **kwargs) calls it, by PyTorch's ops and as the graph that export() would write of it, and
    holds the values of all nodes against each other, in their order: `first` of what comes back is the first that differs,
    with the op, the line of yours that called it, the layer, and both values.

    Values differ that are further apart than `tolerance`, relative to the largest number of PyTorch's (else f64 1e-9, f32 1e-3,
    f16 2e-2, bf16 6e-2, of `precision` where that is 'bf16' or 'f16'); integers and bools that are not equal. `path` is a file
    that export() wrote: its weights are taken in place of the model's. `device` is where the graph runs.

    Errors: as of export(), and (argument) a tolerance below 0, a file that has not the model's weights."""
    from .compiler import compare as of_compiler

    return of_compiler(
        model, args, kwargs=kwargs, path=path, tolerance=tolerance, device=device, precision=precision
    )
