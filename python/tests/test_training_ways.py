# SPDX-License-Identifier: Apache-2.0
"""pd.fit, several graphs and optimizers on one store, averages and accumulated gradients."""

import doctest

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)
X = RNG.standard_normal((48, 3)).astype(np.float32)
Y = X.sum(1)


def make_step(**options):
    @pd.function(seed=1)
    def step(x, y):
        made = pd.nn.Linear('out', 3, 1)(pd.dropout(x, 0.1))[:, 0]
        loss = ((made - y) ** 2).mean()
        pd.minimize(loss, pd.Adam(0.05), **options)
        return loss

    return step


def loader():
    return pd.data.DataLoader({'x': X, 'y': Y}, 16, shuffle=True, seed=3)


def test_the_example_of_fit_is_true():
    for example in doctest.DocTestFinder(recurse=False).find(pd.fit, 'fit', globs={'pd': pd}):
        assert example.examples and doctest.DocTestRunner().run(example).failed == 0


def test_fit_is_the_loop_that_one_writes():
    step, other = make_step(), make_step()
    lines = []
    history = pd.fit(step, loader(), epochs=4, progress=lines.append)
    losses = []
    batches = loader()
    for _ in range(4):
        losses.append(np.mean([other(**batch).item() for batch in batches]))
    np.testing.assert_array_equal(step.parameters['out/weight'], other.parameters['out/weight'])
    np.testing.assert_allclose(history.losses, losses)
    assert (history.steps, history.best_epoch, history.stopped_early) == (12, 1 + int(np.argmin(losses)), False)
    assert [each.epoch for each in lines] == [1, 2, 3, 4]
    assert str(lines[0]).startswith('epoch 1, step 3: loss ')


def test_fit_goes_on_from_a_checkpoint_with_the_same_bits(tmp_path):
    whole = make_step()
    wanted = pd.fit(whole, loader(), epochs=5)
    first = make_step()
    pd.fit(first, loader(), epochs=2, checkpoints=tmp_path, model='line')
    second, batches = make_step(), loader()
    history = pd.fit(second, batches, epochs=5, checkpoints=tmp_path, model='line')
    assert history.losses == wanted.losses and history.steps == 15 and batches.epoch == 5
    for name, value in whole.parameters.items():
        np.testing.assert_array_equal(second.parameters[name], value)
    done = pd.fit(make_step(), loader(), epochs=5, checkpoints=tmp_path, model='line')
    assert done.losses == wanted.losses  # there is nothing left to do
    with pytest.raises(pd.ArgumentError, match="the folder has checkpoints of 'line', not of 'other'"):
        pd.fit(make_step(), loader(), epochs=1, checkpoints=tmp_path, model='other')


@pytest.mark.parametrize('higher_is_better', [False, True])
def test_fit_stops_early_and_puts_the_best_back(higher_is_better):
    step = make_step()
    scores = iter([3.0, 1.0, 2.0, 2.5, 0.5])
    weights = []

    def evaluate():
        weights.append(step.parameters['out/weight'].numpy().copy())
        score = next(scores)
        return -score if higher_is_better else score

    history = pd.fit(
        step, loader(), epochs=9, evaluate=evaluate, patience=2, restore_best=True, higher_is_better=higher_is_better
    )
    assert (len(history.losses), history.best_epoch, history.stopped_early) == (4, 2, True)
    assert history.best_score == (-1 if higher_is_better else 1)
    np.testing.assert_array_equal(step.parameters['out/weight'], weights[1])


