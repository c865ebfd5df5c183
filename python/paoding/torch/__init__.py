# SPDX-License-Identifier: Apache-2.0
"""paoding inside PyTorch: LSTM, GRU and RNN in place of torch.nn's, and graphs as differentiable functions.

import paoding.torch

lstm = paoding.torch.LSTM(80, 256, num_layers=2)        # constructor, state_dict and call as torch.nn.LSTM's
paoding.torch.accelerate(model)                         # every torch.nn.LSTM, GRU and RNN of a model
lerp = paoding.torch.function(graph)                    # a graph, with its gradient
"""

from ._accelerate import Report, accelerate
from ._faults import synchronize
from ._function import function
from ._modules import GRU, LSTM, RNN

__all__ = ['GRU', 'LSTM', 'RNN', 'Report', 'accelerate', 'function', 'synchronize']
