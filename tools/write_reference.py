# SPDX-License-Identifier: Apache-2.0
"""tools/write_reference.py PAODING [--check]: the pages of docs/reference/ that the program itself says: the command line
from its --help texts, the ops from its op table, and the environment variables. --check only says what is stale, or which
PAODING_* variable is read somewhere and listed nowhere."""
import glob
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "benchmarks"))
from generated import ROOT, write_or_check  # noqa: E402

WRITTEN = "<!-- Written by tools/write_reference.py; do not edit. -->"
# Variables of tests, scripts and benchmarks: none of them changes what paoding computes for its users.
OF_THE_REPOSITORY = {
    "PAODING_ALONE": "1: nothing else runs on the machine, so tests of time are strict, and the translation step's binds all of its shapes",
    "PAODING_BUILD": "the build folder that tools/check.sh looks in [build]",
    "PAODING_CLOCK_SECONDS": "how long the test of the chip's clock runs",
    "PAODING_FINDINGS_TABLE": "a file for the table of the seeded faults, and with .json behind it for its numbers",
    "PAODING_CASE_SHARE": "2/3: of the cases of emulated kernels the second of three shares; 1/1: all of them [make test: one of three]",
    "PAODING_FIRST_SCHEDULE": "the first seed of emulated schedules [1]",
    "PAODING_KEEP_CUBINS": "a folder for the compiled kernels of the tests of generated text",
    "PAODING_KERNELS": "a folder where emulated kernels are kept compiled",
    "PAODING_KILLS": "how often the test of training kills it with SIGKILL",
    "PAODING_LARGE_NODES": "nodes of the graphs that the compile-time test compares",
    "PAODING_LARGE_TESTS": "1: also test kernels over more than 2^31 elements (make test-large)",
    "PAODING_LAYERS": "words: only recurrent layers of the tests whose names have them",
    "PAODING_PAGE_RECORDINGS": "a folder for the recordings that benchmarks/page.py makes",
    "PAODING_PAGE_SPANS": "how many spans these have",
    "PAODING_PEER_CHECK": "a folder of recorded graphs that the peer test reads (tests/reference/peer/many.sh)",
    "PAODING_PEER_DEVICE": "the device of that test",
    "PAODING_PEER_MOST": "how many graphs of it at most",
    "PAODING_PEER_WRITE": "a folder where the peer test writes its graphs (tests/reference/peer/record.sh)",
    "PAODING_PRETEND_CAPABILITY": "compute capability of the pretended GPU, 70 for 7.0 [90]",
    "PAODING_RANDOM_GRAPHS": "how many random graphs are tried [200]",
    "PAODING_RANDOM_SEED": "the seed of the first of them [0]",
    "PAODING_RECORD_GOLDEN": "1: write tests/golden/ anew",
    "PAODING_SCHEDULES": "how many emulated schedules of each layer are tried",
    "PAODING_SHAPES": "how many random recurrent layers are compared with float64 [4]",
    "PAODING_SHAPES_SEED": "the seed of the first of them [1]",
    "PAODING_SHOW_ULPS": "1: print the errors of the CPU's functions",
    "PAODING_SINCE": "the commit from which on tools/check.sh compiles changed files by themselves, or all [HEAD~1]",
    "PAODING_SITE_FILES": "set by tools/docs.sh for its filters",
    "PAODING_SOAK_KERNELS": "kernels of the recorder's soak test",
    "PAODING_SOAK_RUNS": "runs of the recurrent kernels' soak test [300]",
    "PAODING_TRANSLATE_TRIAL": "1: the translation step's test with a small model",
    "PAODING_WANTS_GPU": "a file where tests that asked for a GPU are listed",
    "PAODING_WHEEL_ARGS": "more arguments for pip wheel (python/wheels.sh)",
    "PAODING_WRITE_TABLES": "1: python/tests/test_torch_beside.py writes its table into docs/reference/torch_nn.md",
}


def run(paoding, *arguments):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PAODING_")}
    return subprocess.run([paoding, *arguments], capture_output=True, text=True, check=True, cwd=ROOT, env=environment).stdout


def cell(text):
    return text.replace("|", "\\|")


# ---- the command line ----


def subcommands(text):
    found, inside = [], False
    for line in text.split("\n"):
        if line == "Subcommands:":
            inside = True
        elif inside and not line.startswith("  "):
            break
        elif inside and re.match(r"  \S", line):
            found.append(line.split()[0])
    return found


def command_pages(paoding, words):
    text = run(paoding, *words, "--help")
    level = "#" * (len(words) + 1)
    lines = [f"{level} paoding {' '.join(words)}".rstrip(), "", "```", *text.rstrip("\n").split("\n"), "```", ""]
    for name in subcommands(text):
        lines += command_pages(paoding, [*words, name])
    return lines


