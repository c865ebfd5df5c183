# SPDX-License-Identifier: Apache-2.0
"""How benchmarks/compare talks with a peer: a process that reads requests from stdin, one a line, and answers each with
its rows as JSON lines and an empty line.

A request is {"case": what `paoding bench --list --json` says of it, "states": [{"cache", "clock", "sets", "swept"}], "quick": bool}; with
"eager": true the work is also timed as calls one by one, where it would be a CUDA graph.
A row is {"peer", "cache", "clock", "us", "us_min", "us_max", "samples"}, or {"peer", "why"} where it could not be done.
The same request again is timed again, not prepared again. Where a state is "swept", more than three caches are read before
every call, untimed; where it has several sets, their buffers are used in turn.
"""
import json
import sys
import time
import traceback


class Timing:
    """Times of one unit of work in microseconds, sorted."""

    def __init__(self, times):
        self.times = sorted(times)

    def row(self):
        middle = self.times[len(self.times) // 2]
        return {"us": middle, "us_min": self.times[0], "us_max": self.times[-1], "samples": len(self.times)}


def time_calls(call, units=1, least=10, most=200, seconds=1.0, before=None):
    """Wall times of `call`, which waits for what it started, divided by `units`; `before` each of them, untimed."""
    for _ in range(3):
        call()
    times, begin = [], time.perf_counter()
    while len(times) < most and (len(times) < least or time.perf_counter() - begin < seconds):
        if before:
            before()
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e6 / units)
        if time.perf_counter() - begin > 10 * seconds and len(times) >= 5:  # long ones
            break
    return Timing(times)


def serve(prepare):
    """`prepare(case, states, quick)` gives a list of ({"peer", "cache", "clock"}, time) with `time()` a Timing, or
    ({"peer", "why"}, None)."""
    last, prepared = None, []
    for line in sys.stdin:
        request = json.loads(line)
        if line != last:
            prepared, last = [], None
            try:
                prepared, last = prepare(request["case"], request["states"], request.get("quick", False)), line
            except Exception as error:  # a peer that cannot do a row loses that row, not the session
                traceback.print_exc()
                prepared = [({"peer": "", "why": f"{type(error).__name__}: {error}"[:200]}, None)]
        for row, timed in prepared:
            try:
                print(json.dumps({**row, **(timed().row() if timed else {})}))
            except Exception as error:
                traceback.print_exc()
                print(json.dumps({**row, "why": f"{type(error).__name__}: {error}"[:200]}))
        print(flush=True)
