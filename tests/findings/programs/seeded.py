# SPDX-License-Identifier: Apache-2.0
"""Programs with one planted fault each, beside twins without it: times both in turns and records a trace of each.

A program is a function under @fault or @clean that builds its step: build(True) with the fault, build(False) without it.
    python3 feeding.py --out FOLDER [NAME..]     times and records these, all of the file where none is named
    python3 feeding.py --fault NAME | --clean NAME   only runs it, for 50 steps
    python3 feeding.py --warm [NAME..]          only compiles what is compiled
FOLDER gets NAME.fault.json, NAME.clean.json and NAME.numbers.json. Without a GPU sizes are tiny: that tests the code.
"""
import argparse
import contextlib
import gc
import json
import os
import statistics
import sys
import time
import traceback

import torch

CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
BF16 = torch.bfloat16
PROGRAMS = {}


def size(count):
    """A dimension as it is on a GPU; a small one of the same oddness elsewhere."""
    return count if CUDA else max(count % 8 + 8, count // 64 // 8 * 8 + count % 8)


class Program:
    def __init__(self, build, kind, **options):
        self.build, self.kind, self.name = build, kind, build.__name__
        self.mode = "eager"
        self.also = ()        # kinds that are true of the fault too, as its causes or consequences
        self.active = 7       # steps that the trace holds
        self.warm = 3         # steps in front of them
        self.shapes = True
        self.stack = False
        self.once = False     # the fault costs only some steps: means are compared, not medians, and only those recorded
        self.count = 0        # steps in a block that is timed; 0: as many as take 50 ms
        self.alone = False    # wants a process of its own: it changes what cannot be changed back
        for key, value in options.items():
            if not hasattr(self, key):
                raise TypeError(f"no option {key}")
            setattr(self, key, value)


def fault(kind, **options):
    """Registers a program that has a fault of `kind`."""
    def register(build):
        PROGRAMS[build.__name__] = Program(build, kind, **options)
        return build
    return register


def clean(**options):
    """Registers a program without a fault, which has no twin."""
    return fault("", **options)


class Side:
    """A built program, with or without its fault."""

    def __init__(self, program, faulty):
        torch.manual_seed(1)
        built = program.build(faulty)
        self.step, self.enter, self.close = built if isinstance(built, tuple) else (built, None, None)

    def go(self):
        if self.enter:
            self.enter()

    def end(self):
        if self.close:
            self.close()


def synchronize():
    if CUDA:
        torch.cuda.synchronize()


def block(side, count):
    """ns a step of the wall, and of every step on the device's clock."""
    side.go()
    synchronize()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(count + 1)] if CUDA else []
    begin = time.perf_counter_ns()
    for i in range(count):
        if CUDA:
            marks[i].record()
        side.step()
    if CUDA:
        marks[count].record()
    synchronize()
    wall = (time.perf_counter_ns() - begin) / count
    return wall, [1e6 * a.elapsed_time(b) for a, b in zip(marks, marks[1:])]


def in_turns(fault_side, clean_side, seconds, count):
    """Blocks of both in turns, ABBA: medians of the walls of blocks, and of the steps on the device."""
    sides = {"fault": fault_side, "clean": clean_side}
    walls, devices, counts = {}, {}, {}
    for name, side in sides.items():
        block(side, 3 if CUDA else 1)
        wall, _ = block(side, 3 if CUDA else 1)
        counts[name] = (count or int(min(60, max(4, 5e7 / wall)))) if CUDA else 2
        walls[name], devices[name] = [], []
    begin = time.monotonic()
    for turn in range(9):
        if turn >= 3 and time.monotonic() - begin > seconds:
            break
        for name in ("fault", "clean") if turn % 2 == 0 else ("clean", "fault"):
            wall, steps = block(sides[name], counts[name])
            walls[name].append(wall)
            devices[name] += steps
    found = {"blocks": len(walls["fault"]), "steps": counts}
    for name in sides:
        found[name] = {"wall_ns": statistics.median(walls[name]), "walls_ns": [round(one) for one in walls[name]]}
        if devices[name]:
            found[name]["device_ns"] = statistics.median(devices[name])
    return found


def record(program, side, path):
    """Writes a trace of program.active steps; ns a step under the profiler, of the wall, on average of those steps."""
    from torch.profiler import ProfilerActivity, profile, schedule
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if CUDA else [])
    side.go()
    synchronize()
    gc.collect()
    with profile(activities=activities, record_shapes=program.shapes, with_stack=program.stack,
                 schedule=schedule(wait=0, warmup=program.warm, active=program.active, repeat=1),
                 on_trace_ready=lambda done: done.export_chrome_trace(path)) as recorder:
        for _ in range(program.warm):
            side.step()
            recorder.step()
        synchronize()
        begin = time.perf_counter_ns()
        for i in range(program.active):
            side.step()
            if i == program.active - 1:
                synchronize()
                wall = (time.perf_counter_ns() - begin) / program.active
            recorder.step()
    return wall


def warm(program):
    """Compiles the program's kernels, which fills the caches of compilers for the process that measures."""
    for faulty in (False, True) if program.kind and not program.once else (False,):
        block(Side(program, faulty), 3)


