# SPDX-License-Identifier: Apache-2.0
"""Programs of paoding's own with one planted fault each, beside twins without it, as seeded.py has them for PyTorch.

    python3 own.py --paoding BUNDLE/paoding --out FOLDER [NAME..]    FOLDER gets NAME.fault.paoding, NAME.clean.paoding, numbers
    python3 own.py --text NAME fault|clean                           prints the graph
    --device cpu      those for a CPU, whose names begin with own_cpu_; else those for a GPU
    --examples DIR    where 13_slow_reader is; without it programs that need it are left out
A fault is a switch of `paoding run`, another graph, or another command. Graphs are timed by processes in turns, free of the
profiler; of commands the steps that were recorded are compared.
"""
import argparse
import gzip
import json
import random
import os
import statistics
import struct
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


def fault(kind, also=(), fault_flags=(), clean_flags=(), flags=(), device="cuda", repeat=None, steps="4:12"):
    """A graph for `paoding run`, which waits for each of its runs: a finding of its own where they are short."""
    also = tuple(dict.fromkeys((*also, *(("sync_in_step",) if device == "cuda" else ()))))

    def register(build):
        name = ("own_" if device == "cuda" else "own_cpu_") + build.__name__
        PROGRAMS[name] = argparse.Namespace(name=name, kind=kind, also=also, build=build, device=device, repeat=repeat,
                                            steps=steps, command=None,
                                            flags={"fault": [*flags, *fault_flags], "clean": [*flags, *clean_flags]})
        return build
    return register


def command(kind, steps, also=(), device="cuda", needs=()):
    """Another command, as a function of whether it is faulty makes it: its words, and variables of its environment."""
    def register(make):
        name = ("own_" if device == "cuda" else "own_cpu_") + make.__name__
        PROGRAMS[name] = argparse.Namespace(name=name, kind=kind, also=tuple(also), command=make, device=device,
                                            steps=steps, needs=needs)
        return make
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


@fault("", flags=["--tf32"])
def layers_of_a_training(faulty):
    return layers(rows=16384)


@fault("", flags=["--dtype", "bf16"])
def layers_of_an_inference(faulty):
    return layers(rows=16384, width=8192, train=False)


# ---- a training, whose reader, feeds and losses are as a switch says ----


def data_folder(asked):
    """Small data sets of random words and images, made once."""
    folder = os.path.join(asked.out, "data")
    if os.path.exists(folder):
        return folder
    draw = random.Random(5)
    os.makedirs(os.path.join(folder, "g2p"))
    words = sorted({"".join(draw.choice("bdklnst") + draw.choice("aeo") for _ in range(3)) for _ in range(400)})
    with open(os.path.join(folder, "g2p", "cmudict-en-us.dict"), "w") as file:
        file.writelines(f"{word} {' '.join(word.upper())}\n" for word in words)
    os.makedirs(os.path.join(folder, "fashion"))
    for part, count in (("train", 60_000), ("t10k", 100)):
        for kind, head, size in (("images-idx3", [count, 28, 28], 784), ("labels-idx1", [count], 1)):
            body = draw.randbytes(count * size) if size > 1 else bytes(draw.randrange(10) for _ in range(count))
            path = os.path.join(folder, "fashion", f"{part}-{kind}-ubyte.gz")
            with gzip.open(path, "wb", 1) as file:
                file.write(struct.pack(">BBBB", 0, 0, 8, len(head)) + struct.pack(f">{len(head)}I", *head) + body)
    return folder


def training(asked, task, *flags):
    out = os.path.join(asked.out, "run")
    subprocess.run(["rm", "-rf", out], check=True)
    return [asked.paoding, "train", task, "--data", data_folder(asked), "--out", out, "--no-test", "--show", "0", "--json",
            "--device", asked.device, *flags]


