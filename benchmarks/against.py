# SPDX-License-Identifier: Apache-2.0
"""Rows of an old build beside those of this one, for `benchmarks/compare --against OLD`: every case by processes of both in
turns, old new new old old new .., each of which measures it once, with --together several cases one after another; the
verdicts are `paoding diff`'s."""
import datetime
import json
import os
import subprocess


def program_of(old):
    """The program of OLD: a bundle, a build folder, or the program itself. Error (SystemExit) where there is none."""
    path = os.path.join(old, "paoding") if os.path.isdir(old) else old
    unpack = os.path.join(old, "unpack.sh")
    if os.path.isdir(old) and not os.access(path, os.X_OK) and os.path.exists(unpack):
        subprocess.run(["sh", unpack], check=True)
    if not os.access(path, os.X_OK):
        raise SystemExit(f"compare: --against {old}: there is no program {path}")
    return path


def revision_of(program):
    """What a bundle says it was built from; None where nothing does."""
    try:
        with open(os.path.join(os.path.dirname(program), "commit")) as file:
            return file.read().strip() or None
    except OSError:
        return None


def is_of_old(turn):
    """A B B A A B B A .., as `paoding diff` takes turns."""
    return turn % 4 in (0, 3)


def rows_of(program, cases, arguments, environment, place):
    """One process: the report of these cases, or the reason why there is none."""
    report = os.path.join(place, "report.json")
    if os.path.exists(report):
        os.remove(report)
    command = [program, "bench", "--filter", ",".join(cases), "--device", arguments.device, "--json", report]
    command += ["--quick"] if arguments.quick else []
    command += ["--no-check"] if arguments.no_check else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.case_seconds * len(cases), env=environment,
                              stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired:
        return None, f"no answer in {arguments.case_seconds * len(cases):.0f} s"
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        return None, f"exit code {done.returncode}: {last[:200]}"
    with open(report) as file:
        made = json.load(file)
    made["rows"] = [row for row in made["rows"] if row["case"] in cases and row.get("us") is not None]
    missing = set(cases) - {row["case"] for row in made["rows"]}
    return (None, f"nothing to measure in {', '.join(sorted(missing))}") if missing else (made, None)


def parts_of(cases, most):
    return [cases[first : first + most] for first in range(0, len(cases), most)]


def compare_with(cases, arguments, environment, place, seconds_left, note):
    """Measures and writes arguments.json; the exit code of `paoding diff`."""
    programs = {"old": program_of(arguments.against), "new": arguments.paoding}
    reports = {turn: None for turn in range(2 * arguments.processes)}
    left, why_not, begun = 0, {}, datetime.datetime.now(datetime.timezone.utc)
    for part in parts_of([case["case"] for case in cases], arguments.together):
        if seconds_left() <= 0:
            left += len(part)
            continue
        found, why = {}, None
        for turn in reports:
            side = "old" if is_of_old(turn) else "new"
            found[turn], why = rows_of(programs[side], part, arguments, environment, place)
            if why:
                break
        if why:
            why_not.update({case: f"{side}: {why}" for case in part})
            note(f"{', '.join(part)}: {side}: {why}")
            continue
        for turn, report in found.items():
            if reports[turn] is None:
                reports[turn] = {**report, "turn": turn}
            else:
                reports[turn]["rows"] += report["rows"]
        note(f"{', '.join(part)}: {2 * arguments.processes} processes")
    if reports[0] is None:
        raise SystemExit("compare: no case was measured by both builds")
    files = {"old": [], "new": []}
    for turn, report in reports.items():
        side = "old" if is_of_old(turn) else "new"
        files[side].append(os.path.join(place, f"{side}_{turn:02}.json"))
        with open(files[side][-1], "w") as file:
            json.dump(report, file)
    diff = [arguments.paoding, "diff", "--before", *files["old"], "--after", *files["new"]]
    done = subprocess.run(diff + ["--json"], capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"compare: paoding diff: {done.stderr.strip()}")
    result = {
        "what": "rows of an old build and of a new one, by processes in turns, as paoding diff sees them",
        "when": begun.strftime("%Y-%m-%dT%H:%MZ"), "machine": reports[0]["machine"], "device": reports[0]["device"],
        "processes": arguments.processes, "old": revision_of(programs["old"]), "new": revision_of(programs["new"]),
        "load": os.getloadavg()[0], "why_not": why_not, "cases_left": left, "diff": json.loads(done.stdout)}
    with open(arguments.json + ".new", "w") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    os.replace(arguments.json + ".new", arguments.json)
    print(subprocess.run(diff, capture_output=True, text=True).stdout, end="")
    print(f"compare: {len(result['diff']['rows'])} rows; {left} cases left")
    return done.returncode
