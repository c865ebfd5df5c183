# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the five lerp_grad cases: what autograd runs for x and y, eager and compiled, cold and hot. On the GPU by
CUDA graphs and events, on the CPU by wall time.

Cold: one call per buffer set, with enough sets to exceed 3 x 60 MB of L2. Hot: the same number of calls on one set.
Usage: python3 benchmarks/peers/lerp_grad.py OUT.json [cuda|cpu]
"""
import sys
import time

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
    device = sys.argv[2] if len(sys.argv) > 2 else "cuda"
    on_gpu = device == "cuda"

    def time_calls(calls, large):
        """Median, min and max microseconds of all calls in a row."""
        if on_gpu:
            replay = graphed(lambda: [call() for call in calls])
            return event_us(replay, reps=20)
        times = []
        for _ in range(7 if large else 23):
            start = time.perf_counter()
            for call in calls:
                call()
            times.append((time.perf_counter() - start) * 1e6)
        times = sorted(times[3:])
        return times[len(times) // 2], times[0], times[-1]
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
        rotated = 200e6 if on_gpu else 1.5e9  # more than three times the last cache
        count = 1 if nbytes > 2e9 else min(160, max(2, int(rotated / nbytes) + 1))
        sets = [make() for _ in range(count)]
        tag = dict(case=number, bytes=nbytes, dtype=str(dtype)[6:])
        compiled = torch.compile(grad, dynamic=False)
        compiled(*sets[0])
        for name, function in (("eager", grad), ("compiled", compiled)):
            for state in ("cold", "hot"):
                chosen = sets if state == "cold" else [sets[0]] * count
                us = time_calls([lambda s=s: function(*s) for s in chosen], nbytes > 2e9)
                row("lerp_grad_" + name, state=state, device=device, us=us[0] / count, min=us[1] / count,
                    max=us[2] / count, **tag)
        # As users run it: one forward and one backward through autograd, waited for.
        if nbytes < 2e9 and on_gpu:
            x = torch.randn(xs, device=device, dtype=dtype, requires_grad=True)
            y = torch.randn(ys, device=device, dtype=dtype, requires_grad=True)
            w, g = sets[0]
            out = torch.lerp(x, y, w)
            us = wall_us(lambda: torch.autograd.grad(out, (x, y), g, retain_graph=True))
            row("lerp_grad_autograd", state="wall", us=us[0], min=us[1], max=us[2], **tag)
        del sets
        if on_gpu:
            torch.cuda.empty_cache()
    save(sys.argv[1] if len(sys.argv) > 1 else None)


if __name__ == "__main__":
    main()
