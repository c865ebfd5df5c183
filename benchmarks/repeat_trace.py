#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/repeat_trace.py TRACE OUT BYTES: a Kineto trace (.json or .json.gz) or one of Perfetto (.pftrace, .perfetto-trace,
each plain or .gz), repeated until OUT (.gz or not) has so many bytes.

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


def varint(value):
    out = bytearray()
    while value >= 128:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def fields(data):
    """Of a protobuf message: each field's number, its value, and where it begins and ends."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        begin, key = at, number()
        if key & 7 == 0:
            value = number()
        elif key & 7 == 2:
            size = number()
            value, at = data[at:at + size], at + size
        else:
            size = 8 if key & 7 == 1 else 4
            value, at = data[at:at + size], at + size
        yield key >> 3, value, begin, at


def repeat_perfetto(data, out, wanted):
    """Packets one behind the other are a trace. Those of a turn are later than those of the turn before it; what they say of
    tracks and names is said again, as writers do now and then."""
    packets, last = [], 0
    for number, packet, _, _ in fields(data):
        if number != 1:
            continue
        stamp = next(((value, begin, end) for key, value, begin, end in fields(packet) if key == 8), None)
        if stamp is None:
            packets.append((packet, 0, b"", []))
            continue
        head, tail = packet[:stamp[1]], packet[stamp[2]:]
        # Where numbers of flows (fixed64) stand in the tail, as far as they stand in it.
        flows = [tail.index(event) + end - 8 for key, event, _, _ in fields(tail) if key == 11
                 for inner, _, _, end in fields(event) if inner in (47, 48)]
        packets.append((head, stamp[0], tail, flows))
        last = max(last, stamp[0])
    first = min((ns for _, ns, _, _ in packets if ns), default=0)
    span, turns, written = last - first + 1_000_000, 0, 0
    with opened(out, "wb") as file:
        while written < wanted or turns == 0:
            parts = []
            for head, ns, tail, flows in packets:
                for at in flows:
                    flow = int.from_bytes(tail[at:at + 8], "little") + (turns << 40) & (1 << 64) - 1
                    tail = tail[:at] + flow.to_bytes(8, "little") + tail[at + 8:]
                body = head + b"\x40" + varint(ns + turns * span) + tail if ns else head
                parts.append(b"\x0a" + varint(len(body)) + body)
            written += file.write(b"".join(parts))
            turns += 1
    return turns, written


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, out, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with opened(source, "rb") as file:
        text = file.read()
    if not text.lstrip()[:1] in (b"{", b"["):
        turns, written = repeat_perfetto(text, out, wanted)
        print(f"{out}: {turns} times {source}, {written} bytes")
        return
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
