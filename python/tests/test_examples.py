# SPDX-License-Identifier: Apache-2.0
"""Every example runs, and its types are what mypy --strict wants."""

import importlib.util
import os
import pathlib
import re
import subprocess
import sys

import pytest

import paoding

PACKAGE = str(pathlib.Path(paoding.__file__).parents[1])
FOLDER = pathlib.Path(__file__).parents[1] / 'examples'


# Those of the guide and the how-tos run in test_guide.py, with their output.
@pytest.mark.parametrize('path', sorted(FOLDER.glob('*.py')), ids=lambda path: path.stem)
def test_an_example_runs(path):
    if 'torch' in path.stem:
        pytest.importorskip('torch')
    done = subprocess.run(
        [sys.executable, str(path)], env={**os.environ, 'PYTHONPATH': PACKAGE}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


def test_types_are_strict():
    if importlib.util.find_spec('mypy') is None:
        pytest.skip('no mypy here (make deps-python)')
    has_torch = importlib.util.find_spec('torch') is not None
    checked = [str(path) for path in sorted(FOLDER.rglob('*.py')) if has_torch or 'torch' not in path.stem]
    if has_torch:
        checked = ['--untyped-calls-exclude=torch', *checked]  # of its own functions some have no types
    done = subprocess.run(
        [sys.executable, '-m', 'mypy', '--strict', '--cache-dir', os.devnull, *checked],
        env={**os.environ, 'MYPYPATH': PACKAGE},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


def blocks():
    for name in ('README.md', 'docs/reference/python.md'):
        text = (FOLDER.parents[1] / name).read_text()
        for i, block in enumerate(re.findall(r'```python\n(.*?)```', text, re.DOTALL)):
            if 'paoding.torch' not in block:
                yield pytest.param(block, id=f'{name}-{i}')


@pytest.mark.parametrize('block', list(blocks()))
def test_a_block_of_the_documents_runs(block, capsys):
    exec(compile(block, 'block', 'exec'), {})
    assert float(capsys.readouterr().out) < 3
