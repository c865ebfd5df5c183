# SPDX-License-Identifier: Apache-2.0
"""What parameters are there for, random numbers by purpose, and models in one file."""

import threading

import numpy as np
import pytest

import paoding as pd


def trained_graph():
    """With parameters of every role."""
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (4, 3))
        y = pd.dropout(pd.nn.Linear('out', 3, 2)(x), 0.5)
        graph.parameter('calls', pd.i64, (), role=pd.ParameterRole.optimizer)
        pd.minimize((y * y).sum(), pd.Sgd(0.1, momentum=0.9))
        graph.fetch('y', y)
    return graph


def test_parameters_are_known_by_what_they_are_there_for():
    graph = trained_graph()
    parameters = pd.Parameters(graph, seed=3)
    role = pd.ParameterRole
    assert graph.role('out/weight') is role.model and graph.role('random/state') is role.random
    by_role = {each: [info for info in parameters.list() if info.role is each] for each in role}
    assert {info.name for info in by_role[role.model]} == {'out/weight', 'out/bias'}
    assert [info.name for info in by_role[role.random]] == ['random/state']
    assert 'calls' in {info.name for info in by_role[role.optimizer]} and len(by_role[role.optimizer]) > 2
    assert parameters.elements(role.model) == 3 * 2 + 2 and parameters.size_bytes(role.model) == 4 * 8
    assert sum(parameters.elements(each) for each in role) == parameters.elements()
    weight = next(info for info in parameters.list() if info.name == 'out/weight')
    assert (weight.shape, weight.dtype, weight.elements, weight.size_bytes) == ((3, 2), pd.f32, 6, 24)
    assert pd.values_of(parameters, role.model).keys() == {'out/weight', 'out/bias'}
    assert pd.values_of(parameters).keys() == set(parameters)
    with pytest.raises(pd.ArgumentError, match='nothing'):
        graph.role('nothing')


def test_what_one_purpose_draws_changes_nothing_of_what_another_does():
    def drawn(with_noise):
        with pd.Graph() as graph:
            first = pd.random_normal((3,))
            if with_noise:
                with graph.random_purpose('noise'):
                    graph.fetch('noise', pd.random_normal((3,)))
            graph.fetch('all', pd.concatenate([first, pd.random_normal((3,))]))
        parameters = pd.Parameters(graph, seed=5)
        program = pd.Program(graph, parameters)
        return [np.asarray(program()['all']) for _ in range(2)], parameters

    plain, _ = drawn(False)
    noisy, parameters = drawn(True)
    np.testing.assert_array_equal(plain, noisy)
    assert {'random/state', 'random/noise'} <= set(parameters)
    with pytest.raises(pd.ArgumentError, match='purpose'), pd.Graph() as graph:
        with graph.random_purpose(''):
            pass


def scaling(rows):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.f32, (rows, 2)) * graph.parameter('w', pd.f32, 2))
    return graph


@pytest.fixture
def path(tmp_path):
    graphs = {f'scale[{rows}]': scaling(rows) for rows in (1, 3)}
    parameters = {'w': np.array([2, -3], np.float32), 'unread': np.zeros(4, np.float32)}
    given = {'options': {'hidden': '2'}, 'notes': {'run': 'a'}, 'files': {'letters.txt': b'a\0\xff'}}
    pd.save_model(tmp_path / 'a.pd', graphs, parameters, model='scale', **given)
    return tmp_path / 'a.pd'


def test_a_model_is_called_by_named_inputs_of_every_shape_it_has(path):
    model = pd.Model.load(path)
    assert (model.entries, model.name, model.options, model.notes) == (['scale'], 'scale', {'hidden': '2'}, {'run': 'a'})
    assert model.files == {'letters.txt': b'a\0\xff'}
    assert model.inputs('scale') == [{'x': (pd.f32, (rows, 2))} for rows in (1, 3)]
    assert model.parameters.keys() == {'w'} and model.graph('scale[3]').inputs == ['x']
    for rows in (1, 3):
        x = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
        for results in (model(x=x), model.run({'x': x}, 'scale'), model.run({'x': x.tolist()})):
            np.testing.assert_array_equal(np.asarray(results['y']), x * [2, -3])
    with pytest.raises(pd.Error, match=r'x f32\[2,2\]; it takes'):
        model(x=np.zeros((2, 2), np.float32))
    with pytest.raises(pd.ArgumentError, match="no entry point 'search'"):
        model.run({}, 'search')
    strided = np.arange(12).reshape(3, 4)[:, ::2]
    np.testing.assert_array_equal(np.asarray(model(x=strided)['y']), strided * [2, -3])
    with pytest.raises(pd.ArgumentError, match='do not lie densely'):
        model.run({'x': strided.astype(np.float32, order='F')}, strict=True)


def test_a_store_of_a_training_gives_a_model_what_it_reads(tmp_path):
    graph = trained_graph()
    parameters = pd.Parameters(graph, seed=3)
    x = np.ones((4, 3), np.float32)
    pd.Program(graph, parameters)(x=x)
    with pd.Graph() as predicting:
        predicting.fetch('y', pd.nn.Linear('out', 3, 2)(predicting.input('x', pd.f32, (4, 3))))
    pd.save_model(tmp_path / 'a.pd', {'predict': predicting}, parameters)
    model = pd.Model.load(tmp_path / 'a.pd')
    assert model.parameters.keys() == {'out/weight', 'out/bias'}
    wanted = x @ np.asarray(parameters['out/weight']) + np.asarray(parameters['out/bias'])
    np.testing.assert_allclose(np.asarray(model(x=x)['y']), wanted, rtol=1e-5)
    with pytest.raises(pd.ArgumentError, match="no value is given for the parameter 'out/weight' of the graph 'predict'"):
        pd.save_model(tmp_path / 'b.pd', {'predict': predicting})


