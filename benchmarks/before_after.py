# SPDX-License-Identifier: Apache-2.0
"""docs/pictures/before_after.svg: where a training step of an LSTM spends its time on a GPU when paoding runs it with its
passes off and on, on one axis, from the two recorded reports. performance.py writes it.

A report sums an op's launches over all steps, so a segment is one op's launches together, as long as they took in one step;
segments stand by kind, not in the order in which launches ran."""
import os
import re

import charts
from judged import RESULTS

STEPS = 20
KINDS = [("matrix products", "c"), ("the recurrence's own kernels", "a"), ("elementwise ops and sums", "d"),
         ("copies (concat, slice, stack)", "b")]


def kind_of(name):
    if re.search(r"lstm_recurrence$|lstm_recurrence_grad/lstm_recurrence_grad$", name):
        return 1
    if name.endswith("matmul"):
        return 0
    if re.search(r"sigmoid|tanh|mul|add|sub", name):
        return 2
    if re.search(r"/(concat|slice|reshape|expand|pad)$|scan_(stack|element|carry|start)|slice\*|reshape\+|\{slice|fill$", name):
        return 3
    return 2


def report(name):
    """(launches a run, median ms of a step, [(event, launches of a step, ms of a step)] of what ran on the GPU)."""
    with open(os.path.join(RESULTS, name)) as file:
        text = file.read()
    launches = int(re.search(r": (\d+) launches per run", text)[1])
    wall = float(re.search(r"each waited for: median ([\d.]+) ms", text)[1])
    rows = []
    events = text[text.index("- Event Summary -"):]
    for event, calls, gpu in re.findall(r"^thread0::(.+?)  +~(\d+) +~[\d.]+ +[\d.]+ \([\d.]+\) +([\d.]+) \(", events, re.M):
        rows.append((event, int(calls) / STEPS, float(gpu) / STEPS))
    return launches, wall, rows


def picture():
    left, width, most, top, tall = 20, 720, 4.0, 116, 58
    x = lambda ms: left + width * ms / most
    bars = [("paoding, passes off", *report("report_off.txt")), ("paoding, passes on", *report("report_on.txt"))]
    title = "One training step of an LSTM on an H200: 64 time steps, batch 32, 512 units, f32"
    note = "Both are paoding: the same program without and with its compiler passes. PyTorch is not in this picture."
    what = title + ". " + note + " " + "; ".join(f"{name}: {launches:,} launches, {wall:.2f} ms" for name, launches, wall, _ in bars)
    bottom = top + 2 * (tall + 34)
    out = charts.head(left + width + 30, bottom + 46, title, what)
    out.append(f'<text class="dim" x="10" y="41">{note}</text>')
    at = left
    for label, kind in KINDS:
        out.append(f'<rect class="{kind}" x="{at}" y="56" width="12" height="12"/><text x="{at + 17}" y="67">{label}</text>')
        at += 40 + 6.4 * len(label)
    out += charts.axis(x, most, 0.5, top - 24, bottom, "milliseconds")
    for i, (name, launches, wall, rows) in enumerate(bars):
        y = top + i * (tall + 34)
        out.append(f'<text x="{left}" y="{y - 7}" style="font-weight:bold">{name}: {launches:,} launches, {wall:.2f} ms a step</text>')
        begin = 0.0
        for index, (label, kind) in enumerate(KINDS):
            some = [row for row in rows if kind_of(row[0]) == index]
            for event, calls, ms in sorted(some, key=lambda row: -row[2]):
                out.append(f'<rect class="{kind}" x="{x(begin):.2f}" y="{y}" width="{max(x(begin + ms) - x(begin) - 0.4, 0.3):.2f}" height="{tall}">'
                           f'<title>{event.split("{")[0]}: {calls:g} launches, {ms * 1000:.0f} us</title></rect>')
                begin += ms
            count, ms = sum(row[1] for row in some), sum(row[2] for row in some)
            if ms > 0.12:
                middle = x(begin - ms / 2)
                out.append(f'<text class="in" x="{middle:.1f}" y="{y + tall / 2 - 2:.1f}" text-anchor="middle">{count:,.0f} ×</text>')
                out.append(f'<text class="in" x="{middle:.1f}" y="{y + tall / 2 + 13:.1f}" text-anchor="middle">{ms:.2f} ms</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
