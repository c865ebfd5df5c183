# SPDX-License-Identifier: Apache-2.0
"""Holds predicted gains against measured ones: `paoding verify` of the programs with planted faults that a switch mends.

    python3 benchmarks/verify_findings.py --device cpu|cuda [--build build] [--runs N] [NAME..] > benchmarks/results/verify.json
Programs are those of tests/findings/programs/own.py. Each is recorded, and the finding of its planted kind is verified.
"""
import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def own_programs():
    spec = importlib.util.spec_from_file_location("own", os.path.join(ROOT, "tests/findings/programs/own.py"))
    own = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(own)
    return own


def command_of(own, asked, program):
    """The faulty program as a command, with the variables of its environment."""
    if program.command:
        return program.command(asked, True)
    path = os.path.join(asked.out, f"{program.name}.txt")
    with open(path, "w") as file:
        file.write(str(program.build(True)))
    return [asked.paoding, "run", path, "--random", "1", "--repeat", str(program.repeat or 40), "--device", asked.device,
            *program.flags["fault"]], {}


def finding_of(asked, program, recording, environment):
    words, variables = command_of(OWN, asked, program)
    subprocess.run([asked.paoding, "profile", "--path", recording, *words], check=True, capture_output=True,
                   env={**environment, **variables})
    told = subprocess.run([asked.paoding, "report", recording, "--format", "json"], check=True, capture_output=True, text=True)
    for one in json.loads(told.stdout)["findings"]["list"]:
        if one["kind"] == program.kind:
            return one, words, variables
    return None, words, variables


def verified(asked, program):
    recording = os.path.join(asked.out, f"{program.name}.paoding")
    environment = dict(os.environ)
    finding, words, variables = finding_of(asked, program, recording, environment)
    row = {"program": program.name, "kind": program.kind}
    if finding is None:
        return {**row, "outcome": "not found"}
    if not finding["verify"]:
        return {**row, "outcome": "no switch"}
    done = subprocess.run([asked.paoding, "verify", recording, str(finding["number"]), "--runs", str(asked.runs), "--most-runs", str(4 * asked.runs),
                           "--json", "--",
                           *words], capture_output=True, text=True, env={**environment, **variables})
    if not done.stdout.startswith("{"):
        raise RuntimeError(f"{program.name}: {done.stderr[-600:]}")
    told = json.loads(done.stdout)
    step = told["diff"]["rows"][0]
    return {**row, "switched": told["switched"], "predicted": told["finding"]["predicted"], "measured": told["finding"]["measured"],
            "outcome": told["finding"]["outcome"], "processes": told["diff"]["a"]["processes"], "a_ns": round(step["a_ns"]),
            "b_ns": round(step["b_ns"])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--runs", type=int, default=8, help="of each side; four times as many where that is inconclusive")
    asked = parser.parse_args()
    asked.paoding = os.path.join(os.path.abspath(asked.build), "paoding")
    asked.examples = os.path.join(os.path.abspath(asked.build), "examples")
    is_cpu = asked.device == "cpu"
    rows = []
    with tempfile.TemporaryDirectory() as asked.out:
        for name, program in OWN.PROGRAMS.items():
            if program.kind and (program.device == "cpu") == is_cpu and (not asked.names or name in asked.names):
                rows.append(verified(asked, program))
                print(rows[-1], file=sys.stderr, flush=True)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    lines = ",\n".join("    " + json.dumps(row) for row in rows)
    print(f'{{\n  "commit": "{commit}", "device": "{asked.device}", "cores": {os.cpu_count()},\n  "programs": [\n{lines}\n  ]\n}}')
    return 0


OWN = own_programs()

if __name__ == "__main__":
    sys.exit(main())
