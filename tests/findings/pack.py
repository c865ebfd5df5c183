# SPDX-License-Identifier: Apache-2.0
"""Makes the committed traces and expected.tsv of what record.sh recorded.

    python3 tests/findings/pack.py RECORDED          RECORDED: the folder that seeded.tar.xz was unpacked in
    python3 tests/findings/pack.py --add RECORDED    traces of other programs stay as they are: those of own.tar.xz alone
A trace loses what no finding reads: flows, blanks, numbers of events. Times, ids, shapes and stacks stay as they were.
"""
import gzip
import json
import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
KEPT = {"cpu_op": ("External id", "Input Dims", "Input type", "Input Strides", "Sequence number", "Fwd thread id",
                   "Collective name", "dtype", "In msg nelems", "Group size"),
        "kernel": None, "gpu_memcpy": None, "gpu_memset": None, "cuda_runtime": None, "cuda_driver": None,
        "python_function": None}
DROPPED = ("queued", "Ev Idx", "Record function id", "cbid", "trace_id", "Concrete Inputs", "Comms Id",
           "Process Group Ranks", "kernel_backend", "kernel_hash", "stream_id")


def slim_event(event):
    if event.get("ph") in ("s", "t", "f"):
        return None
    args = event.get("args")
    if args and event.get("ph") == "X":
        kept = KEPT.get(event.get("cat"))
        args = {key: value for key, value in args.items()
                if key not in DROPPED and (kept is None or key in kept) and value not in ([], "")}
        event = {**event, "args": args} if args else {key: value for key, value in event.items() if key != "args"}
    return event


def slim(path, out):
    """The trace in less room; its events in the order of their times."""
    with open(path, encoding="utf-8") as file:
        trace = json.load(file, parse_float=lambda text: Number(text))
    events = [event for event in map(slim_event, trace["traceEvents"]) if event]
    return write_trace({key: value for key, value in trace.items() if key not in ("traceEvents", "trace_id", "traceName")},
                       events, out)


def write_trace(head, events, out):
    """Writes a packed trace, its events in the order of their times; its bytes."""
    events = sorted(events, key=lambda event: (event.get("ph") != "M", float(event.get("ts", 0))))
    text = json.dumps({**head, "traceEvents": []}, separators=(",", ":"))[:-2]
    text += ",\n".join(json.dumps(event, separators=(",", ":"), default=str) for event in events) + "]}\n"
    text = re.sub(r'"\x01([-0-9.eE+]+)"', r"\1", text.replace("\\u0001", "\x01"))
    with gzip.GzipFile(out, "wb", 9, mtime=0) as packed:
        packed.write(text.encode())
    return os.path.getsize(out)


class Number(str):
    """A number as it stood in the file: a float would lose its last digits."""

    def __new__(cls, text):
        return super().__new__(cls, "\x01" + text)

    def __float__(self):
        return float(str(self)[1:])


