# SPDX-License-Identifier: Apache-2.0
"""docs/guide/python/ and the how-tos are true: their Python stands in programs that run, and their output is the programs'."""

import os
import pathlib
import re
import subprocess
import sys

import pytest

import paoding

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGE = str(pathlib.Path(paoding.__file__).parents[1])
PROGRAMS = ROOT / 'python/examples'
CHAPTERS = sorted((ROOT / 'docs/guide/python').glob('[0-9]_*.md'))
# A page, and the program that it says is its own.
PAGES = {
    page: ROOT / found[1]
    for page in [*CHAPTERS, *sorted((ROOT / 'docs/howto').glob('*.md'))]
    if (found := re.search(r'\[(python/examples/[a-z_/]+\.py)\]', page.read_text()))
}


def blocks(page, language):
    return re.findall(rf'^```{language}\n(.*?)^```$', page.read_text(), re.DOTALL | re.MULTILINE)


def lines_of(text):
    """Without indentation, and without the blank lines that lie between functions."""
    return [line.strip() for line in text.split('\n') if line.strip()]


def shape_of(line):
    """Numbers, of which others come on another machine, as #; blanks as one."""
    return re.sub(' +', ' ', re.sub(r'\d+(\.\d+)?(e[-+]?\d+)?', '#', line)).strip()


def stands_in(part, whole):
    return any(whole[i : i + len(part)] == part for i in range(len(whole) - len(part) + 1))


def test_there_are_five_chapters_with_a_program_each():
    assert [page.stem[2:] for page in CHAPTERS] == ['first_model', 'recurrence', 'training', 'serving', 'profiling']
    for page in CHAPTERS:
        assert PAGES[page] == PROGRAMS / f'guide/{page.stem[2:]}.py'
        assert len(blocks(page, 'python')) >= 3


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_code_stands_in_the_program(page):
    program = lines_of(PAGES[page].read_text())
    for block in blocks(page, 'python'):
        assert stands_in(lines_of(block), program), block


@pytest.mark.parametrize('page', PAGES, ids=lambda page: page.stem)
def test_output_is_what_the_program_prints(page, tmp_path):
    environment = {**os.environ, 'PYTHONPATH': PACKAGE, 'CUDA_VISIBLE_DEVICES': '-1', 'TMPDIR': str(tmp_path)}
    done = subprocess.run([sys.executable, str(PAGES[page])], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    printed = [shape_of(line) for line in done.stdout.split('\n')]
    for block in blocks(page, 'text'):
        lines = [shape_of(line) for line in block.rstrip('\n').split('\n')]
        if '..' in lines:  # of a table sorted by time, whose order is the machine's, some rows are left out
            assert all(any(each.endswith(line) for each in printed) for line in lines if line != '..'), done.stdout
            continue
        ends = [[each.endswith(line) for each, line in zip(printed[i:], lines, strict=False)] for i in range(len(printed))]
        assert any(all(each) and len(each) == len(lines) for each in ends), block + done.stdout


def test_a_training_that_lost_a_checkpoint_goes_on_to_the_same_bits(tmp_path):
    def run():
        environment = {**os.environ, 'PYTHONPATH': PACKAGE, 'CUDA_VISIBLE_DEVICES': '-1'}
        command = [sys.executable, str(PROGRAMS / 'guide/training.py'), str(tmp_path / 'run')]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    first = run()
    last = max((tmp_path / 'run').glob('step-*'))
    weights = paoding.load_checkpoint(last).tensors
    for file in last.iterdir():
        file.unlink()
    last.rmdir()
    second = run()
    assert second.startswith('goes on after epoch 15')
    assert second.split('\n')[1:] == first.split('\n')[3:]
    again = paoding.load_checkpoint(last).tensors
    assert {name: value.numpy().tobytes() for name, value in weights.items()} == {
        name: value.numpy().tobytes() for name, value in again.items()
    }
