# SPDX-License-Identifier: Apache-2.0
"""pickle, copy.copy and copy.deepcopy: a copy computes what the original does, and neither sees what the other learns."""

import copy
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import paoding as pd

PACKAGE = str(pathlib.Path(pd.__file__).parents[1])
X, Y = np.random.default_rng(0).standard_normal((8, 5)).astype(np.float32), np.arange(8) % 3

COPIES = {
    'pickle': lambda thing: pickle.loads(pickle.dumps(thing)),
    'pickle of another process': lambda thing: in_another_process(thing),
    'deepcopy': copy.deepcopy,
}


def in_another_process(thing):
    """The thing that a process makes of the pickle, and pickles again."""
    code = 'import pickle, sys; sys.stdout.buffer.write(pickle.dumps(pickle.load(sys.stdin.buffer)))'
    done = subprocess.run(
        [sys.executable, '-c', code], input=pickle.dumps(thing), capture_output=True, env={**os.environ, 'PYTHONPATH': PACKAGE}
    )
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def training(dropout=0.0):
    with pd.Graph() as graph:
        x, y = graph.input('x', 'f32', X.shape), graph.input('y', 'i64', 8)
        with graph.scope('model'):
            hidden = pd.relu(pd.nn.Linear('hidden', 5, 16)(x))
            if dropout:
                hidden = pd.dropout(hidden, dropout)
            last, _ = pd.scan(lambda c, e: (pd.tanh(c + e), None), pd.zeros(16), hidden)
            logits = pd.nn.Linear('out', 16, 3)(hidden + last)
        loss = pd.cross_entropy(logits, y)
        pd.minimize(loss, pd.Adam(0.01))
        graph.fetch('loss', loss)
        graph.fetch('logits', logits)
    return graph


def losses(program, steps=4):
    return [program(x=X, y=Y)['loss'].item() for _ in range(steps)]


@pytest.mark.parametrize('way', COPIES)
@pytest.mark.parametrize('dtype', ['f64', 'f32', 'f16', 'bf16', 'i64', 'i32', 'u8', 'bool'])
def test_a_tensor(way, dtype):
    for values in (np.arange(6).reshape(2, 3) % 2, np.zeros((0, 3)), np.array(1)):
        tensor = pd.Tensor(values.tolist(), dtype) if values.size else pd.Tensor.empty((0, 3), dtype)
        made = COPIES[way](tensor)
        assert (made.dtype, made.shape, made.tolist()) == (tensor.dtype, tensor.shape, tensor.tolist())
        if values.size == 6:
            made[0, 0] = 1
            assert tensor.tolist()[0][0] == 0


def test_tensors_in_other_buffers_than_the_pickles():
    buffers = []
    tensor = pd.Tensor(np.arange(1000.0))
    text = pickle.dumps(tensor, protocol=5, buffer_callback=buffers.append)
    assert len(text) < 1000 and len(buffers) == 1
    assert pickle.loads(text, buffers=[bytearray(buffers[0].raw())]).tolist() == tensor.tolist()
    made = pickle.loads(text, buffers=[bytes(buffers[0].raw())])  # read-only, so it is copied
    made[0] = 5
    assert made[0] == 5


@pytest.mark.parametrize('way', COPIES)
def test_a_store(way):
    graph = training(dropout=0.25)
    parameters = pd.Parameters(graph, seed=3)
    losses(pd.Program(graph, parameters))
    made = COPIES[way](parameters)
    assert made.device == 'cpu' and list(made) == list(parameters)
    assert [(each.name, each.dtype, each.shape, each.role) for each in made.list()] == [
        (each.name, each.dtype, each.shape, each.role) for each in parameters.list()
    ]
    for name, value in parameters.items():
        np.testing.assert_array_equal(made[name], value)
    assert losses(pd.Program(graph, made)) == losses(pd.Program(graph, parameters))
    made['out/bias'] = np.full(3, 9)
    assert 9 not in parameters['out/bias']


