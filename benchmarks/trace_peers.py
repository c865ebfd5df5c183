#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/trace_peers.py TRACE.json OUT.json [--paoding build/paoding] [--hta PYTHON] [--tracelens PYTHON] [--runs 3]:
one Kineto trace reported by paoding (report and findings), by HTA and by TraceLens, in turns; wall time and most memory
of whole processes.

HTA reads the trace, gives the breakdown of kernels, of idle time and of computing against communicating; TraceLens reads
it, gives the timeline of GPUs and the table of kernels by the op that launched them. PYTHON is an interpreter that has
the package."""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import tempfile
import time

HTA = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir='')
analysis.get_gpu_kernel_breakdown(visualize=False)
analysis.get_idle_time_breakdown(visualize=False)
analysis.get_temporal_breakdown(visualize=False)
"""
TRACELENS = """
import sys
from TraceLens import TreePerfAnalyzer
analysis = TreePerfAnalyzer.from_file(sys.argv[1])
analysis.get_df_gpu_timeline()
analysis.get_df_kernel_launchers()
"""


def timed(command):
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            errors.seek(0)
            raise SystemExit(f"{command[0]} failed: {errors.read().decode(errors='replace')[-800:]}")
    return {"wall_s": round(time.perf_counter() - begin, 3), "cpu_s": round(usage.ru_utime + usage.ru_stime, 3),
            "most_memory_mb": round(usage.ru_maxrss / 1024, 1)}


def version(python, package):
    if not python:
        return ""
    asked = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace")
    parser.add_argument("out")
    parser.add_argument("--paoding", default="build/paoding")
    parser.add_argument("--hta", default="", metavar="PYTHON")
    parser.add_argument("--tracelens", default="", metavar="PYTHON")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    trace = os.path.abspath(arguments.trace)
    programs = {"paoding": [arguments.paoding, "report", trace]}
    if arguments.hta:
        programs[f"HTA {version(arguments.hta, 'HolisticTraceAnalysis')}"] = [arguments.hta, "-c", HTA, trace]
    if arguments.tracelens:
        programs[f"TraceLens {version(arguments.tracelens, 'TraceLens')}"] = [arguments.tracelens, "-c", TRACELENS, trace]
    runs = {name: [] for name in programs}
    for _ in range(arguments.runs):
        for name, command in programs.items():
            runs[name].append(timed(command))
            print(name, runs[name][-1], flush=True)
    made = {"command": "benchmarks/trace_peers.py TRACE OUT --hta PYTHON --tracelens PYTHON",
            "date": datetime.date.today().isoformat(), "machine": platform.processor() or platform.machine(),
            "cores": os.cpu_count(), "load_average_at_the_end": os.getloadavg()[0],
            "trace": os.path.basename(trace), "bytes": os.path.getsize(trace),
            "rows": [{"program": name, "median_wall_s": statistics.median(one["wall_s"] for one in some),
                      "most_memory_mb": max(one["most_memory_mb"] for one in some), "runs": some}
                     for name, some in runs.items()]}
    with open(arguments.out, "w", encoding="utf-8") as out:
        json.dump(made, out, indent=1)
        out.write("\n")


main()
