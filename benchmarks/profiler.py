#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the profiler costs and how far it can be believed: benchmarks/results/profiler.json.

Usage: benchmarks/profiler.py [--paoding build/paoding] [--device cuda,cpu] [--cases CASES]
                              [--json benchmarks/results/profiler.json]

Costs are those of `paoding bench`: runs that are recorded and runs that are not take turns. By default a GPU's works are run
on it, g2p on the CPU; spans are the host's. On a GPU what stamps say of the kernels of examples/graphs/lstm.txt is set beside what CUPTI says of them: their time, and how
long after a kernel's begin the next one begins.
"""
import argparse
import collections
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile

REPEATS = 400
CASES = {"cuda": "recording/seq2seq*,recording/lstm*", "cpu": "recording/g2p/*,span/*"}


def cpu_name():
    with open("/proc/cpuinfo") as file:
        return next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), platform.machine())


def run(command, **more):
    environment = {**os.environ, **more.pop("environment", {})}
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, env=environment, **more).stdout


def bench(paoding, device, cases):
    """Rows by name, in microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "rows.json")
        run([paoding, "bench", "--no-check", "--device", device, "--filter", cases, "--json", path])
        with open(path) as file:
            rows = json.load(file)
    rows = rows if isinstance(rows, list) else rows["rows"]
    return {row["case"]: row for row in rows if row.get("samples")}


def recordings(rows):
    """What recording adds to each work, as shares of a run; the noise is what plain runs differ among themselves.

    op, phases and instances are the levels of detail. first_second_more: the same over the whole first second of a recording,
    its start included; the first recording of a process is the most, which makes what leaves stamps. longest_us: what the
    longest run of that second takes longer than the longest that nobody records; start_us, end_us: of the recording.
    window_us: what 16 runs take longer in a CuptiWindow, its ends included, after the first of the process.
    """
    made = {}
    for name, row in rows.items():
        if not name.endswith("/plain"):
            continue
        work = name[len("recording/"):-len("/plain")]
        plain = row["us"]
        one = {"plain_us": plain, "noise": (row["us_max"] - row["us_min"]) / plain}
        for how in ("op", "phases", "instances", "after"):
            more = rows.get(f"recording/{work}/{how}")
            if more:
                one[how + "_more"] = more["us"] / plain
        first = rows.get(f"recording/{work}/first_second")
        if first:
            one["first_second_more"] = {"median": first["us"] / plain, "most": first["us_max"] / plain}
        for how in ("longest", "start", "end", "first_window", "window"):
            row_of = rows.get(f"recording/{work}/{how}")
            if row_of:
                one[how + "_us"] = {"median": row_of["us"], "least": row_of["us_min"], "most": row_of["us_max"]}
        if f"recording/{work}/behind_window" in rows:
            one["behind_window_more"] = rows[f"recording/{work}/behind_window"]["us"] / plain
        made[work] = one
    return made


def kernels(paoding, by_cupti):
    """Of examples/graphs/lstm.txt: calls and microseconds of a run on the GPU, by op, and whether a library computes it."""
    text = run([paoding, "run", "examples/graphs/lstm.txt", "--random", "7", "--device", "cuda", "--repeat", str(REPEATS),
                "--profile", "--kernels", "--format", "json"], environment={"PAODING_CUPTI": "1" if by_cupti else "0"})
    report = json.loads(text[text.index("{\n"):] if not text.startswith("{") else text)
    found = {}
    for section in report["merged"] or report["threads"]:
        for row in section["rows"]:
            if row["depth"] == 0:
                last = found[row["name"]] = {"calls": row["calls"], "us": row["gpu_ns"] / 1e3 / REPEATS, "is_library": False}
            elif row["name"] == "kernel cublaslt":
                last["is_library"] = True
    return {"ops": {op: of for op, of in found.items() if of["us"] > 0}, "not_seen": report["not_seen"]}


