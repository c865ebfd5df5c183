# SPDX-License-Identifier: Apache-2.0
"""Losses, matrices and layers that are made of ops, beside their formulas in NumPy."""

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((2, 4, 6)), RNG.standard_normal((2, 4, 6))
P, Q = (np.exp(each) / np.exp(each).sum(-1, keepdims=True) for each in (A, B))


def run(function, *arrays):
    """function(values of the arrays), in f64 where they are floats."""
    with pd.Graph() as graph:
        values = [graph.input(f'x{i}', each.dtype, each.shape) for i, each in enumerate(arrays)]
        graph.fetch('y', function(*values))
    program = pd.Program(graph, pd.Parameters(graph))
    return program.run({f'x{i}': each for i, each in enumerate(arrays)})['y'].numpy()


def test_kl_div():
    losses = Q * (np.log(Q) - np.log(P))
    for reduction, wanted in (('mean', losses.mean()), ('sum', losses.sum()), ('none', losses), ('batchmean', losses.sum() / 2)):
        np.testing.assert_allclose(run(lambda p, q: pd.kl_div(p, q, reduction), np.log(P), Q), wanted, rtol=1e-12)
        np.testing.assert_allclose(run(lambda p, q: pd.kl_div(p, q, reduction, log_target=True), np.log(P), np.log(Q)), wanted, rtol=1e-12)
    zero = Q.copy()
    zero[0, 0] = 0
    made = run(lambda p, q: pd.gradients(pd.kl_div(p, q, 'sum'), p), np.log(P), zero)
    np.testing.assert_allclose(made, -zero)
    assert np.isfinite(run(lambda p, q: pd.gradients(pd.kl_div(p, q, 'sum'), q), np.log(P), zero)).all()
    with pytest.raises(pd.ArgumentError, match="reduction is 'all', needed is mean, sum or none"):
        run(lambda p, q: pd.kl_div(p, q, 'all'), P, Q)


def test_nll_loss_is_cross_entropy_of_logarithms():
    labels = np.array([[0, 5, -1, 2], [3, -1, 1, 1]])
    kept = labels >= 0
    losses = np.where(kept, -np.take_along_axis(np.log(P), np.maximum(labels, 0)[..., None], -1)[..., 0], 0)
    for reduction, wanted in (('mean', losses.sum() / kept.sum()), ('sum', losses.sum()), ('none', losses)):
        np.testing.assert_allclose(run(lambda p, y: pd.nll_loss(p, y, reduction), np.log(P), labels), wanted)
    logits, flat = A.reshape(8, 6), labels.reshape(8)
    wanted = run(lambda x, y: pd.cross_entropy(x, y), logits, flat)
    np.testing.assert_allclose(run(lambda x, y: pd.nll_loss(pd.log_softmax(x), y), logits, flat), wanted)
    with pytest.raises(pd.ShapeError, match=r'needed are \[.., classes\] and \[..\]'):
        run(pd.nll_loss, A, np.zeros(6, int))


@pytest.mark.parametrize('order', [2, 1, 0, 3, 0.5, np.inf, -np.inf])
def test_norm(order):
    np.testing.assert_allclose(run(lambda a: pd.norm(a, order, axis=1), A), np.linalg.norm(A, order, axis=1))
    np.testing.assert_allclose(run(lambda a: pd.norm(a, order), A), np.linalg.norm(A.ravel(), order))
    np.testing.assert_allclose(run(lambda a: pd.norm(a, order, -1, keepdims=True), A), np.linalg.norm(A, order, -1, keepdims=True))


def test_cosine_similarity():
    for axis in (-1, 1):
        wanted = (A * B).sum(axis) / np.linalg.norm(A, axis=axis) / np.linalg.norm(B, axis=axis)
        np.testing.assert_allclose(run(lambda a, b: pd.cosine_similarity(a, b, axis), A, B), wanted)
    assert run(pd.cosine_similarity, np.zeros(3), np.ones(3)) == 0


def test_triangles():
    for k in (-5, -1, 0, 2, 7):
        np.testing.assert_array_equal(run(lambda a: pd.tril(a, k), A), np.tril(A, k))
        np.testing.assert_array_equal(run(lambda a: pd.triu(a, k), A), np.triu(A, k))
    infinite = np.full((3, 3), np.inf)
    np.testing.assert_array_equal(run(pd.tril, infinite), np.tril(infinite))
    np.testing.assert_array_equal(run(pd.triu, np.arange(9).reshape(3, 3)), np.triu(np.arange(9).reshape(3, 3)))


def test_matrices_and_rows_of_numbers():
    for given in ((3,), (3, 5), (4, 2, 1), (3, 5, -2)):
        np.testing.assert_array_equal(run(lambda: pd.eye(*given)), np.eye(*given))
    for given in ((0, 1), (2, -3, 7), (1, 2, 5, False), (1, 2, 1)):
        np.testing.assert_allclose(run(lambda: pd.linspace(*given, dtype='f64')), np.linspace(*given))
    for made, wanted in ((pd.zeros_like, np.zeros_like), (pd.ones_like, np.ones_like)):
        np.testing.assert_array_equal(run(made, A), wanted(A), strict=True)
        np.testing.assert_array_equal(run(lambda a: made(a, 'i32'), A), wanted(A, np.int32), strict=True)


def test_group_norm_and_rms_norm():
    x = RNG.standard_normal((2, 6, 3, 3))
    with pd.Graph() as graph:
        value = graph.input('x', 'f64', x.shape)
        norm = pd.nn.GroupNorm('groups', 3, 6, dtype='f64')
        graph.fetch('group', norm(value))
        graph.fetch('rms', pd.nn.RMSNorm('rms', 3, dtype='f64')(value))
    parameters = pd.Parameters(graph)
    assert {name: set(np.ravel(each)) for name, each in parameters.items()} == {'groups/gamma': {1}, 'groups/beta': {0}, 'rms/gamma': {1}}
    gamma, beta, scale = RNG.standard_normal(6), RNG.standard_normal(6), RNG.standard_normal(3)
    parameters.update({'groups/gamma': gamma, 'groups/beta': beta, 'rms/gamma': scale})
    made = pd.Program(graph, parameters)(x=x)
    groups = x.reshape(2, 3, -1)
    normed = (groups - groups.mean(-1, keepdims=True)) / np.sqrt(groups.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(made['group'].numpy(), normed.reshape(x.shape) * gamma[:, None, None] + beta[:, None, None])
    np.testing.assert_allclose(made['rms'].numpy(), x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * scale)


def test_sequential_and_dropout():
    x = RNG.standard_normal((5, 2, 3))
    for training in (True, False):
        with pd.Graph() as graph:
            model = pd.nn.Sequential(
                pd.nn.LSTM('lstm', 3, 4), pd.relu, pd.nn.Dropout(0.5, training=training), pd.nn.Linear('out', 4, 2, bias=False)
            )
            value = graph.input('x', 'f32', x.shape)
            graph.fetch('y', model(value))
            graph.fetch('plain', model[3](pd.relu(model[0](value).outputs)))
            graph.fetch('dropped', pd.nn.Dropout(0.25, training=training)(pd.ones((100, 100))))
        made = pd.Program(graph, pd.Parameters(graph, seed=1))(x=x)
        assert len(model) == 4 and len(list(model)) == 4
        dropped = made['dropped'].numpy()
        if training:
            assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)} and abs((dropped == 0).mean() - 0.25) < 0.03
            assert not np.array_equal(made['y'], made['plain'])
        else:
            assert (dropped == 1).all()
            np.testing.assert_array_equal(made['y'], made['plain'])
