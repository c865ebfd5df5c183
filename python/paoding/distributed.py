# SPDX-License-Identifier: Apache-2.0
"""Processes that run one program together, each with its part of the data: which rank this one is, and how the ranks
reach each other.

    ranks = pd.distributed.init()           # under torchrun, mpirun or srun; `cuda`: each rank has a GPU of its own
    pd.minimize(loss, pd.Adam(1e-3), data_parallel=True)
    step = pd.Program(graph, pd.Parameters(graph, seed=7), communicator=ranks)
"""

from ._paoding import Communicator, connect_ranks

__all__ = ['Communicator', 'init']


def init(
    device: str = 'cpu',
    *,
    rank: int | None = None,
    size: int | None = None,
    local_rank: int | None = None,
    store: str = '',
    timeout: float = 60,
) -> Communicator:
    """The communicator of this process and the others of its job, when all have called it: Gloo for 'cpu', NCCL for
    'cuda', where a rank has the GPU of its local number. `rank` and `size` are those of the environment unless given, and
    `store` too: 'tcp:host:port' of rank 0, or 'file:/folder' that all see. Alone, without an environment, it is one rank,
    with which a program is as it would be without. UnsupportedError when the library is not there, DeviceError when a rank
    does not come within `timeout` seconds."""
    return connect_ranks(device, rank, size, local_rank, store, timeout)
