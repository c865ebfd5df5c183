# SPDX-License-Identifier: Apache-2.0
"""`from torch_or_skip import torch`: PyTorch, or the module's tests are left out where there is none."""

import pytest

torch = pytest.importorskip('torch', reason='not run: no PyTorch here (pip install torch)')
