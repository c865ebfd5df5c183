# SPDX-License-Identifier: Apache-2.0
"""Programs of paoding's own with one planted fault each, beside twins without it, as seeded.py has them for PyTorch.

    python3 own.py --paoding BUNDLE/paoding --out FOLDER [NAME..]    FOLDER gets NAME.fault.paoding, NAME.clean.paoding, numbers
    python3 own.py --text NAME fault|clean                           prints the graph
A fault is a switch of `paoding run`, or another graph. Both are timed by processes in turns.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import traceback

PROGRAMS = {}


class Text:
    """A graph as text, an op a line."""

    def __init__(self):
        self.lines, self.count = ["paoding graph 1"], 0

    def input(self, name, *shape, kind="input"):
        self.lines.append(f"{name} = {kind} f32[{','.join(map(str, shape))}]")
        return name

    def parameter(self, name, *shape):
        return self.input(name, *shape, kind="parameter")

    def __call__(self, op, *values, scope="", **attributes):
        self.count += 1
        name = f"v{self.count}"
        told = ", ".join(f"{key}={value}" for key, value in attributes.items())
        self.lines.append(f"{name} = {op}({', '.join(values)})" + (f" {{{told}}}" if told else "")
                          + (f' @"{scope}"' if scope else ""))
        return name

    def say(self, line):
        self.lines.append(line)

    def __str__(self):
        return "\n".join(self.lines) + "\n"


def fault(kind, also=(), fault_flags=(), clean_flags=(), flags=()):
    """`paoding run` waits for each of its runs, which is a finding of its own where they are short."""
    also = tuple(dict.fromkeys((*also, "sync_in_step")))

    def register(build):
        name = "own_" + build.__name__
        PROGRAMS[name] = argparse.Namespace(name=name, kind=kind, also=also, build=build,
                                            flags={"fault": [*flags, *fault_flags], "clean": [*flags, *clean_flags]})
        return build
    return register


def layers(rows=8192, width=4096, train=True):
    text = Text()
    x, y = text.input("x", rows, 64), text.input("y", rows, 256)
    sizes = [64] + [width] * 4 + [256]
    weights = [text.parameter(f"w{i}", a, b) for i, (a, b) in enumerate(zip(sizes, sizes[1:]))]
    for i, weight in enumerate(weights):
        x = text("matmul", x, weight, scope=f"layer{i}")
        if i < 4:
            x = text("relu", x, scope=f"layer{i}")
    apart = text("sub", x, y, scope="loss")
    loss = text("mean", text("mul", apart, apart, scope="loss"), scope="loss")
    if train:
        slopes = [f"d{i}" for i in range(len(weights))]
        text.say(f"{', '.join(slopes)} = gradients({loss}) by ({', '.join(weights)})")
        rate = text("full", value=0.001, dtype="f32")
        for weight, slope in zip(weights, slopes):
            text.say(f'assign {weight} = {text("sub", weight, text("mul", slope, rate, scope="update"), scope="update")}')
    text.say(f"fetch loss = {loss}")
    return text


def chain():
    """A long chain of elementwise ops between products."""
    text = Text()
    x, a, b = text.input("x", 8192, 1024), text.parameter("w1", 1024, 4096), text.parameter("w2", 4096, 4096)
    scale, bias = text.parameter("s", 4096), text.parameter("b", 4096)
    first = text("matmul", x, a)

    def bend(value, scope):
        moved = text("add", text("mul", value, scale, scope=scope), bias, scope=scope)
        gate = text("mul", text("sigmoid", moved, scope=scope), moved, scope=scope)
        return text("mul", text("tanh", gate, scope=scope), value, scope=scope)
    second = text("matmul", bend(first, "between"), b)
    loss = text("sum", bend(second, "behind"))
    text.say(f"fetch loss = {loss}")
    return text


@fault("pointwise_chain", fault_flags=["--no-pass", "fuse_groups"], flags=["--dtype", "bf16"])
def chain_not_fused(faulty):
    return chain()


@fault("pointwise_chain", fault_flags=["--no-pass", "fuse_groups"], flags=["--tf32"])
def training_not_fused(faulty):
    return layers()


@fault("exact_f32_product", clean_flags=["--tf32"])
def exact_products(faulty):
    return layers(rows=4096, width=2048)


@fault("exact_f32_product", clean_flags=["--dtype", "bf16"])
def f32_for_bf16(faulty):
    return layers(rows=4096, width=2048, train=False)


@fault("odd_dimensions", flags=["--dtype", "bf16"])
def odd_width(faulty):
    return layers(rows=8192, width=4093 if faulty else 4096)


@fault("odd_dimensions", flags=["--dtype", "bf16"], fault_flags=["--no-pass", "align_products"])
def products_not_aligned(faulty):
    return layers(rows=8192, width=3999, train=False)


@fault("late_launches", fault_flags=["--stepwise"], flags=["--dtype", "bf16"])
def launched_step_by_step(faulty):
    return layers(rows=2048, width=1024)


@fault("layout_kernels", fault_flags=["--no-pass", "alias_views"], flags=["--dtype", "bf16"])
def views_that_are_copies(faulty):
    text = Text()
    x, w, u = text.input("x", 8192, 1024), text.parameter("w", 1024, 6144), text.parameter("u", 2048, 1024)
    wide = text("matmul", x, w)
    total = None
    for i in range(3):
        part = text("slice", wide, start=f"[0,{2048 * i}]", end=f"[8192,{2048 * (i + 1)}]")
        found = text("sum", text("matmul", part, u))
        total = text("add", total, found) if total else found
    text.say(f"fetch loss = {total}")
    return text


@fault("exposed_copies", also=("pageable_copies",), flags=["--dtype", "bf16"])
def all_of_a_result_fetched(faulty):
    text = Text()
    x, a, b = text.input("x", 4096, 2048), text.parameter("w1", 2048, 8192), text.parameter("w2", 8192, 4096)
    big = text("matmul", text("relu", text("matmul", x, a)), b)
    text.say(f"fetch loss = {text('sum', big)}")
    if faulty:
        text.say(f"fetch big = {big}")
    return text


@fault("small_grid", also=("late_launches",))
def rows_one_by_one(faulty):
    """Softmax of eight rows at a time, for eight times; the twin takes them all at once."""
    text = Text()
    parts = [text.input(f"x{i}", 8, 1 << 17) for i in range(8)] if faulty else [text.input("x", 64, 1 << 17)]
    total = None
    for part in parts:
        held = text("barrier", part) if total is None else text("add", part, text("mul", total, text(
            "full", value=0.0, dtype="f32")))
        found = text("sum", text("cumsum", held, axis=1))
        total = found
    text.say(f"fetch loss = {total}")
    return text


@fault("")
def training(faulty):
    return layers(rows=16384)


@fault("", flags=["--dtype", "bf16"])
def inference(faulty):
    return layers(rows=16384, width=8192, train=False)


def run(asked, program, which, repeat, *more):
    text = str(program.build(which == "fault"))
    path = os.path.join(asked.out, f"{program.name}.{which}.txt")
    with open(path, "w") as file:
        file.write(text)
    command = [asked.paoding, "run", path, "--random", "1", "--repeat", str(repeat), "--device", asked.device, "--json",
               *program.flags[which], *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr[-600:]}")
    return done.stdout


def measure(asked, program):
    begin = time.monotonic()
    sides = ("clean", "fault") if program.kind else ("clean",)
    walls = {which: [] for which in sides}
    for turn in range(asked.turns):
        for which in sides[::1 if turn % 2 == 0 else -1]:
            walls[which].append(1e6 * json.loads(run(asked, program, which, asked.repeat))["median_ms"])
    recorded = {}
    for which in sides:
        path = os.path.join(asked.out, f"{program.name}.{which}.paoding")
        told = run(asked, program, which, 14, "--profile-path", path, "--profile-steps", "4:12", "--format", "json", "--profile")
        recorded[which] = 1e6 * json.loads(told)["median_ms"]
    numbers = {"name": program.name, "kind": program.kind, "mode": "graph", "also": list(program.also), "once": False,
               "framework": "paoding", "round": 0, "recorded_ns": recorded, "device": asked.card}
    for which in sides:
        numbers[which] = {"wall_ns": statistics.median(walls[which]), "walls_ns": [round(one) for one in walls[which]]}
    with open(os.path.join(asked.out, f"{program.name}.0.numbers.json"), "w") as file:
        json.dump(numbers, file)
    told = "  ".join(f"{which} {statistics.median(ns) / 1e3:9.1f}" for which, ns in walls.items())
    under = "  ".join(f"{which} {ns / 1e3:9.1f}" for which, ns in recorded.items())
    print(f"{program.kind or 'clean':20} {program.name:28} us: {told}   under the profiler: {under}   "
          f"{time.monotonic() - begin:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--paoding", default="build/paoding")
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--text", action="store_true")
    asked = parser.parse_args()
    if asked.text:
        print(PROGRAMS[asked.names[0]].build(asked.names[1] == "fault"), end="")
        return 0
    os.makedirs(asked.out, exist_ok=True)
    try:
        asked.card = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                                    text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        asked.card = "cpu"
    failed = 0
    for name in asked.names or list(PROGRAMS):
        try:
            measure(asked, PROGRAMS[name])
        except Exception:
            failed += 1
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
