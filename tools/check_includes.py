# SPDX-License-Identifier: Apache-2.0
"""check_includes.py BUILD SINCE: compiles single files that BUILD compiles together with others (cmake/unity.cmake), without
writing anything: a unit may hide that a file does not include what it uses. The files are those that differ from the commit
SINCE, or with `all` every one."""

import concurrent.futures
import json
import os
import re
import shlex
import subprocess
import sys


def main() -> int:
    build, since = sys.argv[1:3]
    differing = subprocess.run(["git", "diff", "--name-only", since], capture_output=True, text=True, check=False)
    changed = set(differing.stdout.split())
    jobs: dict[str, tuple[list[str], str]] = {}
    for entry in json.load(open(os.path.join(build, "compile_commands.json"), encoding="utf-8")):
        unit = entry["file"]
        if os.path.join(os.path.realpath(build), "unity", "") not in os.path.realpath(unit):
            continue
        words = [word for word in shlex.split(entry["command"]) if not word.endswith("ccache")]
        roots = [word[2:] for word in words if word.startswith("-I")]
        del words[words.index("-o") : words.index("-o") + 2]
        for place in re.findall(r'^#include "(.*)"$', open(unit, encoding="utf-8").read(), re.M):
            full = next(path for path in (os.path.join(root, place) for root in roots) if os.path.exists(path))
            path = os.path.relpath(full)
            if path in changed or since == "all":
                command = [full if word == unit else word for word in words if word != "-Wno-subobject-linkage"]
                jobs[path] = (command + ["-fsyntax-only"], entry["directory"])

    def compile_one(path: str) -> bool:
        command, folder = jobs[path]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{path}:1: does not compile by itself:\n{done.stderr.strip()}")
        return done.returncode == 0

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return 0 if all(list(pool.map(compile_one, sorted(jobs)))) else 1


if __name__ == "__main__":
    sys.exit(main())