def is_gpu_work(event):
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def idle_share(path):
    """How much of the time between the first step's begin and the last work of the GPU nothing ran on it."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    begin = min(event["ts"] for event in events if event.get("name", "").startswith("ProfilerStep"))
    spans = sorted((max(event["ts"], begin), event["ts"] + event["dur"]) for event in events if is_gpu_work(event))
    busy, end = 0, begin
    for start, stop in spans:
        busy += max(0, stop - max(start, end))
        end = max(end, stop)
    return 1 - busy / (end - begin)


def numbers_of(recorded):
    """Numbers by program: those of its first process, and the walls of blocks of all of them."""
    found = {}
    for name in sorted(os.listdir(recorded)):
        if not name.endswith(".numbers.json"):
            continue
        with open(os.path.join(recorded, name), encoding="utf-8") as file:
            numbers = json.load(file)
        first = found.setdefault(numbers["name"], numbers)
        for which in ("fault", "clean"):
            if which in numbers and "walls_ns" in numbers[which]:
                first.setdefault("walls", {}).setdefault(which, []).extend(numbers[which]["walls_ns"])
    return found


# A fault saves at least this share of a step, recorded and not; the recorder makes a clean step longer by no more.
LEAST_GAIN, MOST_SLOWER = 0.02, 0.10
# Twins that are clean of all kinds, and busy all the time: they stand beside the programs of clean.py.
CLEAN_TWINS = ("gelu_by_hand", "norm_by_hand", "heads_made_contiguous", "trained_one_by_one")
# Without a planted fault, but the host is late in them, recorded or not: compiled in many launches, without a graph.
NOT_CLEAN = {"lstm_training", "resnet18_training", "resnet50_training"}

COLUMNS = ("trace", "program", "framework", "mode", "kind", "also", "once", "fault_ns", "clean_ns", "gain", "free_fault_ns",
           "free_clean_ns", "free_gain", "device")


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def gain(clean, faulty):
    return 1 - clean / faulty


def is_wanted(numbers):
    """Whether the program is what it was meant to be, by its measured times."""
    recorded, walls = numbers["recorded_ns"], numbers.get("walls", {})
    if not numbers["kind"]:
        free = numbers["clean"]["wall_ns"]
        return numbers["name"] not in NOT_CLEAN and recorded["clean"] < (1 + MOST_SLOWER) * free
    least = gain(recorded["clean"], recorded["fault"])
    if walls:
        least = min(least, gain(median(walls["clean"]), median(walls["fault"])))
    return least >= LEAST_GAIN


def row_of(numbers, which, trace, idle):
    """A line of expected.tsv. Gains are shares of the faulty step: under the profiler, and free of it."""
    recorded, walls = numbers["recorded_ns"], numbers.get("walls", {})
    also = set(numbers["also"])
    if which == "fault" and idle > 0.05:
        also.add("late_launches")
    also.discard(numbers["kind"])
    row = {"trace": trace, "program": numbers["name"], "framework": numbers["framework"], "mode": numbers["mode"],
           "kind": numbers["kind"] if which == "fault" else "-", "also": ",".join(sorted(also)) if which == "fault" else "",
           "once": "once" if numbers["once"] else "", "device": numbers["device"]}
    if which == "fault":
        row["fault_ns"], row["clean_ns"] = round(recorded["fault"]), round(recorded["clean"])
        row["gain"] = f"{gain(recorded['clean'], recorded['fault']):.4f}"
        if walls:
            free = {one: median(walls[one]) for one in walls}
            row["free_fault_ns"], row["free_clean_ns"] = round(free["fault"]), round(free["clean"])
            row["free_gain"] = f"{gain(free['clean'], free['fault']):.4f}"
    else:
        row["clean_ns"] = round(recorded["clean"])
    return [str(row.get(column, "")) or "-" for column in COLUMNS]


def pack(recorded, name, which, out):
    """Packs what was recorded of a program; its name there, and the bytes."""
    stem = f"{name}.{which}"
    folder = os.path.join(recorded, stem)
    if os.path.isdir(folder):
        os.makedirs(os.path.join(out, stem), exist_ok=True)
        ranks = sorted(os.listdir(folder))
        return stem, sum(slim(os.path.join(folder, rank), os.path.join(out, stem, rank + ".gz")) for rank in ranks)
    if os.path.exists(folder + ".json"):
        return stem + ".json.gz", slim(folder + ".json", os.path.join(out, stem + ".json.gz"))
    if os.path.exists(folder + ".paoding"):  # packed as it is
        shutil.copyfile(folder + ".paoding", os.path.join(out, stem + ".paoding"))
        return stem + ".paoding", os.path.getsize(folder + ".paoding")
    suffix = ".xplane.pb"
    path = os.path.join(out, stem + suffix + ".gz")
    with open(folder + suffix, "rb") as source, gzip.GzipFile(path, "wb", 9, mtime=0) as packed:
        packed.write(source.read())
    return stem + suffix + ".gz", os.path.getsize(path)


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def kept_rows(programs, out):
    """Lines of programs that were not recorded anew; the traces of the others go."""
    with open(os.path.join(HERE, "expected.tsv"), encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][1:]
    for trace, program, *_ in rows:
        if program in programs:
            remove(os.path.join(out, trace))
    return [row for row in rows if row[1] not in programs]


def main():
    is_added = sys.argv[1] == "--add"
    recorded = sys.argv[-1]
    out = os.path.join(HERE, "traces")
    if not is_added:
        shutil.rmtree(out, ignore_errors=True)
    os.makedirs(out, exist_ok=True)
    rows, total = kept_rows(set(numbers_of(recorded)), out) if is_added else [], 0
    for name, numbers in sorted(numbers_of(recorded).items(), key=lambda one: (one[1]["kind"] or "~", one[0])):
        if not is_wanted(numbers):
            print(f"{'left out':>9} {name}")
            continue
        for which in ("fault", "clean"):
            # Programs without a fault are clean themselves, and so are some twins.
            if (which == "fault") != bool(numbers["kind"]) and not (which == "clean" and name in CLEAN_TWINS):
                continue
            trace, bytes_ = pack(recorded, name, which, out)
            plain = os.path.join(recorded, f"{name}.{which}.json")
            rows.append(row_of(numbers, which, trace, idle_share(plain) if os.path.exists(plain) else 0))
            total += bytes_
            print(f"{bytes_:9} {trace}")
    column = {name: at for at, name in enumerate(COLUMNS)}
    with_kind = {row[column["program"]]: row[column["kind"]] for row in rows if row[column["kind"]] != "-"}
    rows.sort(key=lambda row: (with_kind.get(row[column["program"]], "~"), row[column["program"]], row[column["kind"]] == "-"))
    with open(os.path.join(HERE, "expected.tsv"), "w", encoding="utf-8") as file:
        print("\t".join(COLUMNS), file=file)
        for row in rows:
            print("\t".join(row), file=file)
    print(f"{total:9} in all: {len(rows)} traces")


if __name__ == "__main__":
    main()
