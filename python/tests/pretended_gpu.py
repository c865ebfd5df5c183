# SPDX-License-Identifier: Apache-2.0
"""Tests that need a GPU run on the one that is not there (tests/gpu/pretend_gpu) where there is none."""

import os
import pathlib
import subprocess
import sys

import pytest

import paoding as pd

PRETENDED = pathlib.Path(pd.__file__).parents[2] / 'pretend_gpu'
IS_PRETENDED = os.environ.get('PAODING_CUDA_PATH') == str(PRETENDED)


def is_there():
    with pd.Graph() as graph:
        graph.fetch('x', graph.input('x', pd.f32, 1) * 2)
    try:
        return pd.Program(graph, device='cuda') is not None
    except pd.DeviceError:
        return False


def run_there(file):
    """Runs the tests of a file with the pretended GPU."""
    if not (PRETENDED / 'libcuda.so.1').exists():
        pytest.skip(f'not run: no GPU here, and {PRETENDED} is not built')
    environment = {**os.environ, 'PYTHONPATH': str(PRETENDED.parent / 'python'), 'PAODING_CUDA_PATH': str(PRETENDED)}
    run = [sys.executable, '-m', 'pytest', '-q', '-p', 'no:cacheprovider', file]
    done = subprocess.run(run, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