@command("late_data", "20:60", also=("late_launches",))
def reader_in_the_loop(asked, faulty):
    return training(asked, "fashion", "--batch-size", "2048", "--epochs", "4", "--read-ahead", "0" if faulty else "8"), {}


@command("sync_in_step", "20:60")
def loss_read_at_once(asked, faulty):
    return training(asked, "fashion", "--batch-size", "256", "--epochs", "1"), {"PAODING_RUN": f"fetch_later={int(not faulty)}"}


@command("pageable_copies", "20:60", also=("exposed_copies", "sync_in_step"))
def feeds_from_pageable_memory(asked, faulty):
    return training(asked, "fashion", "--batch-size", "8192", "--epochs", "12"), {"PAODING_RUN": f"pinned_feeds={int(not faulty)}"}


@command("exposed_copies", "20:60")
def feeds_in_front_of_each_run(asked, faulty):
    return (training(asked, "fashion", "--batch-size", "8192", "--epochs", "12"),
            {"PAODING_RUN": f"double_buffered_feeds={int(not faulty)}"})


# ---- on a CPU ----


@fault("pointwise_chain", fault_flags=["--no-pass", "fuse_groups"], device="cpu", repeat=12)
def simple_chain_not_fused(faulty):
    """Additions and multiplications of 64 MB, as fast as memory is."""
    text = Text()
    x, scale, bias = text.input("x", 4096, 4096), text.parameter("s", 4096), text.parameter("b", 4096)
    value = x
    for _ in range(3):
        value = text("add", text("mul", value, scale), bias)
    text.say(f"fetch loss = {text('sum', value)}")
    return text


@fault("layout_kernels", fault_flags=["--no-pass", "alias_views"], device="cpu", repeat=12)
def views_copied(faulty):
    text = Text()
    x = text.input("x", 4096, 6144)
    total = None
    for i in range(3):
        part = text("slice", x, start=f"[0,{2048 * i}]", end=f"[4096,{2048 * (i + 1)}]")
        found = text("sum", text("mul", part, part))
        total = text("add", total, found) if total else found
    text.say(f"fetch loss = {total}")
    return text


@command("late_data", "5:24", device="cpu", needs=("13_slow_reader",))
def reader_beside_no_step(asked, faulty):
    return [os.path.join(asked.examples, "13_slow_reader"), "2", "0" if faulty else "8", "800"], {"OMP_NUM_THREADS": "1"}


@command("rare_slow_steps", "20:145", device="cpu")
def checkpoints_in_the_loop(asked, faulty):
    flags = ["--batch-size", "32", "--steps", "150"]
    return training(asked, "fashion", *flags, "--save-minutes", "0.002" if faulty else "5"), {"OMP_NUM_THREADS": "1"}


@fault("", device="cpu", repeat=12)
def layers_trained(faulty):
    return layers(rows=512, width=512)


@fault("", device="cpu", repeat=12)
def layers_only(faulty):
    return layers(rows=2048, width=1024, train=False)


def run(asked, program, which, repeat, *more):
    text = str(program.build(which == "fault"))
    path = os.path.join(asked.out, f"{program.name}.{which}.txt")
    with open(path, "w") as file:
        file.write(text)
    words = [asked.paoding, "run", path, "--random", "1", "--repeat", str(repeat), "--device", asked.device, "--json",
             *program.flags[which], *more]
    return output_of(words, {})


def output_of(words, variables):
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env={**os.environ, **variables})
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-600:]}")
    return done.stdout


def record_graph(asked, program, which):
    path = os.path.join(asked.out, f"{program.name}.{which}.paoding")
    last = int(program.steps.split(":")[1])
    told = run(asked, program, which, last + 2, "--profile-path", path, "--profile-steps", program.steps, "--format", "json",
               "--profile")
    return 1e6 * json.loads(told)["median_ms"]


