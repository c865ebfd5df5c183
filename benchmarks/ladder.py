#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables and the pictures of docs/performance/lstm_ladder.md from what `paoding bench lstm --json` left in
benchmarks/results/lstm_ladder_*.json. With --check it only says what is not fresh.
Usage: python3 benchmarks/ladder.py [--check]"""
import glob
import json
import os
import re
import sys

import charts
from generated import ROOT, write_or_check

STORY = "docs/performance/lstm_ladder.md"
LONGEST_US = {"h200": 1000, "cpu": 15000}  # of the pictures


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
        # A training step has the forward pass in it, whatever the floor of its bytes and operations is.
        least = max((row.get("floor_us") or 0 for row in works["forward"]), default=0)
        for row in works["training"]:
            row["floor_us"] = max(row.get("floor_us") or 0, least)
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
    fastest = next(row for row in works["forward"] if row["rung"] == "paoding")
    return lines + [f"![The forward pass by rung on {machine}; paoding takes {us(fastest['us'])} us](../pictures/lstm_ladder_{name}.svg)"]


def plot(name, found):
    """A bar a rung of the forward pass, on a linear axis: those that take less than LONGEST_US, as the others would leave
    nothing of them to see."""
    machine, layer, works = found
    rungs = [row for row in works["forward"] if row["us"] is not None]
    shown = [row for row in rungs if row["us"] <= LONGEST_US[name]]
    items = [(row["rung"] + (" (paoding)" if row["ours"] and row["rung"] != "paoding" else ""), row["us"], f"{us(row['us'])} us",
              "a" if row["rung"] == "paoding" else "d" if row["ours"] else "b") for row in shown]
    floor = rungs[0]["floor_us"]
    title = (f"{machine}: an LSTM forward, {layer['steps']} steps, batch {layer['batch']}, {layer['hidden']} units, {layer['dtype']}"
             + (f"; rungs up to {LONGEST_US[name]:,} us" if len(shown) < len(rungs) else ""))
    what = title + ": " + "; ".join(f"{label} {text}" for label, _, text, _ in items)
    return charts.bars(title, what, "us of wall time; dashed: the floor", items, LONGEST_US[name], LONGEST_US[name] / 5, mark=floor)


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
        written[f"docs/pictures/lstm_ladder_{name}.svg"] = plot(name, ladder)
    raise SystemExit(write_or_check(written, "python3 benchmarks/ladder.py", checks))


if __name__ == "__main__":
    main()
