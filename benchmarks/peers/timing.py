# SPDX-License-Identifier: Apache-2.0
"""Timing helpers shared by the PyTorch side of the benchmarks (one GPU)."""
import json, os, statistics, time
import torch

def event_us(fn, warm=10, reps=50, inner=1):
    """Median microseconds per call of fn by CUDA events, with its spread."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    out = []
    for _ in range(reps):
        a, b = torch.cuda.Event(True), torch.cuda.Event(True)
        a.record()
        for _ in range(inner):
            fn()
        b.record()
        b.synchronize()
        out.append(a.elapsed_time(b) * 1e3 / inner)
    out.sort()
    return out[len(out) // 2], out[0], out[-1]

def wall_us(fn, warm=10, reps=50):
    """Median wall microseconds of fn followed by a synchronize: what a caller waits."""
    for _ in range(warm):
        fn()
    torch.cuda.synchronize()
    out = []
    for _ in range(reps):
        t = time.perf_counter()
        fn()
        torch.cuda.synchronize()
        out.append((time.perf_counter() - t) * 1e6)
    out.sort()
    return out[len(out) // 2], out[0], out[-1]

def graphed(fn, warm=3):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(warm):
            fn()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        fn()
    return g.replay

ROWS = []
def row(name, **kw):
    r = dict(name=name, **kw)
    ROWS.append(r)
    print(json.dumps(r), flush=True)

def save(path):
    if path:
        with open(path, "w") as f:
            json.dump(ROWS, f, indent=1)
