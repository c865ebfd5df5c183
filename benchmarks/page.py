#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the page of a report: writes benchmarks/results/html.json.
Usage: benchmarks/page.py BUILD [--before WORDS] [SPANS ..]
a recording of so many spans each (10000000 and 1000000), made by a test; WORDS stand in front of what is timed, "chrt -f 1" on a
busy machine

Of the writer the seconds by the clock and those that the cores computed, which other work on the machine does not change; of
Debian's headless Chromium, where there is one, the same until the page says that it is there, and what one drawing takes."""
import datetime
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/page"))
from browser import Browser, find_browser  # noqa: E402

ROUNDS = 2


def timed(command):
    """By the clock, and computed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"wall_s": time.monotonic() - began,
            "cpu_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def least(runs):
    return {key: round(min(run[key] for run in runs), 3) for key in runs[0]}


def opened(path):
    with Browser(1400, 900) as page:
        page.open(path)
        runs = []
        for _ in range(ROUNDS):
            before = page.cpu_seconds()
            runs.append({"wall_s": page.open(path) / 1000})
            runs[-1]["cpu_s"] = page.cpu_seconds() - before
        page.press("1")
        views = {"everything": "1", "a hundredth": "0.01"}
        draws = {}
        for name, share in views.items():
            page.run(f"timeline.lookAt(0, {share} * timeline.trace.wall)")
            page.settle()
            draws[name] = round(statistics.median(page.run(
                "Array.from({length: 15}, () => (drawTimeline(timeline), timeline.lastDrawMs))")), 1)
        return {"ready": least(runs), "draw_ms": draws, "quantum_ns": page.run("timeline.trace.quantum")}


def measure(build, words, spans):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([build + "/paoding_tests", "--gtest_filter=PageRecordings.*", "--gtest_brief=1"], check=True,
                       env={**os.environ, "PAODING_PAGE_RECORDINGS": folder, "PAODING_PAGE_SPANS": str(spans)})
        recording, page = folder + "/long.paoding", folder + "/long.html"
        report = [*words, build + "/paoding", "report", recording]
        with_page = least([timed([*report, "--html", page]) for _ in range(ROUNDS)])
        with open(page, encoding="utf-8") as file:
            text = file.read()
        found = int(re.search(r'"spans":(\d+),"per_block"', text).group(1))
        scripts = re.findall(r'<script(?: type="text/plain" data-packed="deflate" id="paoding-script")?>(.*?)</script>', text, re.S)
        result = {"spans": found, "recording_bytes": os.path.getsize(recording), "page_bytes": os.path.getsize(page),
                  "bytes_a_span": round(os.path.getsize(page) / found, 3), "script_bytes": sum(map(len, scripts)),
                  "report": least([timed(report) for _ in range(ROUNDS)]), "report_and_page": with_page}
        if find_browser():
            result["browser"] = opened(page)
        return result


def main():
    build, words, sizes = sys.argv[1], [], sys.argv[2:]
    if sizes[:1] == ["--before"]:
        words, sizes = sizes[1].split(), sizes[2:]
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = re.search(r"model name\s*: (.*)", file.read()).group(1)
    result = {"command": "benchmarks/page.py " + " ".join(sys.argv[1:]), "date": str(datetime.date.today()),
              "machine": f"{processor}, {os.cpu_count()} cores", "load_average": os.getloadavg()[0],
              "pages": [measure(build, words, int(spans)) for spans in sizes or ("10000000", "1000000")]}
    with open(os.path.join(ROOT, "benchmarks/results/html.json"), "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
