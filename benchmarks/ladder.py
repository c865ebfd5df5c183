#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables and the pictures of docs/cases/lstm_ladder.md from what `paoding bench lstm --json` left in
benchmarks/results/lstm_ladder_*.json. With --check it only says what is not fresh.
Usage: python3 benchmarks/ladder.py [--check]"""
import glob
import html
import json
import math
import os
import re
import sys

from generated import ROOT, write_or_check

STORY = "docs/cases/lstm_ladder.md"


def us(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def ladders():
    """By the name of the result file: what it measured and its rungs, those of one kind of work together."""
    found = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "benchmarks/results/lstm_ladder_*.json"))):
        with open(path) as file:
            results = json.load(file)
        name = os.path.basename(path)[len("lstm_ladder_"):-len(".json")]
        layer, *rows = results["rows"]
        works = {work: [row for row in rows if row["work"] == work] for work in ("forward", "training")}
        found[name] = (results["machine"], layer, {work: rows for work, rows in works.items() if rows})
    return found


def table(name, found):
    machine, layer, works = found
    lines = [f"{machine}: {layer['steps']} steps, batch {layer['batch']}, {layer['hidden']} units, {layer['dtype']}.", ""]
    for work, rows in works.items():
        lines += [f"| {work} | us | times | us a step | of floor |", "|---|---|---|---|---|"]
        for row in rows:
            label = f"**{row['rung']}**" if row["rung"] == "paoding" else row["rung"] + (" (paoding)" if row["ours"] else "")
            if row["us"] is None:
                lines.append(f"| {label} | - | | | {row['why'].splitlines()[0][:80]} |")
                continue
            floor = f"{100 * row['floor_us'] / row['us']:.0f}%" if row.get("floor_us") else "-"
            lines.append(f"| {label} | {us(row['us'])} | {row['times']:.1f} | {row['us_a_step']:.2f} | {floor} |")
        lines.append("")
    return lines + [f"![The rungs, as bars](../pictures/lstm_ladder_{name}.svg)"]


def plot(found):
    """A bar a rung, on a scale of powers of ten."""
    machine, layer, works = found
    left, width, step, top = 300, 420, 18, 44
    bars = [(work, row) for work, rows in works.items() for row in rows if row["us"] is not None]
    least = 10 ** math.floor(math.log10(min(row.get("floor_us") or row["us"] for _, row in bars)))
    most = 10 ** math.ceil(math.log10(max(row["us"] for _, row in bars)))
    x = lambda value: left + width * math.log(max(value, least) / least) / math.log(most / least)
    height = top + step * (len(bars) + len(works)) + 12
    title = f"{machine}: an LSTM of {layer['hidden']} units, {layer['steps']} steps, batch {layer['batch']}, {layer['dtype']}; us"
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
           'font-family="sans-serif" font-size="11">', '<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="8" y="18" font-size="13">{html.escape(title)}</text>']
    power = least
    while power <= most:
        out.append(f'<line x1="{x(power):.1f}" y1="{top - 4}" x2="{x(power):.1f}" y2="{height - 8}" stroke="#dddddd"/>')
        out.append(f'<text x="{x(power):.1f}" y="{top - 8}" text-anchor="middle" fill="#666666">{power:g}</text>')
        power *= 10
    y = top
    for work, rows in works.items():
        out.append(f'<text x="8" y="{y + 13}" font-weight="bold">{work}</text>')
        y += step
        for row in rows:
            if row["us"] is None:
                continue
            colour = "#c0392b" if row["rung"] == "paoding" else "#e59e96" if row["ours"] else "#7f8c8d"
            out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{html.escape(row["rung"])}</text>')
            out.append(f'<rect x="{left}" y="{y + 3}" width="{x(row["us"]) - left:.1f}" height="12" fill="{colour}"/>')
            out.append(f'<text x="{x(row["us"]) + 4:.1f}" y="{y + 12}">{us(row["us"])}</text>')
            y += step
        floor = next((row.get("floor_us") for row in rows if row.get("floor_us")), None)
        if floor:
            count = sum(row["us"] is not None for row in rows)
            out.append(f'<line x1="{x(floor):.1f}" y1="{y - step * count}" x2="{x(floor):.1f}" y2="{y}" '
                       'stroke="#2c3e50" stroke-dasharray="3,2"/>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main():
    checks = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checks:
        raise SystemExit(__doc__)
    found = ladders()
    with open(os.path.join(ROOT, STORY)) as file:
        story = file.read()

    def fill(match):
        name = match.group(1)
        if name not in found:
            raise SystemExit(f"{STORY}: there is no benchmarks/results/lstm_ladder_{name}.json")
        return f"<!-- ladder {name} -->\n" + "\n".join(table(name, found[name])) + "\n<!-- end -->"
    written = {STORY: re.sub(r"<!-- ladder (\w+) -->\n.*?<!-- end -->", fill, story, flags=re.S)}
    for name, ladder in found.items():
        written[f"docs/pictures/lstm_ladder_{name}.svg"] = plot(ladder)
    raise SystemExit(write_or_check(written, "python3 benchmarks/ladder.py", checks))


if __name__ == "__main__":
    main()
