# SPDX-License-Identifier: Apache-2.0
"""PyTorch with a GPU, or the module that imports this is not run."""

import pytest

from torch_or_skip import torch  # noqa: F401, imported from here

if not torch.cuda.is_available():
    pytest.skip('not run: no GPU here', allow_module_level=True)
