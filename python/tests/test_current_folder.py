# SPDX-License-Identifier: Apache-2.0
"""The current folder may be anyone's: what lies in it under the name of a library is not loaded."""

import os
import pathlib
import re
import subprocess
import sys

import paoding as pd

PACKAGE = str(pathlib.Path(pd.__file__).parents[1])


def test_libraries_of_the_current_folder_are_not_loaded(tmp_path: pathlib.Path) -> None:
    loaded = {line.split()[-1] for line in open('/proc/self/maps') if re.search(r'/lib[^/]*\.so[.0-9]*$', line)}
    names = {path.rsplit('/', 1)[1] for path in loaded} | {'libcuda.so.1', 'libnvrtc.so.13', 'libnvrtc.so.12'}
    assert any(name.startswith('libpaoding') for name in names)
    for name in names:
        (tmp_path / name).write_text('planted')  # whoever loads it says "file too short"
    program = 'import paoding as pd; print(pd.__version__)'
    ran = subprocess.run([sys.executable, '-c', program], cwd=tmp_path, env={**os.environ, 'PYTHONPATH': PACKAGE},
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == pd.__version__
