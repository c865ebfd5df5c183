# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the five lerp_grad cases: what autograd runs for x and y, eager and compiled, cold and hot, by CUDA graphs.

Cold: one call per buffer set, with enough sets to exceed 3 x 60 MB of L2. Hot: the same number of calls on one set.
Usage: python3 benchmarks/peers/lerp_grad.py OUT.json
"""
import sys

import torch

from timing import event_us, graphed, row, save, wall_us

CASES = [
    ((16, 102400), (16, 102400), (1,), torch.float32),
    ((16, 204800), (16, 204800), (1,), torch.float64),
    ((16, 1, 1, 1), (16, 3, 224, 224), (1,), torch.float32),
    ((16, 1, 1, 1), (16, 3, 244, 244), (3, 1, 244), torch.float32),
    ((64, 1, 512, 1), (64, 256, 1, 128), (256, 512, 128), torch.float32),
]


def main():
    torch.manual_seed(0)
    device = "cuda"
    for number, (xs, ys, ws, dtype) in enumerate(CASES, 1):
        out_shape = torch.broadcast_shapes(xs, ys, ws)

        def make():
            # Gradients read only w and dout; x and y decide nothing but shapes.
            return torch.rand(ws, device=device, dtype=dtype), torch.randn(out_shape, device=device, dtype=dtype)

        def grad(w, g):
            return (g * (1 - w)).sum_to_size(xs), (g * w).sum_to_size(ys)

        def numel(shape):
            return torch.Size(shape).numel()

        size = torch.tensor([], dtype=dtype).element_size()
        nbytes = size * (numel(out_shape) + numel(ws) + numel(xs) + numel(ys))
        count = 1 if nbytes > 2e9 else min(64, max(2, int(200e6 / nbytes) + 1))
        sets = [make() for _ in range(count)]
        tag = dict(case=number, bytes=nbytes, dtype=str(dtype)[6:])
        compiled = torch.compile(grad, dynamic=False)
        compiled(*sets[0])
        for name, function in (("eager", grad), ("compiled", compiled)):
            cold = graphed(lambda: [function(*s) for s in sets])
            us = event_us(cold, reps=20)
            row("lerp_grad_" + name, state="cold", us=us[0] / count, min=us[1] / count, max=us[2] / count, **tag)
            hot = graphed(lambda: [function(*sets[0]) for _ in range(count)])
            us = event_us(hot, reps=20)
            row("lerp_grad_" + name, state="hot", us=us[0] / count, min=us[1] / count, max=us[2] / count, **tag)
            del cold, hot
        # As users run it: one forward and one backward through autograd, waited for.
        if nbytes < 2e9:
            x = torch.randn(xs, device=device, dtype=dtype, requires_grad=True)
            y = torch.randn(ys, device=device, dtype=dtype, requires_grad=True)
            w, g = sets[0]
            out = torch.lerp(x, y, w)
            us = wall_us(lambda: torch.autograd.grad(out, (x, y), g, retain_graph=True))
            row("lerp_grad_autograd", state="wall", us=us[0], min=us[1], max=us[2], **tag)
        del sets
        torch.cuda.empty_cache()
    save(sys.argv[1] if len(sys.argv) > 1 else None)


if __name__ == "__main__":
    main()