def test_fit_takes_programs_and_any_function():
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (16, 3))
        loss = (x * graph.parameter('w', 'f32', 3)).mean()
        pd.minimize(loss, pd.Sgd(0.1))
        graph.fetch('loss', loss)
    program = pd.Program(graph, pd.Parameters(graph))
    assert pd.fit(program, pd.data.DataLoader({'x': X}, 16), epochs=2).steps == 6
    assert pd.fit(lambda x, y: (1.5, 'else'), [(1, 2), (3, 4)], epochs=2).losses == [1.5, 1.5]
    with pytest.raises(pd.ArgumentError, match="the step gives a, and no 'loss'"):
        pd.fit(lambda x: {'a': 1}, [1], epochs=1)
    with pytest.raises(pd.ArgumentError, match='there are no batches'):
        pd.fit(lambda x: 1.0, iter([1]), epochs=2)
    with pytest.raises(pd.ArgumentError, match='the loss of epoch 1 is nan'):
        pd.fit(lambda x: float('nan'), [1], epochs=2)
    with pytest.raises(pd.ArgumentError, match='need parameters=, as the step has none'):
        pd.fit(lambda x: 1.0, [1], epochs=1, restore_best=True)


def graph_of(kind):
    with pd.Graph() as graph:
        z = graph.input('z', 'f32', (8, 2))
        if kind == 'critic':
            x = graph.input('x', 'f32', (8, 2))
            loss = (pd.softplus(-critic(x)) + pd.softplus(critic_of_made(z))).mean()
            pd.minimize(loss, pd.Adam(0.01), frozen=['generator/*'], name='critic')
        else:
            loss = pd.softplus(-critic_of_made(z)).mean()
            pd.minimize(loss, pd.Adam(0.02), frozen=['critic/*'], name='generator')
        graph.fetch('loss', loss)
    return graph


def critic_of_made(z):
    graph = z.graph
    made = pd.tanh(made_of(graph, 'generator/in', z, 2, 4))
    made = made_of(graph, 'generator/out', made, 4, 2)
    return made_of(graph, 'critic/out', pd.tanh(made_of(graph, 'critic/in', made, 2, 4)), 4, 1)


def made_of(graph, name, x, inputs, outputs):
    """A layer whose parameters the graph may have already."""
    if graph.find(f'{name}/weight') is None:
        return pd.nn.Linear(name, inputs, outputs, graph=graph)(x)
    return x @ graph.find(f'{name}/weight') + graph.find(f'{name}/bias')


def critic(x):
    graph = x.graph
    return made_of(graph, 'critic/out', pd.tanh(made_of(graph, 'critic/in', x, 2, 4)), 4, 1)


def adam(values, gradients, state, step, rate):
    for name, g in gradients.items():
        m, v = state.setdefault(name, [0, 0])
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
        state[name] = [m, v]
        values[name] = values[name] - rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)


def test_two_optimizers_train_two_networks_of_one_store():
    graphs = [graph_of('critic'), graph_of('generator')]
    parameters = pd.Parameters(graphs, seed=5)
    assert {'critic/step', 'generator/step'} <= set(parameters)
    assert parameters['critic/step'].shape == () and 'optimizer/step' not in parameters
    steps = [pd.Program(graph, parameters) for graph in graphs]
    before = {name: value.numpy().copy() for name, value in parameters.items()}
    steps[0](z=X[:8, :2], x=X[8:16, :2])
    after = {name: value.numpy().copy() for name, value in parameters.items()}
    for name, value in after.items():
        is_trained = name.startswith('critic') or '/critic/' in name
        assert is_trained or np.array_equal(value, before[name]), name
    assert not np.array_equal(after['critic/in/weight'], before['critic/in/weight'])
    for _ in range(3):
        steps[1](z=X[:8, :2])
    assert (parameters['critic/step'].item(), parameters['generator/step'].item()) == (1, 3)
    np.testing.assert_array_equal(parameters['critic/in/weight'], after['critic/in/weight'])
    assert not np.array_equal(parameters['generator/in/weight'], after['generator/in/weight'])


