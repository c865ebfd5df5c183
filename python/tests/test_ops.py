# SPDX-License-Identifier: Apache-2.0
"""Every op, called by its Python function in the cases that it declares: what PyTorch gave for them is recorded in
tests/reference/peer/recorded/. Gradients are those of pd.gradients."""

import collections
import gzip
import inspect
import pathlib
import re

import numpy as np
import pytest

import paoding as pd

RECORDED = pathlib.Path(__file__).parents[2] / 'tests' / 'reference' / 'peer' / 'recorded'
SAMPLES = 6  # as in tests/reference/peer_test.cpp
STATEMENT = re.compile(
    r'(?P<left>[\w, ]*) = (?P<op>\w+)\((?P<inputs>[^)]*)\)(?: \{(?P<attrs>.*)\})?(?: by \((?P<by>.*)\))?$'
)
TYPE = re.compile(r'(\w+)\[([\d,]*)\]')


def recorded(name):
    return gzip.decompress((RECORDED / f'{name}.gz').read_bytes())


def recorded_numbers(which, folder):
    path = folder / f'{which}.safetensors'
    path.write_bytes(recorded(f'ops.{which}.safetensors'))
    return pd.load_safetensors(path)[which].astype('f64').numpy()


def graphs(folder):
    """Name, lines, and the numbers of its feeds and results; the files are unpacked into `folder`."""
    feeds, results = recorded_numbers('feeds', folder), recorded_numbers('results', folder)
    at = {'feeds': 0, 'results': 0}

    def take(which, numbers, count):
        at[which] += count
        return numbers[at[which] - count : at[which]]

    for part in recorded('ops.txt').decode().split('### ')[1:]:
        name, text = part.split('\n', 1)
        yield (
            name,
            text.strip().split('\n')[1:],
            lambda n: take('feeds', feeds, n),
            lambda n: take('results', results, n),
        )


def attrs_of(text):
    """{axes=[0,-1], keepdims=true} as keyword arguments."""
    attrs = {}
    for name, value in re.findall(r'(\w+)=(\[[^]]*\]|\"[^\"]*\"|[^,]+)', text or ''):
        if value.startswith('['):
            made = [
                float(each) if re.search(r'[.einf]', each) else int(each) for each in value[1:-1].split(',') if each
            ]
        elif value.startswith('"'):
            made = value[1:-1]
        elif value in ('true', 'false'):
            made = value == 'true'
        elif value in pd.DType.__members__:
            made = getattr(pd.DType, value)
        else:
            made = float(value) if re.search(r'[.ein]', value) else int(value)
        attrs[name] = made
    return attrs


def built(lines, graph):
    """The graph that the lines say, by functions of paoding.ops; names of its fetches."""
    values, fetches = {}, []
    for line in lines:
        if line.startswith('fetch '):
            fetches.append(line[6:])
            graph.fetch(line[6:], values[line[6:]])
            continue
        if ' = input ' in line:
            name, text = line.split(' = input ')
            dtype, extents = TYPE.match(text).groups()
            values[name] = graph.input(name, dtype, [int(each) for each in extents.split(',') if each])
            continue
        found = STATEMENT.match(line)
        left = found['left'].split(', ')
        if found['op'] == 'gradients':
            outputs, seeds = found['inputs'].split('; ') if ';' in found['inputs'] else found['inputs'].split(', ')
            named = [[values[name] for name in each.split(', ')] for each in (outputs, seeds, found['by'])]
            made = pd.gradients(named[0], named[2], named[1])
        else:
            made = called(
                found['op'], [values[name] for name in found['inputs'].split(', ') if name], attrs_of(found['attrs'])
            )
        values.update(zip(left, made if isinstance(made, (tuple, list)) else [made], strict=True))
    return fetches


VARIADIC = {'add_n', 'concat', 'stack'}


def called(op, inputs, attrs):
    if not hasattr(pd.ops, op):  # iota, constant .., and what is after a function of another form
        return pd.call(op, *inputs, **attrs)
    function = getattr(pd.ops, op)
    names = {name.removeprefix('has_'): name for name in inspect.signature(function).parameters} | {'axes': 'axis'}
    return function(*([inputs] if op in VARIADIC else inputs), **{names[name]: value for name, value in attrs.items()})


def difference(got, wanted, limit):
    """As tests/reference/peer_test.cpp has it: size, sum and a few elements."""
    flat = got.reshape(-1)
    if flat.size != wanted[0]:
        return 'has another size'
    size = max(1.0, flat.size)
    scale = max(1.0, wanted[2] / size)
    if not np.isfinite(wanted[2]) or wanted[2] > 1e6 * size:
        return ''
    if not abs(flat.sum() - wanted[1]) <= limit * scale * size:
        return f'has the sum {flat.sum()}, not {wanted[1]}'
    for i, sample in enumerate(wanted[3:]):
        mine = flat[i * flat.size // (len(wanted) - 3)]
        if not abs(mine - sample) <= limit * max(scale, abs(sample)):
            return f'sample {i} is {mine}, not {sample}'
    return ''


def test_every_op_gives_what_pytorch_gave(tmp_path):
    problems, compared = [], collections.Counter()
    for name, lines, take_feeds, take_results in graphs(tmp_path):
        inputs = [TYPE.search(line).groups() for line in lines if ' = input ' in line]
        names = [line.split(' = ')[0] for line in lines if ' = input ' in line]
        feeds = {}
        for each, (dtype, extents) in zip(names, inputs):
            shape = [int(extent) for extent in extents.split(',') if extent]
            numbers = take_feeds(int(np.prod(shape)))
            feeds[each] = pd.Tensor(numbers.reshape(shape).copy()).astype(dtype)
        is_recorded = take_results(1)[0] == 1
        with pd.Graph() as graph:
            fetches = built(lines, graph)
        if not is_recorded:
            continue
        results = pd.Program(graph).run(feeds)
        limit = 1e-5 if 'f32[' in str(graph) else 1e-10
        for fetch in fetches:
            got = results[fetch].astype('f64').numpy()
            problem = difference(got, take_results(3 + min(SAMPLES, got.size)), limit)
            if problem:
                problems.append(f'{name}: {fetch} {problem}')
        compared[name.split('/')[0]] += 1
    assert not problems, '\n'.join(problems[:20])
    assert len(compared) > 120


def test_every_op_has_a_function():
    structural = {
        'assign',
        'barrier',
        'branch',
        'checkpoint',
        'constant',
        'full',
        'group',
        'input',
        'iota',
        'parameter',
    }
    structural |= {'print', 'scan', 'variant', 'while'}
    others = set(pd._paoding.op_names()) - set(pd.ops.__all__) - structural - set(pd.own_ops.defined)
    assert all(hasattr(pd, name) for name in others), others
    assert len(others) < 20


@pytest.mark.parametrize('name', sorted(set(pd.__dict__) & set(pd.ops.__all__)))
def test_a_function_says_what_it_does(name):
    assert getattr(pd, name).__doc__
