# SPDX-License-Identifier: Apache-2.0
"""Programs in JAX with one planted fault each, beside twins without it, as seeded.py has them for PyTorch.

    python3 jax_programs.py --out FOLDER [NAME..]    FOLDER gets NAME.fault.xplane.pb, NAME.clean.xplane.pb, numbers
"""
import argparse
import functools
import glob
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
import traceback

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy

GPU = jax.default_backend() == "gpu"
PROGRAMS = {}


def size(count):
    return count if GPU else max(count % 8 + 8, count // 64 // 8 * 8 + count % 8)


def fault(kind, also=(), once=False, alone=False, active=7, count=0):
    def register(build):
        PROGRAMS[build.__name__] = argparse.Namespace(name=build.__name__, kind=kind, also=also, once=once, alone=alone,
                                                      active=active, count=count, build=build)
        return build
    return register


def clean():
    return fault("")


def forward(weights, x):
    for weight in weights[:-1]:
        x = jax.nn.relu(x @ weight)
    return x @ weights[-1]


def loss(weights, x, y):
    return jnp.mean((forward(weights, x) - y) ** 2)


def update(weights, x, y):
    value, slopes = jax.value_and_grad(loss)(weights, x, y)
    return [weight - 1e-3 * slope for weight, slope in zip(weights, slopes)], value


train = jax.jit(update, donate_argnums=0)


def layers(batch=4096, width=4096, count=4, inputs=64, outputs=256, dtype=jnp.bfloat16):
    sizes = [size(inputs)] + [size(width)] * count + [size(outputs)]
    keys = jax.random.split(jax.random.PRNGKey(1), len(sizes) + 1)
    weights = [jax.random.normal(key, (a, b), dtype) * a ** -0.5 for key, a, b in zip(keys, sizes, sizes[1:])]
    return (weights, jax.random.normal(keys[-1], (size(batch), sizes[0]), dtype),
            jax.random.normal(keys[-2], (size(batch), sizes[-1]), dtype))


def training(state, x, y, batch_of=None):
    held = {"weights": state}

    def step():
        held["weights"], value = train(held["weights"], batch_of() if batch_of else x, y)
        return value
    return step


@fault("late_data")
def jax_batches_made_by_numpy(faulty):
    """numpy makes a batch on the launching thread; the twin has them made beforehand."""
    weights, x, y = layers()
    generator = numpy.random.default_rng(1)
    made = [jnp.asarray(generator.standard_normal(x.shape, numpy.float32), jnp.bfloat16) for _ in range(4)]
    turn = [0]

    def batch_of():
        turn[0] += 1
        if not faulty:
            return made[turn[0] % 4]
        with jax.profiler.TraceAnnotation("next_batch"):
            for _ in range(3):
                batch = generator.standard_normal(x.shape, numpy.float32)
            return jnp.asarray(batch, jnp.bfloat16)
    return training(weights, x, y, batch_of)


@fault("late_launches")
def jax_without_jit(faulty):
    weights, x, _ = layers(batch=2048, width=1024, count=12)
    run = forward if faulty else jax.jit(forward)
    return lambda: run(weights, x)


@fault("sync_in_step", also=("late_launches",))
def jax_float_between(faulty):
    """The loss is fetched between the gradients and the update, which are two programs."""
    weights, x, y = layers(batch=2048, width=2048)
    slopes_of = jax.jit(jax.value_and_grad(loss))
    apply = jax.jit(lambda weights, slopes: [w - 1e-3 * s for w, s in zip(weights, slopes)], donate_argnums=0)
    held = {"weights": weights}

    def step():
        value, slopes = slopes_of(held["weights"], x, y)
        if faulty:
            float(value)
        held["weights"] = apply(held["weights"], slopes)
        return value
    return step


@fault("late_data", also=("exposed_copies", "late_launches", "sync_in_step"))
def jax_batches_from_numpy(faulty):
    """A batch of 32 MB goes from numpy, by pinned memory of XLA's, to the GPU in each step; the twin has it there."""
    weights, x, y = layers(inputs=2048)
    host = numpy.asarray(numpy.random.default_rng(1).standard_normal(x.shape), numpy.float32)
    there = jnp.asarray(host, jnp.bfloat16)
    cast = jax.jit(lambda x: x.astype(jnp.bfloat16))
    return training(weights, x, y, lambda: cast(jax.device_put(host)) if faulty else there)


@fault("small_grid", also=("late_launches",))
def jax_rows_in_a_loop(faulty):
    """Rows of a batch one after the other by lax.map; the twin has them all at once by vmap."""
    rows = jax.random.normal(jax.random.PRNGKey(1), (size(64), size(1 << 17)))
    weights, x, _ = layers()
    soft = functools.partial(jax.lax.map, jax.nn.softmax) if faulty else jax.vmap(jax.nn.softmax)
    run = jax.jit(lambda weights, x, rows: (forward(weights, x), soft(rows)))
    return lambda: run(weights, x, rows)


@fault("exact_f32_product")
def jax_highest_precision(faulty):
    weights, x, y = layers(batch=2048, width=2048, dtype=jnp.float32)
    step = jax.jit(update, donate_argnums=0)
    held = {"weights": weights}

    def run():
        with jax.default_matmul_precision("highest" if faulty else "tensorfloat32"):
            held["weights"], value = step(held["weights"], x, y)
        return value
    return run


@fault("odd_dimensions", also=("layout_kernels", "pointwise_chain"))
def jax_odd_width(faulty):
    weights, x, y = layers(width=4095 if faulty else 4096)
    return training(weights, x, y)


@fault("late_compile", once=True, also=("late_launches", "rare_slow_steps"))
def jax_compiled_for_every_length(faulty):
    weights, x, y = layers(batch=2048)
    held = {"weights": weights}
    run = jax.jit(lambda x: jnp.sum(jnp.tanh(x)))
    host = numpy.ones((64, 1024), numpy.float32)
    turn = [0]

    def step():
        held["weights"], _ = train(held["weights"], x, y)
        turn[0] += 1
        return run(host[:, :1024 - 8 * turn[0]] if faulty else host)
    return step


@fault("rare_slow_steps", active=30, count=36, also=("sync_in_step", "pageable_copies", "late_launches"))
def jax_checkpoints(faulty):
    """Every tenth step fetches the parameters and writes them to a file."""
    weights, x, y = layers(batch=4096, width=2048, count=3)
    held = {"weights": weights}
    turn = [0]

    def step():
        held["weights"], value = train(held["weights"], x, y)
        turn[0] += 1
        if faulty and turn[0] % 10 == 0:
            with tempfile.TemporaryFile() as file:
                numpy.save(file, numpy.concatenate([numpy.asarray(one, numpy.float32).ravel() for one in held["weights"]]))
        return value
    return step


@clean()
def jax_layers_training(faulty):
    return training(*layers(batch=8192))


@clean()
def jax_layers_inference(faulty):
    weights, x, _ = layers(batch=8192)
    run = jax.jit(forward)
    return lambda: run(weights, x)


@clean()
def jax_convolutions(faulty):
    keys = jax.random.split(jax.random.PRNGKey(1), 6)
    channels = size(256)
    kernels = [jax.random.normal(key, (3, 3, channels, channels), jnp.bfloat16) * 0.02 for key in keys[:5]]
    x = jax.random.normal(keys[5], (512 if GPU else 2, 28, 28, channels), jnp.bfloat16)

    @jax.jit
    def run(kernels, x):
        for kernel in kernels:
            x = jax.nn.relu(jax.lax.conv_general_dilated(x, kernel, (1, 1), "SAME",
                                                         dimension_numbers=("NHWC", "HWIO", "NHWC")))
        return x
    return lambda: run(kernels, x)


def block(step, count):
    jax.block_until_ready(step())
    begin = time.perf_counter_ns()
    for _ in range(count):
        done = step()
    jax.block_until_ready(done)
    return (time.perf_counter_ns() - begin) / count


def record(program, step, path):
    options = jax.profiler.ProfileOptions()
    options.python_tracer_level = 0
    options.host_tracer_level = 2
    for _ in range(3):
        done = step()
    jax.block_until_ready(done)
    with tempfile.TemporaryDirectory() as folder:
        jax.profiler.start_trace(folder, profiler_options=options)
        begin = time.perf_counter_ns()
        for i in range(program.active):
            with jax.profiler.StepTraceAnnotation("train", step_num=i):
                done = step()
        jax.block_until_ready(done)
        wall = (time.perf_counter_ns() - begin) / program.active
        jax.profiler.stop_trace()
        found = glob.glob(folder + "/**/*.xplane.pb", recursive=True)
        shutil.move(found[0], path)
    return wall


def measure(program, out, seconds, round_number):
    numbers = {"name": program.name, "kind": program.kind, "mode": "jit", "also": list(program.also), "once": program.once,
               "framework": "jax", "round": round_number, "device": str(jax.devices()[0])}
    begin = time.monotonic()
    sides = {which: program.build(which == "fault") for which in (("clean", "fault") if program.kind else ("clean",))}
    if not program.once:
        walls, counts = {which: [] for which in sides}, {}
        for which, step in sides.items():
            block(step, 3 if GPU else 1)
            wall = block(step, 3 if GPU else 1)
            counts[which] = (program.count or int(min(60, max(4, 5e7 / wall)))) if GPU else 2
        until = time.monotonic() + seconds
        for turn in range(9):
            if turn >= 3 and time.monotonic() > until:
                break
            for which in list(sides)[::1 if turn % 2 == 0 else -1]:
                walls[which].append(block(sides[which], counts[which]))
        numbers["steps"] = counts
        for which in sides:
            numbers[which] = {"wall_ns": statistics.median(walls[which]), "walls_ns": [round(one) for one in walls[which]]}
    if round_number == 0:
        numbers["recorded_ns"] = {which: record(program, step, os.path.join(out, f"{program.name}.{which}.xplane.pb"))
                                  for which, step in sides.items()}
    with open(os.path.join(out, f"{program.name}.{round_number}.numbers.json"), "w") as file:
        json.dump(numbers, file)
    told = "  ".join(f"{which} {numbers[which]['wall_ns'] / 1e3:9.1f}" for which in sides if which in numbers)
    under = "  ".join(f"{which} {ns / 1e3:9.1f}" for which, ns in numbers.get("recorded_ns", {}).items())
    print(f"{program.kind or 'clean':20} {program.name:28} us: {told}   under the profiler: {under}   "
          f"{time.monotonic() - begin:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", required=True)
    parser.add_argument("--round", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=0.5)
    asked = parser.parse_args()
    os.makedirs(asked.out, exist_ok=True)
    failed = 0
    for name in asked.names or [one.name for one in PROGRAMS.values() if not one.alone]:
        try:
            measure(PROGRAMS[name], asked.out, asked.seconds, asked.round)
        except Exception:
            failed += 1
            print(f"FAILED {name}", flush=True)
            traceback.print_exc()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
