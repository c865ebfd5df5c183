# SPDX-License-Identifier: Apache-2.0
"""paoding inside PyTorch: a backend of torch.compile, LSTM, GRU and RNN in place of torch.nn's, and graphs as functions.

import paoding.torch

lstm = paoding.torch.LSTM(80, 256, num_layers=2)        # constructor, state_dict and call as torch.nn.LSTM's
paoding.torch.accelerate(model)                         # every torch.nn.LSTM, GRU and RNN of a model
paoding.torch.restore(model)                            # and back
lerp = paoding.torch.function(graph)                    # a graph, with its gradient
fast = torch.compile(model, backend='paoding')          # any model; what does not fit stays PyTorch's
print(paoding.torch.explain(model, x))                  # and why
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ._accelerate import Report, accelerate, restore
from ._faults import synchronize
from ._function import function
from ._modules import GRU, LSTM, RNN

if TYPE_CHECKING:
    from .compiler import Explanation

__all__ = ['GRU', 'LSTM', 'RNN', 'Report', 'accelerate', 'explain', 'function', 'restore', 'synchronize']


def explain(model: Callable[..., Any], *args: Any, **kwargs: Any) -> Explanation:
    """Calls the model once, compiled by torch.compile(model, backend='paoding'), and its backward pass if its results have
    one, and tells what became of it: its graphs, what paoding computes of each, what stays PyTorch's, why, and on which line
    of yours. The model is not changed, but for what a call does to it; gradients that were there are put back."""
    from .compiler import explain as of_compiler  # torch._dynamo takes seconds to import

    return of_compiler(model, *args, **kwargs)