def measure(program, out, seconds, round_number):
    numbers = {"name": program.name, "kind": program.kind, "mode": program.mode, "also": list(program.also),
               "once": program.once, "framework": "pytorch", "round": round_number,
               "device": torch.cuda.get_device_name() if CUDA else "cpu"}
    begin = time.monotonic()
    path = os.path.join(out, program.name)
    if not program.kind:
        side = Side(program, False)
        walls = [block(side, 4)[0] for _ in range(3)]
        if round_number == 0:
            numbers["recorded_ns"] = {"clean": record(program, side, path + ".clean.json")}
        numbers["clean"] = {"wall_ns": statistics.median(walls)}
        side.end()
    else:
        sides = {name: Side(program, name == "fault") for name in ("clean", "fault")}
        if program.once:  # the first recording holds what happens once
            numbers["recorded_ns"] = {name: record(program, side, f"{path}.{name}.json")
                                      for name, side in sides.items()}
        else:
            numbers.update(in_turns(sides["fault"], sides["clean"], seconds, program.count))
            if round_number == 0:
                numbers["recorded_ns"] = {name: record(program, side, f"{path}.{name}.json")
                                          for name, side in sides.items()}
        for side in sides.values():
            side.end()
    numbers["took_s"] = round(time.monotonic() - begin, 2)
    with open(f"{path}.{round_number}.numbers.json", "w") as file:
        json.dump(numbers, file)
    told = "  ".join(f"{name} {numbers[name]['wall_ns'] / 1e3:9.1f}" for name in ("fault", "clean") if name in numbers)
    under = "  ".join(f"{name} {ns / 1e3:9.1f}" for name, ns in numbers.get("recorded_ns", {}).items())
    print(f"{program.kind or 'clean':20} {program.name:28} us: {told}   under the profiler: {under}   "
          f"{numbers['took_s']} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out")
    parser.add_argument("--fault")
    parser.add_argument("--clean")
    parser.add_argument("--round", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    if asked.list:
        for one in PROGRAMS.values():
            print(one.name, one.kind or "clean", one.mode, "alone" if one.alone else "")
        return 0
    if asked.fault or asked.clean:
        side = Side(PROGRAMS[asked.fault or asked.clean], bool(asked.fault))
        wall, _ = block(side, 50)
        print(f"{wall / 1e3:.1f} us a step")
        side.end()
        return 0
    failed = 0
    if asked.out:
        os.makedirs(asked.out, exist_ok=True)
    own = [one.name for one in PROGRAMS.values() if one.build.__module__ == "__main__" and not one.alone]
    for name in asked.names or own:
        try:
            if asked.warm:
                warm(PROGRAMS[name])
                continue
            measure(PROGRAMS[name], asked.out, asked.seconds, asked.round)
        except Exception:
            failed += 1
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
        gc.collect()
        if CUDA:
            torch.cuda.empty_cache()
    return 1 if failed else 0


# ---- parts of programs ----

class Layers:
    """Products of `width` with an activation between them, trained by a fused optimizer: a step that the GPU is busy in."""

    def __init__(self, batch=8192, width=4096, layers=4, inputs=64, outputs=256, dtype=BF16, device=DEVICE):
        self.batch, width = size(batch), size(width)
        sizes = [size(inputs)] + [width] * layers + [size(outputs)]
        self.linears = torch.nn.ModuleList(torch.nn.Linear(a, b, bias=False, device=device, dtype=dtype)
                                           for a, b in zip(sizes, sizes[1:]))
        self.optimizer = torch.optim.SGD(self.linears.parameters(), lr=1e-3, fused=CUDA)
        self.x = torch.randn(self.batch, sizes[0], device=device, dtype=dtype)
        self.y = torch.randn(self.batch, sizes[-1], device=device, dtype=dtype)

    def forward(self, x):
        for linear in self.linears[:-1]:
            x = torch.relu(linear(x))
        return self.linears[-1](x)

    def loss(self, x=None, y=None):
        return torch.nn.functional.mse_loss(self.forward(self.x if x is None else x), self.y if y is None else y)

    def train(self, x=None, y=None, set_to_none=True):
        self.optimizer.zero_grad(set_to_none=set_to_none)
        loss = self.loss(x, y)
        loss.backward()
        self.optimizer.step()
        return loss


class Captured:
    """A function as one CUDA graph; the function itself where there is no GPU."""

    def __init__(self, function):
        self.function = function
        if not CUDA:
            return
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(3):
                function()
        torch.cuda.current_stream().wait_stream(beside)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            self.out = function()

    def __call__(self):
        if not CUDA:
            return self.function()
        self.graph.replay()
        return self.out


def side_stream():
    return torch.cuda.Stream() if CUDA else None


def on_stream(stream):
    return torch.cuda.stream(stream) if stream else contextlib.nullcontext()


def pinned(tensor):
    return tensor.pin_memory() if CUDA else tensor


def without_gradients(function):
    def step():
        with torch.no_grad():
            return function()
    return step


def precision(f32_products):
    """A function that sets how f32 products are computed: "highest" exactly, "high" by tensor cores."""
    def enter():
        torch.set_float32_matmul_precision(f32_products)
        torch.backends.cudnn.allow_tf32 = f32_products == "high"
    return enter


if __name__ == "__main__":
    sys.exit("a file of programs is what runs: feeding.py, kernels.py ...")
