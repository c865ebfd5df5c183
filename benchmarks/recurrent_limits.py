#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/recurrent_limits.py PAODING [OUT]: up to how many units a GPU runs an LSTM as one launch for all time steps.

Plans an LSTM with and without its gradients for chips that need not be here (`paoding dump --target`), for every multiple of
64 units up to 4096, and looks whether a loop over time is left in the plan. A row of benchmarks/results/recurrent_limits.json
(OUT) has `every`: all multiples of 64 up to it run so, and `largest`: the largest of all that does; at most 4096, where it
stopped looking."""
import concurrent.futures
import datetime
import json
import os
import subprocess
import sys
import tempfile

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "results")
STEP, MOST, STEPS, INPUTS = 64, 4096, 8, 64
DTYPES = {"bf16": ["--dtype", "bf16"], "TF32": ["--tf32"], "exact f32": []}
TARGETS, BATCHES = ("h200", "h100", "a100"), (1, 8, 32, 128)


def graph(batch, units, is_training):
    b, h, g = batch, units, 4 * units
    text = f"""paoding graph 1
x = input f32[{STEPS},{b},{INPUTS}]
h0 = input f32[{b},{h}]
c0 = input f32[{b},{h}]
w = parameter f32[{INPUTS},{g}]
u = parameter f32[{h},{g}]
b = parameter f32[{g}]
dy = input f32[{STEPS},{b},{h}]
hn, cn, y = scan(h0, c0, x, w, u, b) {{carries=2, sequences=1, length={STEPS}}} [
  h = input f32[{b},{h}]
  c = input f32[{b},{h}]
  x = input f32[{b},{INPUTS}]
  w = input f32[{INPUTS},{g}]
  u = input f32[{h},{g}]
  b = input f32[{g}]
  h1, c1 = lstm_cell(x, h, c, w, u, b)
  fetch h1 = h1
  fetch c1 = c1
  fetch y = h1
]
"""
    if is_training:
        text += "dx, dw, du, db = gradients(y, dy) by (x, w, u, b)\n"
        text += "".join(f"fetch {name} = {name}\n" for name in ("dx", "dw", "du", "db"))
    return text + "fetch y = y\n"


def is_one_launch(program, target, options, text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(text)
        file.flush()
        ran = subprocess.run([program, "dump", file.name, "--plan", "--target", target, *options], capture_output=True, text=True)
    if ran.returncode != 0:
        sys.exit(ran.stderr)
    return not any(line.startswith("for ") for line in ran.stdout.split("\n"))


def row(program, target, dtype, is_training, batch):
    ok = [units for units in range(STEP, MOST + 1, STEP) if is_one_launch(program, target, DTYPES[dtype], graph(batch, units, is_training))]
    every = next((units - STEP for units in range(STEP, MOST + 1, STEP) if units not in ok), MOST)
    return {"target": target, "dtype": dtype, "training": is_training, "batch": batch, "every": every, "largest": max(ok, default=0)}


def main():
    program, out = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else os.path.join(RESULTS, "recurrent_limits.json")
    jobs = [(program, target, dtype, training, batch) for target in TARGETS for dtype in DTYPES for training in (True, False) for batch in BATCHES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = list(pool.map(lambda job: row(*job), jobs))
    commit = subprocess.run(["git", "rev-parse", "--short=8", "HEAD"], capture_output=True, text=True, cwd=RESULTS).stdout.strip()
    head = {"date": datetime.date.today().isoformat(), "commit": commit, "command": "benchmarks/recurrent_limits.py build/paoding",
            "what": "plans, nothing was run: units of an LSTM of 8 steps and 64 inputs that is one launch for all steps",
            "machine": "any; the plans are for the targets that rows name"}
    with open(out, "w") as file:
        fields = "".join(f' "{key}": {json.dumps(value)},\n' for key, value in head.items())
        file.write("{\n" + fields + ' "rows": [\n' + ",\n".join("  " + json.dumps(each) for each in rows) + "\n ]\n}\n")


if __name__ == "__main__":
    main()
