# SPDX-License-Identifier: Apache-2.0
"""Files of the repository that a command writes: written, or only compared with what is there."""
import os

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def write_or_check(written, command, checks):
    """`written`: texts by path. The exit code: 1 where one is stale and `checks` asks for no more than saying so."""
    stale = 0
    for name, text in written.items():
        path = os.path.join(ROOT, name)
        try:
            with open(path) as file:
                old = file.read()
        except OSError:
            old = None
        if old == text:
            continue
        stale += 1
        if checks:
            line = 1 + next((i for i, (a, b) in enumerate(zip((old or "").split("\n"), text.split("\n"))) if a != b), 0)
            print(f"{name}:{line}: not what a program writes now; write it anew: {command}")
        else:
            with open(path, "w") as file:
                file.write(text)
    return 1 if checks and stale else 0