def begins(paoding, by_cupti):
    """Of examples/graphs/lstm.txt: microseconds from a kernel's begin to that of the next in the same run, by op: medians.

    CUPTI has no kernel for a product that the library does as two; the first of several spans of an op that follow each
    other without another's in between is not told from one of them, so both are compared op by op.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "line.json")
        run([paoding, "run", "examples/graphs/lstm.txt", "--random", "7", "--device", "cuda", "--repeat", str(REPEATS),
             "--profile", "--detail", "instances", "--profile-path", path],
            environment={"PAODING_CUPTI": "1" if by_cupti else "0"})
        with open(path) as file:
            line = json.load(file)
    events = line["traceEvents"] if isinstance(line, dict) else line
    gpu = {event["pid"] for event in events
           if event.get("name") == "process_name" and "GPU" in event.get("args", {}).get("name", "")}
    spans = sorted((event["ts"], event["dur"], event["name"]) for event in events
                   if event.get("ph") == "X" and event["pid"] in gpu and event["name"] != "graph replay")
    apart = collections.defaultdict(list)
    for (at, _, name), (behind, _, _) in zip(spans, spans[1:]):
        if behind - at < 50:  # else another replay's
            apart[name].append(behind - at)
    return {name: sorted(all_of)[len(all_of) // 2] for name, all_of in apart.items()}


def comparison(paoding):
    """library_calls: stamps count a product, CUPTI every kernel and fill that the library makes of it."""
    stamps, cupti = kernels(paoding, False), kernels(paoding, True)
    stamped, seen = begins(paoding, False), begins(paoding, True)
    both = [op for op in stamps["ops"] if op in cupti["ops"]]
    total = lambda of: sum(of["ops"][op]["us"] for op in both)
    calls = lambda of, op: of["ops"][op]["calls"]
    return {
        "stamps_us": total(stamps), "cupti_us": total(cupti), "stamps_over_cupti": total(stamps) / total(cupti),
        "own_calls_agree": all(calls(stamps, op) == calls(cupti, op) for op in both if not stamps["ops"][op]["is_library"]),
        "library_calls": {op: {"stamps": calls(stamps, op), "cupti": calls(cupti, op)}
                          for op in both if stamps["ops"][op]["is_library"]},
        "ops": {op: {"stamps_us": stamps["ops"][op]["us"], "cupti_us": cupti["ops"][op]["us"],
                     "calls": stamps["ops"][op]["calls"]} for op in both},
        "begin_to_begin_us": {op: {"stamps": stamped[op], "cupti": seen[op]} for op in sorted(stamped) if op in seen},
        "only_by_stamps": sorted(set(stamps["ops"]) - set(both)), "only_by_cupti": sorted(set(cupti["ops"]) - set(both)),
        "not_seen_by_stamps": stamps["not_seen"], "not_seen_by_cupti": cupti["not_seen"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paoding", default="build/paoding")
    parser.add_argument("--device", default="cuda,cpu")
    parser.add_argument("--cases", default="")
    parser.add_argument("--json", default="benchmarks/results/profiler.json")
    options = parser.parse_args()
    machine = run([options.paoding, "doctor"]).splitlines()
    kept = {}
    if os.path.exists(options.json):
        with open(options.json) as file:
            kept = json.load(file)
    for device in options.device.split(","):
        rows = bench(options.paoding, device, options.cases or CASES[device])
        result = {
            "date": datetime.date.today().isoformat(),
            "command": "benchmarks/profiler.py " + " ".join(sys.argv[1:]),
            "machine": {"host": f"{cpu_name()}, {os.cpu_count()} threads",
                        "gpu": next((l.strip() for l in machine if l.strip().startswith("cuda:0")), "")},
            "recording": recordings(rows),
        }
        spans = {name.split("/")[1]: row["us"] * 1e3 for name, row in rows.items() if name.startswith("span/")}
        if spans:
            result["span_ns"] = spans
        if device == "cuda":
            result["stamps_beside_cupti"] = comparison(options.paoding)
        kept["gpu" if device == "cuda" else "cpu"] = result
    with open(options.json, "w") as file:
        json.dump(kept, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
