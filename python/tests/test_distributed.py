# SPDX-License-Identifier: Apache-2.0
"""Training on several processes from Python: parameters are those of one process with all rows."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

import paoding as pd

ROWS, STEPS = 24, 10

PROGRAM = f"""
import os, sys
import numpy as np
import paoding as pd

ranks = pd.distributed.init() if os.environ.get('RANK') else None
rank, size = (ranks.rank, ranks.size) if ranks else (0, 1)
rows = {ROWS} // size
with pd.Graph() as graph:
    x, y = graph.input('x', pd.f32, (rows, 4)), graph.input('y', pd.f32, (rows, 1))
    loss = (pd.nn.Linear('layer', 4, 1)(x) - y).__pow__(2).mean()
    step = pd.minimize(loss, pd.Adam(0.05), data_parallel=ranks is not None)
    graph.fetch('loss', step.loss)
parameters = pd.Parameters(graph, seed=3)
program = pd.Program(graph, parameters, communicator=ranks)
assert program.options['communicator'] is ranks
mine = slice(rank * rows, (rank + 1) * rows)
losses = []
for number in range({STEPS}):
    all_x = np.random.default_rng(number).standard_normal(({ROWS}, 4)).astype(np.float32)
    all_y = (all_x @ np.array([1, -2, 3, 0.5], np.float32))[:, None]
    losses.append(program(x=all_x[mine], y=all_y[mine])['loss'].item())
if ranks:
    ranks.barrier()
np.savez(sys.argv[1], losses=losses, weight=np.asarray(parameters['layer/weight']))
"""


def run(tmp_path, name, **variables):
    folder = pathlib.Path(pd.__file__).absolute().parents[1]
    environment = {**os.environ, 'PYTHONPATH': str(folder), 'OMP_NUM_THREADS': '1', **variables}
    return subprocess.Popen([sys.executable, '-c', PROGRAM, str(tmp_path / f'{name}.npz')], env=environment)


def test_ranks_train_as_one_process_does(tmp_path):
    assert run(tmp_path, 'one', RANK='').wait(120) == 0
    one = np.load(tmp_path / 'one.npz')
    for size in (2, 3):
        places = [
            {'RANK': str(rank), 'WORLD_SIZE': str(size), 'PAODING_STORE': f'file:{tmp_path}/meet{size}'} for rank in range(size)
        ]
        processes = [run(tmp_path, f'{size}_{place["RANK"]}', **place) for place in places]
        assert [process.wait(120) for process in processes] == [0] * size
        results = [np.load(tmp_path / f'{size}_{rank}.npz') for rank in range(size)]
        for result in results:
            np.testing.assert_allclose(result['losses'], one['losses'], rtol=1e-5)
            np.testing.assert_array_equal(result['weight'], results[0]['weight'])
            np.testing.assert_allclose(result['weight'], one['weight'], rtol=1e-4, atol=1e-6)


def test_one_rank_is_as_none():
    ranks = pd.distributed.init()
    assert (ranks.rank, ranks.size) == (0, 1)
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, 5)
        graph.fetch('sum', pd.all_reduce(x, 'mean'))
        graph.fetch('all', pd.all_gather(x, ranks=1))
    got = pd.Program(graph, communicator=ranks)(x=np.arange(5, dtype=np.float32))
    np.testing.assert_array_equal(got['sum'], np.arange(5))
    np.testing.assert_array_equal(got['all'], np.arange(5))


def test_what_is_missing_is_said():
    with pd.Graph() as graph:
        graph.fetch('sum', pd.all_reduce(graph.input('x', pd.f32, 5)))
    with pytest.raises(pd.ArgumentError, match='all_reduce: the program has no communicator'):
        pd.Program(graph)
    with pytest.raises(pd.ArgumentError, match='rank and size go together'):
        pd.distributed.init(rank=1)
    with pytest.raises(pd.ArgumentError, match='there is no such place'):
        pd.distributed.init(rank=2, size=2, store='file:/tmp/x')
    with pytest.raises(pd.ArgumentError, match='needs to be file:/folder or tcp:host:port'):
        pd.distributed.init(rank=0, size=2, store='nowhere')