def record_command(asked, program, which, path):
    """Records all of it; the time of the steps that are asked for, on average."""
    words, variables = program.command(asked, which == "fault")
    output_of([asked.paoding, "profile", "--path", path, *words], variables)
    timeline = os.path.join(asked.out, "timeline.json")
    output_of([asked.paoding, "report", path, "--no-findings", "--path", timeline], {})
    with open(timeline) as file:
        runs = sorted(event["ts"] for event in json.load(file)["traceEvents"] if event.get("cat") == "run")
    first, end = (int(one) for one in program.steps.split(":"))
    return 1e3 * (runs[end] - runs[first]) / (end - first)


def record_commands(asked, program, sides):
    """Each side several times, in turns; the recording that is kept took least, since cores do other work too."""
    took = {which: [] for which in sides}
    for turn in range(asked.turns):
        for which in sides[::1 if turn % 2 == 0 else -1]:
            path = os.path.join(asked.out, f"{program.name}.{which}.{turn}.turn.paoding")
            took[which].append((record_command(asked, program, which, path), path))
    recorded = {}
    for which in sides:
        took[which].sort()
        recorded[which], kept = took[which][0]
        os.replace(kept, os.path.join(asked.out, f"{program.name}.{which}.paoding"))
        for _, path in took[which]:
            if path != kept:
                os.remove(path)
    return recorded


def measure(asked, program):
    begin = time.monotonic()
    sides = ("clean", "fault") if program.kind else ("clean",)
    walls = {which: [] for which in sides}
    for turn in range(0 if program.command else asked.turns):
        for which in sides[::1 if turn % 2 == 0 else -1]:
            walls[which].append(1e6 * json.loads(run(asked, program, which, program.repeat or asked.repeat))["median_ms"])
    recorded = (record_commands(asked, program, sides) if program.command
                else {which: record_graph(asked, program, which) for which in sides})
    numbers = {"name": program.name, "kind": program.kind, "mode": "cpu" if asked.device == "cpu" else "graph",
               "also": list(program.also), "once": False, "framework": "paoding", "round": 0, "recorded_ns": recorded,
               "device": asked.card}
    for which in sides:
        numbers[which] = {"wall_ns": statistics.median(walls[which]), "walls_ns": [round(one) for one in walls[which]]} if walls[
            which] else {"wall_ns": recorded[which]}
    with open(os.path.join(asked.out, f"{program.name}.0.numbers.json"), "w") as file:
        json.dump(numbers, file)
    told = "  ".join(f"{which} {numbers[which]['wall_ns'] / 1e3:9.1f}" for which in sides)
    under = "  ".join(f"{which} {ns / 1e3:9.1f}" for which, ns in recorded.items())
    print(f"{program.kind or 'clean':20} {program.name:28} us: {told}   under the profiler: {under}   "
          f"{time.monotonic() - begin:.1f} s", flush=True)


def is_wanted(asked, name):
    program = PROGRAMS[name]
    if program.device != ("cpu" if asked.device == "cpu" else "cuda"):
        return False
    missing = [one for one in getattr(program, "needs", ()) if not asked.examples or not os.path.exists(
        os.path.join(asked.examples, one))]
    if missing:
        print(f"LEFT OUT {name}: {', '.join(missing)} is not there (--examples)", flush=True)
    return not missing


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--paoding", default="build/paoding")
    parser.add_argument("--out")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--examples", help="build/examples")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--text", action="store_true")
    asked = parser.parse_args()
    if asked.text:
        print(PROGRAMS[asked.names[0]].build(asked.names[1] == "fault"), end="")
        return 0
    os.makedirs(asked.out, exist_ok=True)
    asked.out = os.path.abspath(asked.out)
    try:
        asked.card = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True,
                                    text=True).stdout.splitlines()[0]
    except (OSError, IndexError):
        asked.card = "cpu"
    failed = 0
    for name in asked.names or [name for name in PROGRAMS if is_wanted(asked, name)]:
        try:
            measure(asked, PROGRAMS[name])
        except Exception:
            failed += 1
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
