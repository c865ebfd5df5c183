# SPDX-License-Identifier: Apache-2.0
"""What help() shows: every public function, class and layer says what it does, and the examples in docstrings are true."""

import doctest
import importlib
import inspect
import pkgutil

import pytest

import paoding as pd

MODULES = [
    name
    for _, name, _ in pkgutil.walk_packages(pd.__path__, 'paoding.')
    if not name.startswith(('paoding.torch', 'paoding._paoding'))
]


def public():
    for module in (pd, pd.nn, pd.data, pd.metrics):
        for name in module.__all__:
            if not inspect.ismodule(getattr(module, name)):
                yield f'{module.__name__}.{name}', getattr(module, name)


def said(thing):
    """The docstring without the signature that functions of C++ begin with."""
    lines = (inspect.getdoc(thing) or '').split('\n')
    return '\n'.join(lines[1:] if ') -> ' in lines[0] else lines).strip()


def test_everything_public_has_a_docstring():
    assert [name for name, thing in public() if callable(thing) and not said(thing)] == []


@pytest.mark.parametrize('name', MODULES)
def test_the_examples_of_a_module_are_true(name):
    module = importlib.import_module(name)
    done = doctest.testmod(module, extraglobs={'pd': pd}, optionflags=doctest.IGNORE_EXCEPTION_DETAIL)
    assert done.failed == 0