def cli_page(paoding):
    pages = command_pages(paoding, [])
    pages[0] = "# Command line"
    return "\n".join([pages[0], "", WRITTEN, "", "What each command prints for `--help`.", *pages[1:]]).rstrip("\n") + "\n"


# ---- ops ----

# Called by another name in C++ or Python than the op's own.
CALLED = {"while": "`while_loop`", "branch": "`cond`, `case_of`", "check_indices": "Python, graph text"}


def public_headers():
    text = ""
    for path in sorted(glob.glob(os.path.join(ROOT, "include", "**", "*.h"), recursive=True)):
        with open(path) as file:
            text += re.sub(r"//.*", "", file.read())
    return text


def op_pages(paoding):
    headers = public_headers()
    rows = [line for line in run(paoding, "ops", "--markdown").split("\n") if line.startswith("| `")]
    users, internal = [], []
    for row in rows:
        name = re.match(r"\| `(\w+)`", row)[1]
        (users if name in CALLED or re.search(rf"\b{name}\(", headers) else internal).append(row)
    without = [re.match(r"\| `(\w+)`", row)[1] for row in rows if row.split(" | ")[-2] == "no"]
    head = ["| op | inputs | attributes | kind | gradient | what it computes |", "|---|---|---|---|---|---|"]
    note = ["*Gradient*: yes is a rule of its own, derived means from the op's formula or from the ops that it consists of. "
            f"Of all {len(rows)}, {len(without)} have none: {', '.join(f'`{name}`' for name in without)}.", ""]
    first = ["# Ops", "", WRITTEN, "",
             f"What a function of the C++ headers or of Python builds: {len(users)} of {len(rows)}. "
             + "Under another name: " + "; ".join(f"`{op}` by {by}" for op, by in CALLED.items()) + ". "
             + f"The other {len(internal)} are [internal](internal_ops.md).", "", *note, *head, *users]
    second = ["# Internal ops", "", WRITTEN, "",
              f"What no function of the C++ headers builds, {len(internal)} of {len(rows)}: passes and gradients make them. They appear in dumps, "
              "plans and reports, and graph text may use them; their meaning may change with any version. "
              "Those to call are [here](ops.md).", "", *head, *internal]
    return "\n".join(first) + "\n", "\n".join(second) + "\n"


# ---- environment variables ----


def listed(paoding):
    """(name, meaning, without it) as `paoding --help` has them."""
    text = run(paoding, "--help").split("\nEnvironment:\n")[1]
    return re.findall(r"^  (\w+) +(.+?) \[(.*)\]$", text, re.M)


def environment_page(paoding):
    lines = ["# Environment variables", "", WRITTEN, "",
             "`paoding doctor` prints these with the values that they have; a flag is off when it is empty, `0`, `false`, `no` or `off`.", "",
             "| variable | meaning | without it |", "|---|---|---|"]
    lines += [f"| `{name}` | {cell(meaning)} | {cell(without)} |" for name, meaning, without in listed(paoding)]
    lines += ["", "## Of this repository's tests and scripts", "", "None of them changes what a program computes.", "",
              "| variable | meaning |", "|---|---|"]
    lines += [f"| `{name}` | {cell(meaning)} |" for name, meaning in sorted(OF_THE_REPOSITORY.items())]
    return "\n".join(lines) + "\n"


def variables_read():
    """PAODING_* that C++ or Python names in quotes, or a script expands: (name, file)."""
    quoted = re.compile(r"""["'](PAODING_[A-Z0-9_]+)[="']""")
    expanded = re.compile(r"\$\{?(PAODING_[A-Z0-9_]+)")
    for top in ("src", "cli", "include", "models", "python", "tests", "benchmarks", "tools", "examples", ".ci"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in names:
                pattern = expanded if name.endswith(".sh") else quoted if name.endswith((".h", ".c", ".cpp", ".py")) else None
                if pattern is None or name == "write_reference.py":
                    continue
                path = os.path.join(folder, name)
                with open(path, errors="replace") as file:
                    for found in pattern.findall(file.read()):
                        yield found, os.path.relpath(path, ROOT)


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--check"]):
        raise SystemExit("usage: python3 tools/write_reference.py PAODING [--check]")
    paoding, checks = os.path.abspath(sys.argv[1]), sys.argv[2:] == ["--check"]
    ops, internal = op_pages(paoding)
    status = write_or_check({"docs/reference/cli.md": cli_page(paoding), "docs/reference/ops.md": ops,
                             "docs/reference/internal_ops.md": internal,
                             "docs/reference/environment.md": environment_page(paoding)},
                            f"python3 tools/write_reference.py {sys.argv[1]}", checks)
    known = {name for name, _, _ in listed(paoding)} | set(OF_THE_REPOSITORY)
    for name, where in sorted(dict(variables_read()).items()):
        if name not in known:
            print(f"{where}: {name} is read and not listed: in src/base/env.cpp, or in tools/write_reference.py where it is a test's")
            status = 1
    raise SystemExit(status)


if __name__ == "__main__":
    main()
