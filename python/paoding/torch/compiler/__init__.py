# SPDX-License-Identifier: Apache-2.0
"""paoding as a backend of torch.compile: torch.compile(model, backend='paoding'), for inference and training."""

from ._backend import backend
from ._compare import Comparison, Differing, compare
from ._explain import Explanation, GraphReport, Left, explain
from ._export import Exported, export
from ._recurrent import install

__all__ = [
    'Comparison', 'Differing', 'Explanation', 'Exported', 'GraphReport', 'Left', 'backend', 'compare', 'explain', 'export',
]  # fmt: skip

install()