@pytest.mark.parametrize('way', COPIES)
def test_a_graph(way):
    graph = training(dropout=0.25)
    parameters = pd.Parameters(graph, seed=3)
    made = COPIES[way](graph)
    assert str(made) == str(graph) and made.inputs == graph.inputs and made.fetches == graph.fetches
    for name in graph.parameters:
        assert made.role(name) == graph.role(name)
    others = copy.deepcopy(parameters)
    assert losses(pd.Program(made, others)) == losses(pd.Program(graph, parameters))
    with made:  # goes on, and draws from another stream than what was there
        made.fetch('more', made.fetched('logits') * 2)
        made.fetch('noise', pd.random_uniform(3))
    assert 'more' not in graph.fetches
    with graph:
        graph.fetch('noise', pd.random_uniform(3))
    a, b = (pd.Program(each, copy.deepcopy(parameters))(x=X, y=Y)['noise'] for each in (made, graph))
    np.testing.assert_array_equal(a, b)


def test_first_values_are_in_copies_and_in_no_pickle():
    graph = training()
    first = pd.Parameters(graph, seed=5)
    for made in (copy.deepcopy(graph), copy.copy(graph), graph.clone()):
        for name, value in pd.Parameters(made, seed=5).items():
            np.testing.assert_array_equal(value, first[name])
    with pytest.raises(pd.ArgumentError, match=r"parameter 'hidden/weight'.* pickled.*\nhint: pickle the Parameters with the graph"):
        pd.Parameters(pickle.loads(pickle.dumps(graph)), seed=5)
    with pd.Graph() as graph:
        graph.fetch('y', graph.parameter('w', 'f32', 2) * 2)
    assert pd.Program(made := pickle.loads(pickle.dumps(graph)), pd.Parameters(made))()['y'].tolist() == [0, 0]


@pytest.mark.parametrize('way', COPIES)
def test_a_program(way):
    graph = training(dropout=0.25)
    parameters = pd.Parameters(graph, seed=3)
    program = pd.Program(graph, parameters, fetches=['loss'], strict=True)
    losses(program)
    made = COPIES[way](program)
    assert made.fetch_names == ['loss'] and made.options == program.options and made.options['strict']
    assert losses(made) == losses(program)
    losses(made)
    assert made.parameters['optimizer/step'].item() == 12 and parameters['optimizer/step'].item() == 8


@pytest.mark.parametrize('way', ['pickle', 'deepcopy'])
def test_programs_of_one_store_have_one_store_after(way):
    graph = training()
    parameters = pd.Parameters(graph)
    step, predict = COPIES[way]((pd.Program(graph, parameters), pd.Program(graph, parameters, assign=False, fetches=['logits'])))
    assert step.parameters is predict.parameters and step.parameters is not parameters
    before = np.asarray(predict(x=X, y=Y)['logits'])
    step(x=X, y=Y)
    assert not np.array_equal(predict(x=X, y=Y)['logits'], before)


def test_a_shallow_copy_of_a_program_shares_its_store():
    graph = training()
    program = pd.Program(graph, pd.Parameters(graph))
    assert copy.copy(program).parameters is program.parameters
    target = copy.deepcopy(program)
    losses(program)
    target.parameters.update(program.parameters)
    assert losses(target) == losses(program)
    tensor = program(x=X, y=Y)['logits']
    copy.copy(tensor)[0, 0] = 7
    assert tensor[0, 0] == 7


def test_a_program_of_a_graph_that_has_grown_is_not_copied():
    graph = training()
    program = pd.Program(graph, pd.Parameters(graph))
    assert str(program.graph) == str(graph)
    graph.fetch('twice', graph.fetched('loss') * 2)
    with pytest.raises(pd.ArgumentError, match='has grown since the program was made'):
        pickle.dumps(program)


def test_a_function_of_sizes_is_copied():
    @pd.function(x=('f32', ['n', 3]), seed=4)
    def total(x):
        return {'sum': pd.nn.Linear('out', 3, 1)(x).sum()}

    first = total(X[:4, :3])['sum'].item()
    made = copy.deepcopy(total)
    assert made(X[:4, :3])['sum'].item() == first
    made.parameters['out/bias'] = made.parameters['out/bias'] + 1
    assert total(X[:4, :3])['sum'].item() == first and made(X[:4, :3])['sum'].item() == pytest.approx(first + 4)
