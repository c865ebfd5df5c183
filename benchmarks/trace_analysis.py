#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/trace_analysis.py FOLDER OUT.json [--paoding build/paoding] [--runs 5] [--before WORDS] [--keep TMP]:
`paoding report` of the JSON traces in FOLDER (traces of PyTorch, JAX, TensorFlow; .json and .json.gz, in folders of it too).

Truth: of every file the kernels' time is held against what Python counts (tests/trace_sums.py); one that differs ends the program
with status 1. Speed: the largest Kineto trace is repeated to 90 MB and to 1 GB (repeat_trace.py), and each is reported in
turns, as it is and packed; wall, CPU seconds and the most memory of each run go to OUT.json with what unpacking alone takes.
Perfetto: the timeline that paoding writes of the trace of 90 MB, and a trace of Perfetto's own in FOLDER, repeated.

--parts names some of truth, speed and perfetto: what OUT.json has of the others stays. --earlier PAODING: a build to measure beside
this one, in turns."""

import argparse
import datetime
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests"))
import trace_sums  # noqa: E402


def report(paoding, path, *options):
    return subprocess.run([paoding, "report", path, *options], capture_output=True, text=True, check=False)


def truth(paoding, files):
    found, wrong = [], 0
    for path in files:
        name = os.path.basename(path)
        try:
            python = trace_sums.sums_of(path)
        except (ValueError, EOFError, OSError, KeyError, zlib.error) as error:
            print(f"{name}: left out, Python cannot read it ({type(error).__name__})")
            continue
        done = report(paoding, path, "--format", "json")
        if done.returncode != 0:
            print(f"{name}: {done.stderr.strip()}")
            wrong += 1
            continue
        records = json.loads(done.stdout)["records"]
        share = 1 - records["unattributed_ns"] / records["gpu_ns"] if records["gpu_ns"] else None
        is_same = records["gpu_ns"] == python["kernel_ns"]
        wrong += not is_same
        found.append({"file": name, "kernels": python["kernels"], "kernel_ns_python": python["kernel_ns"], "kernel_ns": records["gpu_ns"],
                      "of_some_op": share})
        print(f"{name}: {python['kernels']} kernels, {python['kernel_ns']} ns, {'the same' if is_same else 'NOT ' + str(records['gpu_ns'])}"
              + ("" if share is None else f", {100 * share:.2f}% of some op"))
    return found, wrong


def timed(before, command):
    command = before + command
    begin = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)}: status {child.returncode}")
    return {"wall_s": round(time.perf_counter() - begin, 4), "cpu_s": round(usage.ru_utime + usage.ru_stime, 4),
            "most_memory_mb": round(usage.ru_maxrss / 1024, 1)}


def unpacking_alone(path):
    with open(path, "rb") as file:
        packed = file.read()
    begin, unpacker, size = time.process_time(), zlib.decompressobj(31), 0
    for at in range(0, len(packed), 1 << 18):
        size += len(unpacker.decompress(packed[at:at + (1 << 18)]))
    return round(time.process_time() - begin, 4)


def summary(runs):
    return {"least_wall_s": min(run["wall_s"] for run in runs), "median_wall_s": statistics.median(run["wall_s"] for run in runs),
            "median_cpu_s": round(statistics.median(run["cpu_s"] for run in runs), 4),
            "most_memory_mb": max(run["most_memory_mb"] for run in runs)}


def one_case(paoding, earlier, before, path, runs):
    own, others = [], []
    for _ in range(runs):
        own.append(timed(before, [paoding, "report", path]))
        if earlier:
            others.append(timed(before, [earlier, "report", path]))
    case = {"file": os.path.basename(path), "bytes": os.path.getsize(path)} | summary(own)
    case["mb_a_second"] = round(case["bytes"] / case["least_wall_s"] / 1e6)
    if earlier:
        case["earlier"] = summary(others)
    return case | {"runs": own}


def speed(paoding, earlier, before, source, runs, folder):
    cases = []
    here = os.path.dirname(os.path.abspath(__file__))
    for size in (90_000_000, 1_000_000_000):
        path = os.path.join(folder, f"trace_{size // 1_000_000}.json")
        if not os.path.exists(path):
            subprocess.run([sys.executable, os.path.join(here, "repeat_trace.py"), source, path, str(size)], check=True)
        packed = path + ".gz"
        if not os.path.exists(packed):
            with open(path, "rb") as plain, gzip.open(packed, "wb", compresslevel=6) as out:
                while piece := plain.read(1 << 22):
                    out.write(piece)
        for one in (path, packed):
            case = one_case(paoding, earlier, before, one, runs) | {"json_bytes": os.path.getsize(path)}
            if one == packed:
                case["unpacking_alone_by_zlib_cpu_s"] = min(unpacking_alone(one) for _ in range(min(runs, 3)))
            cases.append(case)
            print({key: value for key, value in case.items() if key != "runs"})
    return cases


def perfetto(paoding, earlier, before, folder_of_traces, kept, runs):
    own = os.path.join(kept, "trace_90.pftrace")
    if not os.path.exists(own):
        subprocess.run([paoding, "report", os.path.join(kept, "trace_90.json"), "--path", own], check=True,
                       stdout=subprocess.DEVNULL)
    paths, here = [own], os.path.dirname(os.path.abspath(__file__))
    for folder, _, names in os.walk(folder_of_traces):
        for name in names:
            if "perfetto-trace" in name:
                paths.append(os.path.join(kept, name.split(".")[0] + "_60.pftrace"))
                if not os.path.exists(paths[-1]):
                    subprocess.run([sys.executable, os.path.join(here, "repeat_trace.py"), os.path.join(folder, name), paths[-1],
                                    "60000000"], check=True)
    cases = [one_case(paoding, earlier, before, path, runs) for path in paths]
    for case in cases:
        print({key: value for key, value in case.items() if key != "runs"})
    return cases


def cpu_name():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--paoding", default="build/paoding")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--before", default="", help="words in front of each timed command: 'chrt -f 1' on a busy machine")
    parser.add_argument("--keep", help="folder for the repeated traces, which stay there")
    parser.add_argument("--earlier", help="another build's paoding")
    parser.add_argument("--parts", default="truth,speed,perfetto")
    options = parser.parse_args()
    parts = options.parts.split(",")
    files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(options.folder) for name in names
                   if name.endswith((".json", ".json.gz")) and os.path.basename(folder) != "hostile")
    results = {}
    if os.path.exists(options.out):
        with open(options.out, encoding="utf-8") as out:
            results = json.load(out)
    wrong = 0
    source = max((path for path in files if path.endswith(".json.gz")), key=os.path.getsize)
    if "truth" in parts:
        results["truth"], wrong = truth(options.paoding, files)
    before = options.before.split()
    with tempfile.TemporaryDirectory() as temporary:
        kept = options.keep or temporary
        if "speed" in parts:
            results["speed"] = speed(options.paoding, options.earlier, before, source, options.runs, kept)
        if "perfetto" in parts:
            results["perfetto"] = {"command": "benchmarks/trace_analysis.py " + " ".join(sys.argv[1:]),
                                   "load_average": os.getloadavg()[0],
                                   "cases": perfetto(options.paoding, options.earlier, before, options.folder, kept, options.runs)}
    if "speed" in parts:
        results.update({
            "command": "benchmarks/trace_analysis.py " + " ".join(sys.argv[1:]), "date": datetime.date.today().isoformat(),
            "machine": cpu_name(), "cores": os.cpu_count(), "load_average_at_the_end": os.getloadavg()[0],
            "repeated": os.path.basename(source),
            "others_on_1003_mb_of_kineto_json": {
                "of": "measured before on 2 cores of an AMD EPYC, of another repeated trace with 5.29 million events",
                "HTA 0.6.1": {"wall_s": 340, "most_memory_mb": 5800},
                "TraceLens": {"wall_s": 273, "most_memory_mb": 14600},
                "Python json.load alone": {"wall_s": 24.5, "most_memory_mb": 4900}}})
    with open(options.out, "w", encoding="utf-8") as out:
        json.dump(results, out, indent=1)
        out.write("\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
