# SPDX-License-Identifier: Apache-2.0
"""Faults of launching and of single steps: launches that come late, allocations, first calls, rare steps, new graphs."""
import gc
import os
import sys
import tempfile
import time

import torch

from seeded import (BF16, CUDA, DEVICE, Captured, Layers, fault, main, size, without_gradients)


# ---- late_launches ----

def small_layers(layers, width=1024, batch=2048):
    model = Layers(batch=batch, width=width, layers=layers)
    return without_gradients(lambda: model.forward(model.x))


@fault("late_launches")
def small_layers_one_by_one(faulty):
    step = small_layers(layers=32)
    return step if faulty else Captured(step)


@fault("late_launches", stack=True)
def python_between_layers(faulty):
    """The host is busy with Python between layers; the twin is not."""
    model = Layers(batch=4096, width=2048, layers=8)
    table = {f"layer{i}": list(range(6000)) for i in range(len(model.linears))}

    def log_statistics(layer):
        total = 0
        for value in table[layer]:
            total += value * value
        return total

    def step():
        x = model.x
        for i, linear in enumerate(model.linears):
            x = torch.relu(linear(x))
            if faulty:
                log_statistics(f"layer{i}")
    return without_gradients(step)


@fault("late_launches")
def trained_one_by_one(faulty):
    """A training step of many small layers, op by op; the twin replays it as a graph."""
    model = Layers(batch=2048, width=1024, layers=16)
    return model.train if faulty else Captured(model.train)


# ---- allocation_in_step ----

@fault("allocation_in_step", also=("late_launches", "sync_in_step"))
def cache_emptied_every_step(faulty):
    model = Layers(batch=4096)

    def step():
        model.train()
        if faulty and CUDA:
            torch.cuda.empty_cache()
    return step


@fault("allocation_in_step", also=("late_launches", "sync_in_step"))
def cache_emptied_every_layer(faulty):
    model = Layers(batch=4096, width=4096)

    def step():
        x = model.x
        for linear in model.linears:
            x = torch.relu(linear(x))
            if faulty and CUDA:
                torch.cuda.empty_cache()
    return without_gradients(step)


@fault("allocation_in_step", also=("late_launches", "sync_in_step"), alone=True)
def lengths_that_fit_no_block(faulty):
    """Batches of other lengths in memory that is short: blocks are freed to make room. The twin has one buffer for all."""
    if CUDA:
        torch.cuda.memory._set_allocator_settings("max_split_size_mb:64")
    model = Layers(batch=2048, width=2048, layers=3)
    width, most = size(2048), (120_000 if CUDA else 40)
    buffers = [torch.empty(most, width, device=DEVICE, dtype=BF16) for _ in range(2)]
    if CUDA:
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1600 << 20)) / whole)
    turn = [0]

    def step():
        rows = most // 2 + most // 60 * (turn[0] * 11 % 29)
        turn[0] += 1
        held = torch.empty(rows, width, device=DEVICE, dtype=BF16) if faulty else buffers[0][:rows]
        more = torch.empty_like(held) if faulty else buffers[1][:rows]
        torch.mul(held.zero_(), 2, out=more)
        model.train()
    return step


# ---- late_compile ----

@fault("late_compile", once=True, alone=True, also=("late_launches", "rare_slow_steps"))
def ops_called_first_in_steps(faulty):
    """In each step an op is called for the first time, and its kernel loaded; the twin calls one that was loaded."""
    model = Layers(batch=2048)
    x = torch.rand(size(1024), size(1024), device=DEVICE) + 0.5
    ops = [torch.lgamma, torch.digamma, torch.i0, torch.special.i1e, torch.sinc, torch.erfinv, torch.logit,
           torch.special.ndtri, torch.special.entr, torch.special.log_ndtr, torch.atan, torch.acosh, torch.asinh,
           torch.special.bessel_j0, torch.special.bessel_y1] if faulty else [torch.erf]
    turn = [0]

    def step():
        model.train()
        ops[turn[0] % len(ops)](x)
        turn[0] += 1
    return step


