# SPDX-License-Identifier: Apache-2.0
"""What has to be so while the libraries are loaded."""

import os

# Threads that wait for the next kernel spin shortly: libgomp's own 15 ms take the cores from others. It reads this once,
# when it is loaded, and processes that this one starts shall not inherit it.
_name = 'GOMP_SPINCOUNT'
_mine = _name not in os.environ and 'OMP_WAIT_POLICY' not in os.environ
if _mine:
    os.environ[_name] = '2000'
try:
    from . import _paoding
finally:
    if _mine:
        del os.environ[_name]
