#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/repeat_trace.py TRACE OUT BYTES: a Kineto trace (.json or .json.gz), repeated until OUT (.json or .json.gz)
has so many bytes.

Each turn follows the one before it in time and has numbers of its own where numbers join events (correlation, External
id, Sequence number, flows' ids, Ev Idx), so that a reader finds as many ops, launches and kernels as a recording that went
on for longer would have. Names, threads and streams stay."""

import gzip
import re
import sys

NUMBERS = re.compile(
    rb'("ts": ?|"correlation": ?|"External id": ?|"Sequence number": ?|"Ev Idx": ?|"(?:s|t|f)", "id": ?)'
    rb'(\d+)(?:\.(\d{1,3}))?(?=[,\s}])')


def opened(path, mode):
    return gzip.open(path, mode, compresslevel=6) if path.endswith(".gz") else open(path, mode)


def end_of_array(text, begin):
    """Where the array ends that `begin` is in: behind the events there may be others."""
    depth = 0
    for found in re.finditer(rb'"(?:[^"\\\\]|\\\\.)*"|[\[\]]', text[begin:], re.DOTALL):
        if found.group() == b"]" and depth == 0:
            return begin + found.start()
        depth += {b"[": 1, b"]": -1}.get(found.group(), 0)
    sys.exit("the events do not end")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, out, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with opened(source, "rb") as file:
        text = file.read()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = end_of_array(text, begin)
    body = text[begin:end]

    # Pieces between numbers, and the numbers: times in ns, others as they are.
    pieces, values, is_time, last = [], [], [], 0
    for found in NUMBERS.finditer(body):
        pieces.append(body[last:found.start(2)])
        time = found.group(1).startswith(b'"ts"')
        is_time.append(time)
        whole = int(found.group(2))
        values.append(whole * 1000 + int((found.group(3) or b"0").ljust(3, b"0")) if time else whole)
        last = found.end()
    pieces.append(body[last:])
    times = [value for value, time in zip(values, is_time) if time]
    ids = [value for value, time in zip(values, is_time) if not time]
    span = max(times) - min(times) + 1_000_000
    # What lasts longest may end after what begins last.
    durations = [int(float(one) * 1000) for one in re.findall(rb'"dur": ?(\d+(?:\.\d+)?)', body)]
    span += max(durations, default=0)
    step = max(ids, default=0) + 1

    turns = 0
    with opened(out, "wb") as file:
        written = file.write(text[:begin])
        while written < wanted or turns == 0:
            parts = []
            for piece, value, time in zip(pieces, values, is_time):
                parts.append(piece)
                if time:
                    ns = value + turns * span
                    parts.append(b"%d.%03d" % (ns // 1000, ns % 1000))
                else:
                    parts.append(b"%d" % (value + turns * step))
            parts.append(pieces[-1])
            if turns > 0:
                written += file.write(b",")
            written += file.write(b"".join(parts))
            turns += 1
        written += file.write(text[end:])
    print(f"{out}: {turns} times {source}, {written} bytes of JSON")


if __name__ == "__main__":
    main()
