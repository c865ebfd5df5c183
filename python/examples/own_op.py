# SPDX-License-Identifier: Apache-2.0
"""Ops of one's own: a formula with the gradient that is read off it, and rounding that gradients go through."""

from typing import Any

import numpy as np

import paoding as pd


@pd.op
def smooth_relu(a: Any, *, width: float = 1.0) -> Any:
    """0 below -width, a above it, and a parabola between"""
    curve = (a + width) ** 2 / (4 * width)
    return pd.where(a < -width, 0.0, pd.where(a > width, a, curve))


@pd.custom_gradient
def quantized(x: pd.Value, *, levels: int = 16) -> Any:
    """x rounded to 1 / levels, whose gradient is that of x"""
    return pd.ops.round(x * float(levels)) / float(levels), lambda dy: dy


def main() -> None:
    random = np.random.default_rng(0)
    x = random.standard_normal((64, 8))
    largest = pd.check_gradient(lambda x: smooth_relu(x, width=0.5), x)
    print(f'the gradient of smooth_relu is {largest:.1e} away from differences')

    @pd.function(seed=1)
    def step(x: pd.Value, y: pd.Value) -> pd.Value:
        hidden = smooth_relu(pd.nn.Linear('in', 8, 16)(x), width=0.5)
        made = pd.nn.Linear('out', 16, 1)(quantized(hidden, levels=32))
        loss = ((made[:, 0] - y) ** 2).mean()
        pd.minimize(loss, pd.Adam(0.01))
        return loss

    y = np.abs(x[:, 0]) - x[:, 1]
    losses = [step(x, y).item() for _ in range(400)]
    print(f'loss {losses[0]:.3f}, after {len(losses)} steps {losses[-1]:.4f}')
    assert losses[-1] < 0.1 * losses[0]


if __name__ == '__main__':
    main()
