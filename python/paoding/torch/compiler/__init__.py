# SPDX-License-Identifier: Apache-2.0
"""paoding as a backend of torch.compile: torch.compile(model, backend='paoding'), for inference and training."""

from ._backend import backend
from ._explain import Explanation, GraphReport, Left, explain
from ._recurrent import install

__all__ = ['Explanation', 'GraphReport', 'Left', 'backend', 'explain']

install()
