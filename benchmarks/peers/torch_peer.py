# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the cases of `paoding bench`: as its users run it, and at its best settings (compiled, as a CUDA graph; on
the CPU compiled and with outputs given). Usage: torch_peer.py cuda|cpu, then see protocol.py.

On the GPU every set of buffers has outputs of its own, which a CUDA graph keeps: nothing is allocated while it is timed.
On the CPU what a call returned is kept until the set's next turn, so that outputs rotate with the inputs there too; what it
takes where they are dropped, and lie in the same memory again, hot in a row that is cold, stands beside it ("results
dropped"). compare starts this four times: as it is, and with an allocator that keeps its pages (KEEPS_PAGES=1), both without
what is compiled and with that alone (TORCH_WAYS=eager, compiled), so that what takes too long to compile loses only itself.
"""
import os
import sys

import torch

import torch_attention
import torch_gpt
import torch_image_nets
import torch_kernels
import torch_models
import torch_recurrent
import torch_transformer
from protocol import Timing, serve, time_calls

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda"
ON_GPU = DEVICE == "cuda"
KEEPS_PAGES = os.environ.get("KEEPS_PAGES") == "1"
WAYS = os.environ.get("TORCH_WAYS", "all")
WORKS = {**torch_kernels.WORKS, **torch_attention.WORKS, **torch_recurrent.WORKS, **torch_models.WORKS,
         **torch_image_nets.WORKS, **torch_gpt.WORKS, **torch_transformer.WORKS}
if not ON_GPU:
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))


def graphed(calls):
    """One CUDA graph that makes all calls, and what they returned, which is not freed."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            calls[0]()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph, kept = torch.cuda.CUDAGraph(), []
    with torch.cuda.graph(graph):
        for call in calls:
            kept.append(call())
    return graph, kept


def time_on_gpu(replay, units, quick):
    """By events around so many replays that they take about 2 ms."""
    def between(count):
        first, last = torch.cuda.Event(True), torch.cuda.Event(True)
        first.record()
        for _ in range(count):
            replay()
        last.record()
        last.synchronize()
        return first.elapsed_time(last) * 1e3 / count
    between(3)
    count = max(1, min(200, int(2000 / max(between(4), 1))))
    samples = 10 if quick else 50
    return Timing([between(count) / units for _ in range(samples)])


def waited(call):
    def run():
        call()
        torch.cuda.synchronize()
    return run


SWEPT = []


def sweep():
    """Goes through the caches."""
    if not SWEPT:
        SWEPT.append(torch.ones(50_000_000 if ON_GPU else 300_000_000, device=DEVICE))
    SWEPT[0].sum()
    if ON_GPU:
        torch.cuda.synchronize()


def on_gpu(name, make, state, quick, graphs=True):
    """`make(set)` gives a call that works on buffers of its own."""
    row = {"cache": state["cache"], "clock": state["clock"]}
    limits = dict(least=10, most=50, seconds=0.1) if quick else dict(least=50, most=200, seconds=0.3)
    if state.get("swept"):
        limits.update(before=sweep, most=50)
    found = []
    if state["clock"] == "wall":
        call = make(0)
        found.append(({**row, "peer": name}, lambda: time_calls(waited(call), **limits)))
    if not graphs:
        return found
    try:
        if state["clock"] == "wall":
            calls, units = [make(0)], 1
        elif state["sets"] > 1:
            calls = [make(i) for i in range(state["sets"])]
            units = len(calls)
        else:
            one = make(0)
            calls = [one] * (20 if state.get("small") else 1)
            units = len(calls)
        graph, kept = graphed(calls)
    except Exception as error:
        torch.cuda.synchronize()
        return found + [({**row, "peer": name + ", graph", "why": f"{type(error).__name__}: {error}"[:200]}, None)]
    keep = (graph, kept, calls)
    if state["clock"] == "wall":
        timed = lambda keep=keep: time_calls(waited(graph.replay), **limits)
    else:
        timed = lambda keep=keep: time_on_gpu(graph.replay, units, quick)
    return found + [({**row, "peer": name + ", graph"}, timed)]


def on_cpu(name, make, state, quick):
    limits = dict(least=5, most=30, seconds=0.1) if quick else dict(least=20, most=100, seconds=0.5)
    calls = [make(i) for i in range(state["sets"])]
    if state.get("swept"):
        limits.update(before=sweep, most=50)

    def run():
        for call in calls:
            call()

    def run_keeping():
        for i, call in enumerate(calls):
            kept[i] = None
            kept[i] = call()

    def time_keeping():
        timing = time_calls(run_keeping, units=len(calls), **limits)
        kept[:] = [None] * len(calls)
        return timing
    kept = [None] * len(calls)
    name += ", pages kept" if KEEPS_PAGES else ""
    row = {"peer": name, "cache": state["cache"], "clock": "wall"}
    if len(calls) == 1 or "outputs given" in name:
        return [(row, lambda: time_calls(run, units=len(calls), **limits))]
    return [(row, time_keeping),
            ({**row, "peer": name + ", results dropped"}, lambda: time_calls(run, units=len(calls), **limits))]


def remembered(make):
    """The same call for the same set, whoever asks: models are built and compiled once for all states."""
    made = {}

    def call_of(i):
        if i not in made:
            made[i] = make(i)
        return made[i]
    return call_of


def prepare(case, states, quick):
    if case["kind"] not in WORKS:
        return []
    torch._dynamo.reset()
    if ON_GPU:
        torch.cuda.empty_cache()
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = case["tf32"]
        torch.backends.cudnn.benchmark = True
    torch.manual_seed(0)
    works = [work for work in WORKS[case["kind"]](case, DEVICE)
             if WAYS == "all" or ("compiled" in work["peer"]) == (WAYS == "compiled")]
    for work in works:
        if "make" in work:
            work["make"] = remembered(work["make"])
    prepared = []
    for state in states:
        for work in works:
            if work.get("clock", state["clock"]) != state["clock"]:
                continue
            if "timed" in work:  # what is no call that could be timed from here
                row = {"peer": work["peer"], "cache": state["cache"], "clock": state["clock"]}
                prepared.append((row, work["timed"]))
                continue
            try:
                timed = (on_gpu(work["peer"], work["make"], state, quick, work.get("graphs", True)) if ON_GPU
                         else on_cpu(work["peer"], work["make"], state, quick))
                prepared += timed
            except Exception as error:
                if ON_GPU:
                    torch.cuda.synchronize()
                row = {"peer": work["peer"], "cache": state["cache"], "clock": state["clock"]}
                prepared.append(({**row, "why": f"{type(error).__name__}: {error}"[:200]}, None))
    return prepared


if __name__ == "__main__":
    serve(prepare)
