# SPDX-License-Identifier: Apache-2.0
"""run.py FOLDER [pytest's arguments]: the tests of the package that lies in FOLDER (build/python), or with - of the one
that is installed. What is missing for them is said in a line that begins with "not run: "."""

import importlib.util
import pathlib
import sys


def main() -> int:
    missing = [name for name in ('numpy', 'pytest') if importlib.util.find_spec(name) is None]
    if missing:
        print(f'not run: {sys.executable} has no {" and no ".join(missing)} (make deps-python)')
        return 0
    import pytest

    if sys.argv[1] != '-':
        sys.path.insert(0, str(pathlib.Path(sys.argv[1]).resolve()))
    here = str(pathlib.Path(__file__).resolve().parent)
    return int(pytest.main(['-q', '-p', 'no:cacheprovider', f'--rootdir={here}', here, *sys.argv[2:]]))


if __name__ == '__main__':
    sys.exit(main())
