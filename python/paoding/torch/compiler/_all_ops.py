# SPDX-License-Identifier: Apache-2.0
"""All modules that fill the table of ops."""

from . import _ops_activation as _ops_activation
from . import _ops_attention as _ops_attention
from . import _ops_elementwise as _ops_elementwise
from . import _ops_index as _ops_index
from . import _ops_norm as _ops_norm
from . import _ops_pool as _ops_pool
from . import _ops_pool3d as _ops_pool3d
from . import _ops_product as _ops_product
from . import _ops_random as _ops_random
from . import _ops_recurrent as _ops_recurrent
from . import _ops_reduce as _ops_reduce
from . import _ops_shape as _ops_shape
