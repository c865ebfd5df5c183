#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What traces of other profilers add up to, by decoders of their own that know nothing of ours.

  tests/trace_sums.py FILE...                 a JSON object with a line per file
  tests/trace_sums.py --against PAODING FILE...  the same compared with what `PAODING report --format json` says
  tests/trace_sums.py --write                 of all in tests/recordings/others, to sums.json beside them, which the
                                              suite BinaryTraces compares with

Files: JSON of PyTorch, XLA and TensorFlow, .xplane.pb, Nsight Systems' SQLite, Perfetto, rocprof's JSON, each plain or packed
by gzip.
"""
import gzip
import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
import tempfile
import zlib
from decimal import ROUND_HALF_UP, Decimal

HERE = os.path.dirname(os.path.abspath(__file__))


def fields(data):
    """Numbers and values of a protobuf message."""
    at, end = 0, len(data)

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value & (1 << 64) - 1

    while at < end:
        key = varint()
        kind = key & 7
        if kind == 0:
            yield key >> 3, varint()
        elif kind == 1:
            yield key >> 3, struct.unpack_from("<Q", data, at)[0]
            at += 8
        elif kind == 5:
            yield key >> 3, struct.unpack_from("<I", data, at)[0]
            at += 4
        elif kind == 2:
            size = varint()
            if at + size > end:
                return  # cut off
            yield key >> 3, data[at:at + size]
            at += size
        else:
            raise ValueError(f"wire type {kind}")


def signed(value):
    return value - (1 << 64) if value >> 63 else value


class Sums:
    def __init__(self):
        self.tracks = {}
        self.copies = self.copy_ns = 0
        self.launched = self.kernels = self.kernel_ns = 0

    def kernel(self, track, ns, is_launched):
        count, total = self.tracks.get(track, (0, 0))
        self.tracks[track] = (count + 1, total + ns)
        self.kernels += 1
        self.kernel_ns += ns
        self.launched += bool(is_launched)

    def copy(self, ns):
        self.copies += 1
        self.copy_ns += ns

    def text(self):
        return {"kernels": self.kernels, "kernel_ns": self.kernel_ns, "launched": self.launched,
                "copies": self.copies, "copy_ns": self.copy_ns,
                "tracks": sorted([count, ns] for count, ns in self.tracks.values())}


def xplane(data):
    sums, planes, launches = Sums(), [], set()
    for number, plane in fields(data):
        if number != 1:
            continue
        name, lines, events, stats = b"", [], {}, {}
        for key, value in fields(plane):
            if key == 2:
                name = value
            elif key == 3:
                lines.append(value)
            elif key in (4, 5):
                entry = dict(fields(value))
                inner = dict(fields(entry.get(2, b"")))
                (events if key == 4 else stats)[entry.get(1, 0)] = inner.get(4, inner.get(2, b"")) if key == 4 \
                    else inner.get(2, b"")
        planes.append((name, lines, events, stats))

    def facts(event, stats):
        own = {"offset": 0, "duration": 0, "id": 0}
        for key, value in fields(event):
            if key == 1:
                own["id"] = value
            elif key == 2:
                own["offset"] = value
            elif key == 3:
                own["duration"] = value
            elif key == 4:
                stat = dict(fields(value))
                own[stats.get(stat.get(1, 0), b"").decode()] = stat.get(3, stat.get(4))
        return own

    for name, lines, events, stats in planes:
        if name == b"/host:CPU":
            for line in lines:
                for key, event in fields(line):
                    if key == 4:
                        own = facts(event, stats)
                        if own.get("correlation_id"):
                            launches.add(own["correlation_id"])
    for name, lines, events, stats in planes:
        if not name.startswith(b"/device:GPU:"):
            continue
        for number, line in enumerate(lines):
            if not dict((k, v) for k, v in fields(line) if k != 4).get(2, b"").startswith(b"Stream #"):
                continue
            for key, event in fields(line):
                if key != 4:
                    continue
                own = facts(event, stats)
                start, end = own["offset"] // 1000, (own["offset"] + own["duration"]) // 1000
                title = events.get(own["id"], b"")
                if "memcpy_details" in own or title.startswith((b"Memcpy", b"Memset")):
                    if not title.startswith(b"Memset"):
                        sums.copy(end - start)
                else:
                    sums.kernel((name, number), end - start, own.get("correlation_id") in launches)
    return sums


def nsight(data):
    sums = Sums()
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(data)
        file.flush()
        base = sqlite3.connect(f"file:{file.name}?mode=ro&immutable=1", uri=True)

        def columns(table):
            return {row[1] for row in base.execute(f"PRAGMA table_info({table})")}

        calls, kernels = columns("CUPTI_ACTIVITY_KIND_RUNTIME"), columns("CUPTI_ACTIVITY_KIND_KERNEL")
        launches = set()
        if calls:
            launches = set(base.execute("SELECT globalTid >> 24 & 16777215, correlationId FROM CUPTI_ACTIVITY_KIND_RUNTIME"))
        numbers = {correlation for _, correlation in launches}
        if kernels:
            pid = "globalPid >> 24 & 16777215" if "globalPid" in kernels else "NULL"
            context = "contextId" if "contextId" in kernels else "0"
            for start, end, device, where, stream, correlation, process in base.execute(
                    f'SELECT start, "end", deviceId, {context}, streamId, correlationId, {pid} FROM CUPTI_ACTIVITY_KIND_KERNEL'):
                known = correlation in numbers if process is None else (process, correlation) in launches
                sums.kernel((process, device, where, stream), end - start, known)
        if columns("CUPTI_ACTIVITY_KIND_MEMCPY"):
            for start, end in base.execute('SELECT start, "end" FROM CUPTI_ACTIVITY_KIND_MEMCPY'):
                sums.copy(end - start)
    return sums


def perfetto(data):
    sums, tracks, names, open_slices = Sums(), {}, {}, {}
    events = []
    slices = slice_ns = 0

    def packets(blob):
        for number, packet in fields(blob):
            if number != 1:
                continue
            own = {}
            for key, value in fields(packet):
                own.setdefault(key, []).append(value)
            if 50 in own:
                yield from packets(zlib.decompress(own[50][0]))
            else:
                yield own

    for own in packets(data):
        sequence = own.get(10, [0])[0]
        for interned in own.get(12, []):
            for key, value in fields(interned):
                entry = dict(fields(value))
                names[sequence, key, entry.get(1)] = entry.get(2)
        for event in own.get(11, []):
            fact = {}
            for key, value in fields(event):
                fact.setdefault(key, value)
            category = fact.get(22) or names.get((sequence, 1, fact.get(3)), b"")
            events.append((own[8][0], len(events), fact.get(9), fact.get(11, 0), category))
        for stage in own.get(53, []):
            fact = dict(fields(stage))
            sums.kernel((fact.get(11, 0), fact.get(13, fact.get(3, 0))), fact.get(2, 0), False)
    for ns, _, kind, track, category in sorted(events):
        if kind == 1:
            open_slices.setdefault(track, []).append((ns, category))
        elif kind == 2 and open_slices.get(track):
            start, category = open_slices[track].pop()
            slices += 1
            slice_ns += ns - start
            if category == b"kernel":
                sums.kernel(track, ns - start, False)
    text = sums.text()
    text.update(slices=slices, slice_ns=slice_ns)
    sums.text = lambda: text
    return sums


def rocprof(data):
    sums, whole = Sums(), json.loads(data.decode("utf-8", "replace"))
    if "rocprofiler-sdk-tool" not in whole:
        places = {e["pid"]: e["args"]["name"] for e in whole["traceEvents"] if e.get("ph") == "M" and e["name"] == "process_name"}
        for event in whole["traceEvents"]:
            args = event.get("args", {})
            if event.get("ph") != "X" or "BeginNs" not in args:
                continue
            ns = int(args["EndNs"]) - int(args["BeginNs"])
            place = places.get(event["pid"], places.get(str(event["pid"]), ""))
            if "COPY" in place:
                sums.copy(ns)
            elif place.startswith("GPU"):
                sums.kernel((args["pid"], args.get("dev-id"), args.get("queue-id")), ns, False)
        return sums
    tools = whole["rocprofiler-sdk-tool"]
    for tool in tools if isinstance(tools, list) else [tools]:
        records = tool["buffer_records"]
        calls = {r["correlation_id"]["internal"] for kind in records for r in records[kind] if kind in ("hip_api", "hsa_api")}
        for r in records.get("kernel_dispatch", []):
            info = r["dispatch_info"]
            track = (tool["metadata"]["pid"], info["agent_id"]["handle"],
                     r["stream_id"]["handle"] if "stream_id" in r else info["queue_id"]["handle"])
            sums.kernel(track, r["end_timestamp"] - r["start_timestamp"], r["correlation_id"]["internal"] in calls)
        for r in records.get("memory_copy", []):
            sums.copy(r["end_timestamp"] - r["start_timestamp"])
    return sums


class JsonSums(Sums):
    def __init__(self):
        super().__init__()
        self.fills = self.fill_ns = self.ops = 0

    def text(self):
        return super().text() | {"fills": self.fills, "fill_ns": self.fill_ns, "ops": self.ops}


JSON_KINDS = {"kernel": 0, "Kernel": 0, "gpu_memcpy": 1, "Memcpy": 1, "gpu_memset": 2, "Memset": 2}


def whole_ns(microseconds):
    return int((Decimal(microseconds) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_UP))


def kind_of_xla(event, streams):
    """Of what XLA writes: 0 to 2 as in JSON_KINDS, None on the host."""
    if (event.get("pid"), event.get("tid")) not in streams:
        return None
    name = event["name"]
    if re.match(r"Memcpy(H2D|D2H|D2D|P2P|H2H)", name):
        return 1
    return 2 if "memset" in name or "Memset" in name else 0


def trace_json(data):
    """PyTorch's, XLA's and TensorFlow's, by Python's JSON and decimals."""
    trace = json.loads(data.decode("utf-8", "replace"), parse_float=str, parse_int=str)
    sums, events = JsonSums(), trace["traceEvents"] if isinstance(trace, dict) else trace
    devices = {e["pid"] for e in events if e.get("name") == "process_name" and "/device:GPU" in e["args"]["name"]}
    streams = {(e["pid"], e["tid"]) for e in events
               if e.get("name") == "thread_name" and e["pid"] in devices and e["args"]["name"].startswith("Stream")}
    number = "correlation_id" if streams else "correlation"

    def is_call(event):
        on_stream = (event.get("pid"), event.get("tid")) in streams
        return not on_stream if streams else event.get("cat") in ("cuda_runtime", "cuda_driver", "Runtime")

    calls = {e["args"][number] for e in events if is_call(e) and number in (e.get("args") or {})}
    for event in events:
        if event.get("ph") != "X":
            continue
        sums.ops += event.get("cat") in ("cpu_op", "Operator") and not event["name"].startswith("enumerate(DataLoader)")
        kind = kind_of_xla(event, streams) if streams else JSON_KINDS.get(event.get("cat"))
        if kind is None:
            continue
        start, duration = whole_ns(event["ts"]), whole_ns(event.get("dur", "0"))
        if duration < 0 or (start == 0 and duration == 0):
            continue
        if kind == 0:
            args = event.get("args") or {}
            sums.kernel((event.get("pid"), event.get("tid")), duration, args.get(number) in calls)
        elif kind == 1:
            sums.copy(duration)
        else:
            sums.fills, sums.fill_ns = sums.fills + 1, sums.fill_ns + duration
    return sums


def sums_of(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:2] == b"\x1f\x8b":
        data = gzip.decompress(data)
    if data.startswith(b"SQLite format 3\0"):
        return nsight(data).text()
    if data.lstrip()[:1] in (b"{", b"["):
        return (rocprof if b'"rocprofiler-sdk-tool"' in data[:256] or b'"BeginNs"' in data else trace_json)(data).text()
    first = next(fields(data))[1]
    is_xplane = all(key <= 6 for key, _ in fields(first)) and any(key == 2 for key, _ in fields(first))
    return (xplane if is_xplane else perfetto)(data).text()


def main(args):
    if args[:1] == ["--write"]:
        folder = os.path.join(HERE, "recordings", "others")
        names = sorted(name for name in os.listdir(folder) if name.endswith(".gz"))
        with open(os.path.join(folder, "sums.json"), "w") as file:
            sums = [(name, sums_of(os.path.join(folder, name))) for name in names]
            lines = [f"{json.dumps(name)}: {json.dumps(own)}" for name, own in sums]
            file.write("{\n" + ",\n".join(lines) + "\n}\n")
        return 0
    if args[:1] != ["--against"]:
        for path in args:
            print(json.dumps(path), json.dumps(sums_of(path)))
        return 0
    failed = 0
    for path in args[2:]:
        theirs = json.loads(subprocess.run([args[1], "report", path, "--format", "json"], check=True, capture_output=True).stdout)
        own, ns = sums_of(path), theirs["records"]["gpu_ns"]
        failed += own["kernel_ns"] != ns
        print(f"{path}: {own['kernels']} kernels, {own['kernel_ns']} ns, paoding says {ns}{'' if own['kernel_ns'] == ns else ': DIFFERS'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