def test_a_model_is_called_by_many_threads(path):
    model, wrong = pd.Model.load(path, executors=2), []

    def work(seed):
        for i in range(50):
            x = np.random.default_rng(seed * 50 + i).standard_normal((3, 2)).astype(np.float32)
            if not np.array_equal(np.asarray(model(x=x)['y']), x * np.float32([2, -3])):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_model_file_that_is_damaged_is_refused(path, tmp_path):
    whole = path.read_bytes()
    damaged = tmp_path / 'b.pd'
    for size in range(0, len(whole), 97):
        damaged.write_bytes(whole[:size])
        with pytest.raises(pd.FileError, match='b.pd'):
            pd.Model.load(damaged)
    damaged.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(pd.FileError):
        pd.Model.load(damaged)
    pd.save_safetensors(damaged, {'w': np.zeros(2, np.float32)}, {'format': 'paoding model', 'version': '2'})
    with pytest.raises(pd.FileError, match='version 2; this paoding knows version 1'):
        pd.Model.load(damaged)
    with pytest.raises(pd.FileError):
        pd.Model.load(tmp_path / 'missing.pd')


def stacked(layer, **options):
    """Two recurrent layers with dropout between them, over inputs."""
    with pd.Graph() as graph:
        graph.fetch('y', layer('net', 5, 7, layers=2, dropout=0.5, **options)(graph.input('x', pd.f32, (6, 3, 5))).outputs)
    return graph


@pytest.mark.parametrize('layer', [pd.nn.LSTM, pd.nn.GRU, pd.nn.RNN])
def test_recurrent_layers_drop_in_training_alone(layer, tmp_path):
    x = np.random.default_rng(1).standard_normal((6, 3, 5)).astype(np.float32)
    with pd.Graph() as graph:
        graph.fetch('y', layer('net', 5, 7, layers=2)(graph.input('x', pd.f32, (6, 3, 5))).outputs)
    parameters = pd.Parameters(graph, seed=2)
    plain = pd.Program(graph, parameters)(x=x)['y'].numpy()
    training = stacked(layer)
    trained = pd.Parameters(training, seed=2)
    program = pd.Program(training, trained)
    first, second = (program(x=x)['y'].numpy() for _ in range(2))
    assert not np.allclose(first, second) and not np.allclose(first, plain)
    evaluating = stacked(layer, training=False)
    program = pd.Program(evaluating, trained)
    for _ in range(2):
        np.testing.assert_array_equal(program(x=x)['y'].numpy(), plain)
    with pytest.raises(pd.ArgumentError, match=r"graph 'predict': it drops values as in training(?s:.*)training = false"):
        pd.save_model(tmp_path / 'a.pd', {'predict': training}, trained)
    assert not (tmp_path / 'a.pd').exists()
    pd.save_model(tmp_path / 'a.pd', {'predict': evaluating}, trained)
    np.testing.assert_array_equal(pd.Model.load(tmp_path / 'a.pd')(x=x)['y'].numpy(), plain)


@pytest.mark.parametrize('where', ['after a layer', 'in a loop', 'in attention'])
def test_a_graph_that_drops_is_no_model_to_save(where, tmp_path):
    with pd.Graph() as graph, graph.scope('decoder'):
        x = graph.input('x', pd.f32, (4, 2, 8))
        if where == 'after a layer':
            made = pd.dropout(x, 0.25)
        elif where == 'in a loop':
            made = pd.scan(lambda carry, each: (pd.dropout(carry + each, 0.25), None), x[0], x)[0]
        else:
            made = pd.nn.MultiHeadAttention('heads', 8, 2, dropout=0.25)(x)
        graph.fetch('y', made)
    with pytest.raises(pd.ArgumentError, match=r"a.pd: graph 'predict': it drops values .*\(in decoder"):
        pd.save_model(tmp_path / 'a.pd', {'predict': graph}, pd.Parameters(graph))


def nested(depth):
    """A graph of bodies in each other."""

    def level(value, left):
        return value + 1 if left == 0 else pd.scan(lambda carry, _: (level(carry, left - 1), None), value, length=1)[0]

    with pd.Graph() as graph:
        graph.fetch('y', level(graph.input('x', pd.f32, ()), depth))
    return graph


def named(length):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x' * length, pd.f32, ()) + 1)
    return graph


def test_what_is_written_is_what_can_be_read(tmp_path):
    path = tmp_path / 'a.pd'
    for fits, too_much, words in ((nested(16), nested(17), 'nested deeper than 16'), (named(65_536), named(65_537), 'a name of more than 65536 bytes')):
        pd.save_model(path, {'run': fits})
        model = pd.Model.load(path)
        (name,) = model.inputs('run')[0]
        assert model.run({name: 1.0})['y'].item() == 2.0
        path.unlink()
        with pytest.raises(pd.ArgumentError, match=words):
            pd.save_model(path, {'run': too_much})
        assert not path.exists()
    with pytest.raises(pd.ArgumentError, match='it fetches nothing'):
        pd.save_model(path, {'run': pd.Graph()})
    with pytest.raises(pd.ArgumentError, match=r"its parameter 'w' is f32\[2\], not f32\[3\]"):
        pd.save_model(path, {'scale': scaling(1)}, {'w': np.zeros(3, np.float32)})
    assert not path.exists()
    pd.save_model(path, {'scale': scaling(1)}, {'w': [2, 3]})  # a list becomes what the graph has
    assert pd.Model.load(path)(x=[[1, 1]])['y'].tolist() == [[2, 3]]
