# SPDX-License-Identifier: Apache-2.0
"""Compares what `paoding run` fetched for benchmarks/lstm_t64_h512.txt.in with PyTorch's nn.LSTM and its autograd in float64.

Usage: python3 benchmarks/peers/check_lstm.py make FEEDS.safetensors T B H     writes random feeds
       python3 benchmarks/peers/check_lstm.py check FEEDS.safetensors FETCHES.safetensors [LIMIT]
Feeds x [T,B,H], h0, c0 [B,H], w, u [H,4H], b [4H], dy [T,B,H]; fetches y and dx, dh0, dc0, dw, du, db.
"""
import sys

import torch
from safetensors.torch import load_file, save_file


def make(path, steps, batch, hidden):
    torch.manual_seed(1)
    scale = hidden**-0.5
    save_file(
        {
            "x": torch.randn(steps, batch, hidden),
            "h0": torch.randn(batch, hidden),
            "c0": torch.randn(batch, hidden),
            "w": torch.randn(hidden, 4 * hidden) * scale,
            "u": torch.randn(hidden, 4 * hidden) * scale,
            "b": torch.randn(4 * hidden) * 0.1,
            "dy": torch.randn(steps, batch, hidden),
        },
        path,
    )


def reference(feeds):
    f = {name: value.double().clone().requires_grad_() for name, value in feeds.items()}
    hidden = f["h0"].shape[1]
    module = torch.nn.LSTM(hidden, hidden).double()
    parameters = {
        "weight_ih_l0": f["w"].t(),
        "weight_hh_l0": f["u"].t(),
        "bias_ih_l0": f["b"],
        "bias_hh_l0": torch.zeros_like(f["b"]),
    }
    y, _ = torch.func.functional_call(module, parameters, (f["x"], (f["h0"][None], f["c0"][None])))
    names = ["x", "h0", "c0", "w", "u", "b"]
    grads = torch.autograd.grad(y, [f[n] for n in names], f["dy"].detach())
    return {"y": y.detach(), **{"d" + n: g for n, g in zip(names, grads)}}


def main():
    if sys.argv[1] == "make":
        make(sys.argv[2], *map(int, sys.argv[3:6]))
        return
    limit = float(sys.argv[4]) if len(sys.argv) > 4 else 2e-6
    feeds, fetched = load_file(sys.argv[2]), load_file(sys.argv[3])
    expected = reference(feeds)
    worst = 0.0
    for name, value in sorted(expected.items()):
        if name not in fetched:
            continue
        error = ((fetched[name].double() - value).norm() / value.norm()).item()
        worst = max(worst, error)
        print(f"{name:4} relative error {error:.2e}")
    verdict = "right" if worst <= limit else "WRONG"
    print(f"{verdict}: worst {worst:.2e}, limit {limit:.0e}, against nn.LSTM in float64")
    sys.exit(worst > limit)


if __name__ == "__main__":
    main()
