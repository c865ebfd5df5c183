# SPDX-License-Identifier: Apache-2.0
"""Makes broken traces of real ones, as crashes, losses and clocks break them: tests/findings/broken/, one fault of the file each.

    python3 tests/findings/broken.py      reads tests/findings/traces/, writes tests/findings/broken/
"""
import gzip
import json
import os
import random
import shutil

from pack import Number, is_gpu_work, write_trace

HERE = os.path.dirname(os.path.abspath(__file__))
BROKEN = {}


def broken(source):
    def register(make):
        BROKEN[make.__name__] = (source, make)
        return make
    return register


def moved(event, key, change):
    """The event with another number of microseconds."""
    return {**event, key: Number(f"{change(float(event[key])):.3f}")}


def is_call(event):
    return event.get("cat") in ("cuda_runtime", "cuda_driver")


def step_begins(events):
    return sorted(float(event["ts"]) for event in events if event.get("name", "").startswith("ProfilerStep"))


def without_some(events, is_lost, share):
    dice = random.Random(1)
    return [event for event in events if not (is_lost(event) and dice.random() < share)]


@broken("exact_products.fault")
def lost_kernels(events):
    """Buffers with two fifths of the GPU's records were lost."""
    return without_some(events, is_gpu_work, 0.4)


@broken("odd_width.fault")
def lost_launches(events):
    """A third of the host's calls were lost: kernels stand there that nobody launched."""
    return without_some(events, is_call, 0.35)


@broken("loader_in_the_loop.fault")
def clocks_apart(events):
    """From the middle on the GPU's clock is 3 ms early: kernels run before they are launched."""
    middle = sorted(float(event["ts"]) for event in events if is_gpu_work(event))
    middle = middle[len(middle) // 2]
    return [moved(event, "ts", lambda ts: ts - 3000) if is_gpu_work(event) and float(event["ts"]) > middle else event
            for event in events]


@broken("small_layers_one_by_one.fault")
def gap_in_the_middle(events):
    """Nothing but the marks of steps is left of three steps in the middle."""
    begins = step_begins(events)
    return [event for event in events
            if event.get("ph") != "X" or event.get("name", "").startswith("ProfilerStep")
            or not begins[2] + 5 < float(event["ts"]) < begins[5]]


@broken("gelu_by_hand.fault")
def one_step(events):
    """The window held one step."""
    begins = step_begins(events)
    return [event for event in events if event.get("ph") != "X" or float(event["ts"]) < begins[1]]


@broken("cache_emptied_every_step.fault")
def no_steps(events):
    """Nobody marked steps, and the window holds not quite two of them."""
    begins = step_begins(events)
    return [event for event in events
            if event.get("ph") != "X" or (not event.get("name", "").startswith("ProfilerStep")
                                          and begins[1] + 700 < float(event["ts"]) < begins[3] - 700)]


@broken("compiled_without_graphs.fault")
def heavy_recorder(events):
    """A third of every millisecond went to the recorder's own work."""
    begins = step_begins(events)
    host = next(event for event in events if event.get("cat") == "cuda_runtime")
    end = max(float(event["ts"]) + float(event["dur"]) for event in events if event.get("ph") == "X")
    at, added = begins[0], []
    while at < end:
        added.append({"ph": "X", "cat": "overhead", "name": "Activity Buffer Request", "pid": -1, "tid": 0,
                      "ts": Number(f"{at:.3f}"), "dur": Number("330.000"), "args": {}})
        at += 1000
    return events + added if host else events


@broken("gradients_set_to_zero.fault")
def no_gpu_records(events):
    """The GPU's tracing was off, or another tool held it: only the host is there."""
    return [event for event in events if not is_gpu_work(event) and event.get("cat") != "gpu_user_annotation"]


@broken("weights_cast_every_time.fault")
def impossible_durations(events):
    """Kernels of one stream that last beyond the begin of those behind them, four times too long."""
    return [moved(event, "dur", lambda dur: 4 * dur) if is_gpu_work(event) else event for event in events]


def main():
    out = os.path.join(HERE, "broken")
    shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out)
    for name, (source, make) in BROKEN.items():
        with gzip.open(os.path.join(HERE, "traces", source + ".json.gz"), "rt", encoding="utf-8") as file:
            trace = json.load(file, parse_float=Number)
        events = make(trace.pop("traceEvents"))
        print(name, write_trace(trace, events, os.path.join(out, name + ".json.gz")))
    # Killed while it was written: the packed file ends in the middle.
    with open(os.path.join(HERE, "traces", "adam_by_hand.fault.json.gz"), "rb") as file:
        whole = file.read()
    with open(os.path.join(out, "cut_file.json.gz"), "wb") as file:
        file.write(whole[:len(whole) * 4 // 5])


if __name__ == "__main__":
    main()
