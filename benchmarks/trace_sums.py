#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/trace_sums.py TRACE...: how many kernels, copies and fills a JSON trace has, and how long they took together:
by Python's JSON and decimals, for what `paoding report` says to be held against.

A line for each: the file's name, then for kernels, copies and fills how many and ns; ops."""

import gzip
import json
import os
import re
import sys
from decimal import ROUND_HALF_UP, Decimal

KINDS = {"kernel": 0, "Kernel": 0, "gpu_memcpy": 1, "Memcpy": 1, "gpu_memset": 2, "Memset": 2}


def ns(microseconds):
    return int((Decimal(microseconds) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def kind_of_xla(event, streams):
    """Of what XLA writes: 0 to 2 as in KINDS, None on the host."""
    if (event.get("pid"), event.get("tid")) not in streams:
        return None
    name = event["name"]
    if re.match(r"Memcpy(H2D|D2H|D2D|P2P|H2H)", name):
        return 1
    return 2 if "memset" in name or "Memset" in name else 0


def sums(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        trace = json.loads(file.read().decode("utf-8", "replace"), parse_float=str, parse_int=str)
    events = trace["traceEvents"] if isinstance(trace, dict) else trace
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "/device:GPU" in e["args"]["name"]}
    streams = {(e["pid"], e["tid"]) for e in events
               if e.get("name") == "thread_name" and e["pid"] in devices and e["args"]["name"].startswith("Stream")}
    counts, times, ops = [0, 0, 0], [0, 0, 0], 0
    for event in events:
        if event.get("ph") != "X":
            continue
        ops += event.get("cat") in ("cpu_op", "Operator") and not event["name"].startswith("enumerate(DataLoader)")
        kind = kind_of_xla(event, streams) if streams else KINDS.get(event.get("cat"))
        if kind is None:
            continue
        start, duration = ns(event["ts"]), ns(event.get("dur", "0"))
        if duration < 0 or (start == 0 and duration == 0):
            continue
        counts[kind] += 1
        times[kind] += duration
    return [counts[0], times[0], counts[1], times[1], counts[2], times[2], ops]


def main():
    for path in sys.argv[1:]:
        print(os.path.basename(path), *sums(path))


if __name__ == "__main__":
    main()
