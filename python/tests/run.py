# SPDX-License-Identifier: Apache-2.0
"""run.py FOLDER [--torch] [pytest's arguments]: the tests of the package that lies in FOLDER (build/python), or with - of
the one that is installed. With --torch those that know PyTorch, by the Python that `make deps-torch` made, or else by this
one. What is missing for them is said in a line that begins with "not run: ", and the exit status is 77 then."""

import importlib.util
import os
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
WITH_TORCH = HERE.parents[1] / '.venv-torch/bin/python3'
NOT_RUN = 77


def missing(names: list[str], command: str) -> bool:
    absent = [name for name in names if importlib.util.find_spec(name) is None]
    if absent:
        print(f'not run: {sys.executable} has no {" and no ".join(absent)} ({command})')
    return bool(absent)


def main() -> int:
    folder, *arguments = sys.argv[1:]
    tests = [str(HERE)]
    if '--torch' in arguments:
        is_its_own = pathlib.Path(sys.prefix).resolve() == WITH_TORCH.parents[1].resolve()
        if WITH_TORCH.exists() and not is_its_own:
            os.execv(WITH_TORCH, [str(WITH_TORCH), __file__, *sys.argv[1:]])
        if missing(['torch'], 'make deps-torch'):
            return 1 if is_its_own else NOT_RUN
        arguments.remove('--torch')
        asks_for_it = re.compile(r"(importorskip|find_spec)\('torch'|from torch_or_skip")
        tests = [str(path) for path in sorted(HERE.glob('test_*.py')) if asks_for_it.search(path.read_text())]
    if missing(['numpy', 'pytest'], 'make deps-python'):
        return NOT_RUN
    import pytest

    if folder != '-':
        sys.path.insert(0, str(pathlib.Path(folder).resolve()))
    return int(pytest.main(['-q', '-p', 'no:cacheprovider', '-p', 'no:logging', f'--rootdir={HERE}', *tests, *arguments]))


if __name__ == '__main__':
    sys.exit(main())
