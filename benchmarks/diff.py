#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `paoding diff` makes of one build beside itself, and how processes of one build differ here.

  benchmarks/diff.py benchmarks/results/diff.json [--pairs 20] [--series 100] [--change 8]

--pairs: so many processes a side of `paoding bench` in turns, A and B the same: the verdict has to be no change. --series: the
medians of so many processes in the order they ran, which the suite DiffPower draws from. --change: so many processes a side of a graph with and without fused groups: which ops
make the difference. Each replaces what the file has of it.
"""
import argparse
import datetime
import json
import os
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CASES = "lerp_grad/3,lstm/forward/t64_b1_h128_f32"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ")


def pairs(program, a, b, count):
    before, begun = os.getloadavg(), now()
    command = [program, "diff", "--json", "--runs", str(count), "--", *a, "--", *b]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout:
        raise SystemExit(done.stderr)
    diff = json.loads(done.stdout)
    return {"command": " ".join(["paoding", *command[1:]]), "machine": diff["a"]["machines"], "when": begun,
            "load": [before[0], os.getloadavg()[0]], "exit_code": done.returncode, "diff": diff}


def series(program, bench, count):
    before, begun, rows, machine = os.getloadavg(), now(), {}, ""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "rows.json")
        for _ in range(count):
            subprocess.run([program, *bench, "--json", report], check=True, stdout=subprocess.DEVNULL)
            with open(report) as file:
                made = json.load(file)
            machine = made["machine"]
            for row in made["rows"]:
                rows.setdefault(f"{row['case']} {row['cache']} {row['clock']}", []).append(row["us"])
    return {"command": " ".join(["paoding", *bench]), "machine": machine, "when": begun,
            "load": [before[0], os.getloadavg()[0]], "us": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", help="read, extended and written")
    parser.add_argument("--paoding", default=os.path.join(HERE, "..", "build", "paoding"))
    parser.add_argument("--pairs", type=int, default=0)
    parser.add_argument("--series", type=int, default=0)
    parser.add_argument("--change", type=int, default=0)
    arguments = parser.parse_args()
    try:
        with open(arguments.json) as file:
            results = json.load(file)
    except OSError:
        results = {}
    bench = ["bench", "--filter", CASES, "--device", "cpu", "--quick"]
    if arguments.pairs:
        results["pairs"] = pairs(arguments.paoding, bench, bench, arguments.pairs)
    if arguments.change:
        run = ["run", "examples/graphs/lerp_grad.txt", "--device", "cpu", "--random", "7", "--repeat", "50"]
        results["change"] = pairs(arguments.paoding, [*run, "--no-pass", "fuse_groups"], run, arguments.change)
    if arguments.series:
        results["series"] = series(arguments.paoding, bench, arguments.series)
    with open(arguments.json + ".new", "w") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(arguments.json + ".new", arguments.json)


if __name__ == "__main__":
    main()
