# SPDX-License-Identifier: Apache-2.0
"""The programs of docs/guide/python/1_first_model.md: a formula, its gradient, a classifier that is trained, and an
error."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import paoding as pd


def a_formula() -> None:
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, 3)
        graph.fetch('y', pd.exp(x) + 1.0)

    program = pd.Program(graph)
    results = program(x=[0.0, 1.0, 2.0])
    print(results['y'])


def its_gradient() -> None:
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (2, 1))
        y = graph.input('y', pd.f32, (2, 3))
        distance = pd.abs(x - y).sum()
        graph.fetch('distance', distance)
        graph.fetch('dx', pd.gradients(distance, x))

    program = pd.Program(graph)
    results = program(x=[[2.0], [0.0]], y=[[1.0, 1.0, 5.0], [1.0, 1.0, 1.0]])
    print(f'distance = {results["distance"]}, dx = {results["dx"].flatten()}')
    print(program.report['launches'], 'kernel')


def spirals(count: int, random: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Points [count, 2] on two spirals, and which of the two each is on."""
    labels = np.arange(count) % 2
    radius = random.uniform(0.25, 1, count)
    angle = 9 * radius + np.pi * labels
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1).astype(np.float32), labels


def classify(places: pd.Value) -> pd.Value:
    hidden = pd.relu(pd.nn.Linear('first', 2, 64)(4.0 * places))
    hidden = pd.relu(pd.nn.Linear('second', 64, 64)(hidden))
    return pd.nn.Linear('last', 64, 2)(hidden)


def a_network_that_learns() -> None:
    with pd.Graph() as graph:
        places = graph.input('places', pd.f32, (256, 2))
        labels = graph.input('labels', pd.i64, 256)
        loss = pd.cross_entropy(classify(places), labels)
        pd.minimize(loss, pd.Adam(0.005))
        graph.fetch('loss', loss)

    parameters = pd.Parameters(graph, device='best', seed=1)
    print(parameters.elements(pd.ParameterRole.model), 'numbers to learn')
    step = pd.Program(graph, parameters)

    random = np.random.default_rng(1)
    for i in range(1, 1001):
        points, kinds = spirals(256, random)
        results = step(places=points, labels=kinds)
        if i % 250 == 0:
            print(f'step {i}: loss {results["loss"]:.6f}')

    with pd.Graph() as use:
        few = use.input('places', pd.f32, (4, 2))
        use.fetch('chances', pd.softmax(classify(few)))
    classifier = pd.Program(use, parameters)
    points, kinds = spirals(4, random)
    for kind, chances in zip(kinds, classifier(places=points)['chances'].numpy(), strict=True):
        print(f'on spiral {kind}, with a chance of {chances[1]:.4f} on spiral 1')


def when_something_is_wrong() -> None:
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (64, 784))
        try:
            pd.nn.Linear('hidden', 748, 128)(x)
        except pd.ShapeError as error:
            print(error)


if __name__ == '__main__':
    a_formula()
    its_gradient()
    a_network_that_learns()
    when_something_is_wrong()