def test_adam_of_each_optimizer_counts_its_own_steps():
    def graph_of(name, input_name):
        with pd.Graph() as graph:
            w = graph.parameter(f'{name}/w', 'f64', 3, initial=np.ones(3))
            loss = (w * w * graph.input(input_name, 'f64', 3)).sum()
            pd.minimize(loss, pd.Adam(0.1), name=name)
            graph.fetch('loss', loss)
        return graph

    graphs = [graph_of('a', 'x'), graph_of('b', 'x')]
    parameters = pd.Parameters(graphs)
    programs = [pd.Program(graph, parameters) for graph in graphs]
    values, states, counts = {'a/w': np.ones(3), 'b/w': np.ones(3)}, {}, {'a': 0, 'b': 0}
    for which in (0, 1, 1, 0, 1):
        x = RNG.standard_normal(3)
        name = 'ab'[which]
        counts[name] += 1
        adam(values, {f'{name}/w': 2 * values[f'{name}/w'] * x}, states, counts[name], 0.1)
        programs[which](x=x)
    for name, value in values.items():
        np.testing.assert_allclose(parameters[name], value, rtol=1e-9)


def test_one_graph_may_have_two_optimizers_but_not_of_one_name_or_parameter():
    with pd.Graph() as graph:
        a, b = (graph.parameter(name, 'f64', 2, initial=np.ones(2)) for name in 'ab')
        first, second = (a * a * b).sum(), (a * b * b).sum()
        pd.minimize(first, pd.Sgd(0.1), frozen=['b'], name='first')
        with pytest.raises(pd.ArgumentError, match="the graph has an optimizer 'first' already"):
            pd.minimize(second, pd.Sgd(0.1), name='first')
        with pytest.raises(pd.ArgumentError, match='name is empty'):
            pd.minimize(second, pd.Sgd(0.1), name='')
        pd.minimize(second, pd.Sgd(0.2), frozen=['a'], name='second')
        graph.fetch('first', first)
    parameters = pd.Parameters(graph)
    pd.Program(graph, parameters)()
    np.testing.assert_allclose(parameters['a'], np.ones(2) - 0.1 * 2)  # both of the values at the run's start
    np.testing.assert_allclose(parameters['b'], np.ones(2) - 0.2 * 2)


def test_graphs_of_one_store_agree_on_types():
    def graph_of(shape, dtype='f32'):
        with pd.Graph() as graph:
            graph.fetch('w', graph.parameter('w', dtype, shape))
        return graph

    with pytest.raises(pd.ShapeError, match=r"'w' is f32\[2\] in one graph and f32\[3\] in another"):
        pd.Parameters([graph_of(2), graph_of(3)])
    with pytest.raises(pd.DtypeError):
        pd.Parameters([graph_of(2), graph_of(2, 'f64')])
    with pytest.raises(TypeError, match='needed is a Graph or a list of them, not int'):
        pd.Parameters(3)
    assert list(pd.Parameters([graph_of(2), graph_of(2)])) == ['w']


def test_averages_follow_parameters():
    step = make_step(average_decay=0.9)
    step(X[:16], Y[:16])
    parameters = step.parameters
    with pytest.raises(pd.ArgumentError):
        pd.averages_of(make_parameters_without_averages())
    kept = pd.averages_of(parameters)['out/weight'].numpy().copy()
    for batch in loader():
        step(**batch)
        kept = 0.9 * kept + 0.1 * parameters['out/weight'].numpy()
        np.testing.assert_allclose(pd.averages_of(parameters)['out/weight'], kept, rtol=1e-5)


def make_parameters_without_averages():
    with pd.Graph() as graph:
        graph.fetch('w', graph.parameter('w', 'f32', 2))
    return pd.Parameters(graph)


def test_accumulated_gradients_are_those_of_the_whole_batch():
    def step_of(accumulate):
        @pd.function(seed=1)
        def step(x, y):
            loss = ((pd.nn.Linear('out', 3, 1)(x)[:, 0] - y) ** 2).mean()
            pd.minimize(loss, pd.Sgd(0.1), accumulate=accumulate)
            return loss

        return step

    whole, parts = step_of(1), step_of(3)
    for _ in range(2):
        whole(X, Y)
        for at in (0, 16, 32):
            parts(X[at : at + 16], Y[at : at + 16])
    np.testing.assert_allclose(parts.parameters['out/weight'], whole.parameters['out/weight'], rtol=1e-5)