@fault("late_compile", once=True, alone=True, also=("late_launches", "rare_slow_steps"))
def sizes_compiled_in_steps(faulty):
    """A Triton kernel with a new constant in each step, which is compiled then; the twin pads to one size."""
    model = Layers(batch=2048)
    turn = [0]
    if CUDA:
        import triton_kernels
        x = torch.randn(1 << 16, 16, device=DEVICE)

    def step():
        model.train()
        turn[0] += 1
        if CUDA:
            y = torch.empty_like(x)
            rows, warps = (8 << (turn[0] % 6), 4 if turn[0] < 6 else 8) if faulty else (128, 4)
            grid = ((x.shape[0] + rows - 1) // rows,)
            triton_kernels._small_rows_norm[grid](x, y, x.shape[0], WIDTH=16, ROWS=rows, num_warps=warps)
    return step


# ---- rare_slow_steps ----

@fault("rare_slow_steps", mode="graph", active=40, shapes=False, count=45, also=("late_launches",))
def garbage_collected(faulty):
    """Python's collector goes through a large heap in every ninth step; the twin froze the heap."""
    model = Layers(batch=4096, width=2048, layers=3)
    heap = [[i, {}] for i in range(400_000 if CUDA else 1000)]
    turn = [0]
    replay = Captured(model.train)

    def enter():
        gc.unfreeze()
        gc.collect()
        if not faulty:
            gc.freeze()

    def step():
        replay()
        turn[0] += 1
        if turn[0] % 9 == 0:
            gc.collect()
        return heap

    def close():
        gc.unfreeze()
        heap.clear()
    return step, enter, close


@fault("rare_slow_steps", mode="graph", active=40, shapes=False, count=45, also=("sync_in_step", "pageable_copies"))
def checkpoints_on_the_way(faulty):
    """Every tenth step writes the parameters to a file; the twin writes none."""
    model = Layers(batch=4096, width=2048, layers=3)
    replay = Captured(model.train)
    turn = [0]

    def step():
        replay()
        turn[0] += 1
        if faulty and turn[0] % 10 == 0:
            with tempfile.NamedTemporaryFile() as file:
                torch.save(model.linears.state_dict(), file)
                os.fsync(file.fileno())
    return step


@fault("rare_slow_steps", mode="graph", active=40, shapes=False, count=45, also=("late_data",))
def loader_that_stalls(faulty):
    """A batch in thirteen comes from a disk that is slow."""
    model = Layers(batch=4096, width=2048, layers=3)
    replay = Captured(model.train)
    turn = [0]

    def step():
        with torch.profiler.record_function("read_batch"):
            turn[0] += 1
            if faulty and turn[0] % 13 == 0:
                time.sleep(0.03)
        replay()
    return step


# ---- rebuilt_graph ----

@fault("rebuilt_graph", mode="graph", also=("late_launches", "sync_in_step", "allocation_in_step"))
def captured_every_step(faulty):
    model = Layers(batch=2048, width=2048, layers=8)
    forward = without_gradients(lambda: model.forward(model.x))
    replay = Captured(forward)

    def step():
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            forward()
        graph.replay()
    return step if faulty and CUDA else replay


@fault("rebuilt_graph", mode="graph", also=("late_launches",))
def instantiated_every_step(faulty):
    """A graph that was captured once is instantiated in every step."""
    model = Layers(batch=2048, width=2048, layers=16)
    forward = without_gradients(lambda: model.forward(model.x))
    if not CUDA:
        return forward
    beside = torch.cuda.Stream()
    with torch.cuda.stream(beside):
        for _ in range(3):
            forward()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    with torch.cuda.graph(graph):
        forward()
    graph.instantiate()

    def step():
        if faulty:
            graph.instantiate()
        graph.replay()
    return step


@fault("rebuilt_graph", mode="graph", also=("late_launches",))
def captured_for_every_length(faulty):
    """A graph for the length at hand, though it was seen before; the twin keeps one for each of three lengths."""
    models = [Layers(batch=batch, width=2048, layers=8) for batch in (2048, 3072, 4096)]
    forwards = [without_gradients(lambda model=model: model.forward(model.x)) for model in models]
    replays = [Captured(forward) for forward in forwards]
    pool = torch.cuda.graph_pool_handle() if CUDA else None
    beside = torch.cuda.Stream() if CUDA else None
    held = []
    turn = [0]

    def step():
        turn[0] += 1
        length = turn[0] % 3
        if not faulty or not CUDA:
            return replays[length]()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(beside):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            forwards[length]()
            graph.capture_end()
            graph.replay()
        held[:] = held[-8:] + [graph]  # one that still runs must not go
    return step


if __name__ == "__main__":
    sys.exit(main())
