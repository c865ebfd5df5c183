# SPDX-License-Identifier: Apache-2.0
"""A recurrence as its step and nothing else, its gradient, and a loop that ends when a condition says so."""

import numpy as np

import paoding as pd

with pd.Graph() as graph:
    xs = graph.input('xs', pd.f32, (16, 8))
    w = graph.input('w', pd.f32, (8, 8))

    def step(carry: dict[str, pd.Value], x: pd.Value) -> tuple[dict[str, pd.Value], pd.Value]:
        h = pd.tanh(x + carry['h'] @ w)
        return {'h': h, 'most': pd.maximum(carry['most'], h.max())}, h

    last, hs = pd.scan(step, {'h': pd.zeros((1, 8)), 'most': pd.full((), -1.0)}, xs)
    graph.fetch('hs', hs)
    graph.fetch('most', last['most'])
    graph.fetch('gradient', pd.gradients(hs.sum(), w))
    halvings = pd.while_loop(
        lambda v: v[0] > 1e-3, lambda v: (v[0] / 2, v[1] + 1), (last['most'], pd.full((), 0, pd.i64))
    )
    graph.fetch('halvings', halvings[1])

random = np.random.default_rng(0)
xs_fed, w_fed = (
    random.standard_normal((16, 8)).astype(np.float32),
    random.standard_normal((8, 8)).astype(np.float32) / 4,
)
results = pd.Program(graph)(xs=xs_fed, w=w_fed)

h, most = np.zeros((1, 8), np.float32), -1.0
for x in xs_fed:
    h = np.tanh(x + h @ w_fed)
    most = max(most, float(h.max()))
np.testing.assert_allclose(results['hs'].numpy()[-1], h, rtol=1e-4, atol=1e-5)
np.testing.assert_allclose(results['most'].item(), most, rtol=1e-5)
print(f'most {results["most"].item():.4f}, {results["halvings"].item()} halvings, gradient {results["gradient"].shape}')
