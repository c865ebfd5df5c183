# SPDX-License-Identifier: Apache-2.0
"""paoding as a backend of torch.compile: torch.compile(model, backend='paoding'), for inference and training."""

from ._backend import backend
from ._explain import Explanation, GraphReport, Left, explain
from ._export import Exported, export
from ._recurrent import install

__all__ = ['Explanation', 'Exported', 'GraphReport', 'Left', 'backend', 'explain', 'export']

install()
