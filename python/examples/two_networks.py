# SPDX-License-Identifier: Apache-2.0
"""Two networks that train against each other (Goodfellow et al. 2014), as two graphs of one store, each with an optimizer of
its own: points that are made come to lie on the ring where the data's do."""

from typing import Any

import numpy as np

import paoding as pd

BATCH, NOISE, HIDDEN = 64, 4, 32


class Networks:
    """Their layers, made once in each graph, so that they may be called twice there."""

    def __init__(self) -> None:
        self.generator = pd.nn.Sequential(
            pd.nn.Linear('generator/in', NOISE, HIDDEN), pd.ops.tanh, pd.nn.Linear('generator/out', HIDDEN, 2)
        )
        self.critic = pd.nn.Sequential(
            pd.nn.Linear('critic/in', 2, HIDDEN), pd.ops.tanh, pd.nn.Linear('critic/out', HIDDEN, 1)
        )


def graph_of(loss_of: Any, frozen: str, name: str) -> pd.Graph:
    with pd.Graph() as graph:
        loss = loss_of(graph, Networks())
        pd.minimize(loss, pd.Adam(0.002, beta1=0.5), frozen=[frozen], name=name, average_decay=0.99)
        graph.fetch('loss', loss)
    return graph


def critics_loss(graph: pd.Graph, networks: Networks) -> pd.Value:
    x, z = graph.input('x', 'f32', (BATCH, 2)), graph.input('z', 'f32', (BATCH, NOISE))
    made = pd.ops.softplus(networks.critic(networks.generator(z)))
    return (pd.ops.softplus(-networks.critic(x)) + made).mean()


def generators_loss(graph: pd.Graph, networks: Networks) -> pd.Value:
    z = graph.input('z', 'f32', (BATCH, NOISE))
    return pd.ops.softplus(-networks.critic(networks.generator(z))).mean()


def main() -> None:
    random = np.random.default_rng(0)
    angles = random.uniform(0, 2 * np.pi, 4096)
    ring = np.stack([np.cos(angles), np.sin(angles)], 1) + random.normal(0, 0.05, (4096, 2))
    loader = pd.data.DataLoader({'x': ring.astype(np.float32)}, BATCH, shuffle=True, seed=1, drop_last=True)

    graphs = [graph_of(critics_loss, 'generator/*', 'critic'), graph_of(generators_loss, 'critic/*', 'generator')]
    parameters = pd.Parameters(graphs, seed=3)
    critic, generator = (pd.Program(graph, parameters) for graph in graphs)

    @pd.function(parameters=parameters)
    def sample(z: pd.Value) -> pd.Value:
        return Networks().generator(z)

    def radii() -> Any:
        return np.linalg.norm(sample(random.standard_normal((1000, NOISE))), axis=1)

    before = np.abs(radii() - 1).mean()
    for _ in range(30):
        for batch in loader:
            critic(x=batch['x'], z=random.standard_normal((BATCH, NOISE)))
            generator(z=random.standard_normal((BATCH, NOISE)))
    pd.restore(parameters, {**dict(parameters.items()), **pd.averages_of(parameters)})
    after = np.abs(radii() - 1).mean()
    print(f'points are {before:.2f} away from the ring, and after training {after:.2f}')
    assert after < 0.5 * before


if __name__ == '__main__':
    main()
