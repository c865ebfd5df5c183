# SPDX-License-Identifier: Apache-2.0
"""Programs of many sizes: extents, buckets, and functions of arrays of any size, held against programs of one size."""

import doctest
import gc

import numpy as np
import pytest

import paoding as pd


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def model(batch, time):
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (time, batch, 3))
        states = pd.nn.LSTM('lstm', 3, 4)(x).outputs
        graph.fetch('y', pd.nn.Linear('out', 4, 2)(states))
    return graph


def test_the_examples_of_docstrings_are_true():
    for name in ('Programs', 'Function', 'function'):
        examples = doctest.DocTestFinder(recurse=False).find(getattr(pd, name), name, globs={'pd': pd})
        assert examples and examples[0].examples, name
        for example in examples:
            done = doctest.DocTestRunner(optionflags=doctest.IGNORE_EXCEPTION_DETAIL).run(example)
            assert done.failed == 0, name


@pytest.mark.parametrize(
    ('buckets', 'wanted'),
    [
        (None, {0: 0, 1: 1, 7: 7, 20: 20}),
        (pd.multiples_of(8), {0: 0, 1: 8, 8: 8, 9: 16, 17: 20}),
        (pd.powers_of_two(), {0: 0, 1: 1, 3: 4, 5: 8, 17: 20}),
        (pd.bucket_sizes([4, 9]), {0: 4, 4: 4, 5: 9}),
        (pd.buckets_by(lambda size: size | 1), {0: 1, 4: 5, 19: 19}),
    ],
)
def test_a_size_has_the_bucket_of_its_rule(buckets, wanted):
    extents = pd.Extents({'time': (0, 20, buckets)})
    assert {size: extents.bucket_of(time=size)['time'] for size in wanted} == wanted
    assert extents.bounds('time') == (0, 20)
    assert pd.Extents({'n': None}).bounds('n') == (1, None)


def test_extents_name_themselves_in_errors():
    extents = pd.Extents({'batch': (1, 256), 'time': (1, 20, pd.bucket_sizes([8]))})
    with pytest.raises(pd.ShapeError, match='batch is 300; this class holds 1 to 256'):
        extents.bucket_of(batch=300, time=1)
    with pytest.raises(pd.ShapeError, match='time is 9; no bucket holds it, they are: 8'):
        extents.bucket_of(batch=1, time=9)
    with pytest.raises(pd.ArgumentError, match="there is no extent 'tme', time has no size"):
        extents.bucket_of(batch=1, tme=9)
    with pytest.raises(pd.ArgumentError, match='batch is 1.5, needed is an integer'):
        extents.bucket_of(batch=1.5, time=9)
    with pytest.raises(pd.ArgumentError, match='needed is \\(minimum, maximum\\)'):
        pd.Extents({'batch': 'many'})
    with pytest.raises(pd.ArgumentError, match='the buckets of batch are 8'):
        pd.Extents({'batch': (1, 2, 8)})
    with pytest.raises(pd.ArgumentError, match='there are no sizes'):
        pd.bucket_sizes([])
    with pytest.raises(ZeroDivisionError):
        pd.Extents({'n': pd.buckets_by(lambda size: size // 0)}).bucket_of(n=3)
    assert extents.bucket_of(batch=np.int32(3), time=True) == {'batch': 3, 'time': 8}
    assert extents.buckets('time') == [8]
    assert pd.Extents({'a': (1, 2), 'b': (3, 3)}).every_bucket() == [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]


def test_programs_give_what_a_program_of_one_size_gives():
    parameters = pd.Parameters(model(1, 1), seed=4)
    programs = pd.Programs({'batch': (1, 33), 'time': (1, 25)}, model, parameters)
    for batch, time in [(1, 1), (2, 7), (3, 8), (16, 9), (17, 16), (33, 25), (1, 1), (2, 7)]:
        x = floats(time, batch, 3, seed=batch)
        alone = pd.Program(model(batch, time), parameters)(x=x)['y']
        assert np.array_equal(programs.at(time=time, batch=batch)(x=x)['y'], alone)
    assert (len(programs), programs.made) == (6, 6)


def test_programs_keep_those_that_were_asked_for_last():
    programs = pd.Programs({'batch': None, 'time': pd.multiples_of(4)}, model, seed=3, keep_at_most=2)
    assert programs.parameters is None
    first = programs.at(batch=1, time=1)
    assert programs.at(batch=1, time=4) is first
    programs.at(batch=2, time=1)
    programs.at(batch=1, time=2)
    programs.at(batch=3, time=1)  # drops batch 2
    assert programs.at(batch=1, time=3) is first
    assert (len(programs), programs.made) == (2, 3)
    programs.at(batch=2, time=1)
    assert (len(programs), programs.made) == (2, 4)
    assert first(x=np.zeros((4, 1, 3), np.float32))['y'].shape == (4, 1, 2), 'whoever has a program may run it'
    with pytest.raises(pd.ArgumentError, match='gave NoneType for n=3, needed is a Graph'):
        pd.Programs({'n': None}, lambda n: None).at(n=3)


def test_programs_of_graph_text():
    text = pd.GraphText(
        'paoding graph 1\nextent rows = 1..9 multiples_of(4)\nx = input f32[rows,2]\n'
        'y = reshape(x) {shape=[rows*2]}\nfetch y\n'
    )
    programs = pd.Programs(text.extents, text.at)
    assert programs.at(rows=3)(x=floats(4, 2))['y'].shape == (8,)
    with pytest.raises(pd.ShapeError, match='rows is 10; this class holds 1 to 9'):
        text.at(rows=10)
    with pytest.raises(pd.ArgumentError, match='the text has extents, which need sizes: rows \\(1 to 9\\)'):
        pd.Graph.parse('paoding graph 1\nextent rows = 1..9\n')


def test_a_function_gives_at_every_size_what_a_program_of_that_size_gives():
    @pd.function(x=('f32', ['time', 'batch', 3]), seed=4)
    def run(x):
        states = pd.nn.LSTM('lstm', 3, 4)(x).outputs
        return {'y': pd.nn.Linear('out', 4, 2)(states), 'last': (states[-1],)}

    for batch, time in [(1, 1), (5, 3), (16, 9), (17, 31), (5, 3)]:
        x = floats(time, batch, 3, seed=batch)
        got = run(x)
        alone = pd.Program(model(batch, time), run.parameters)(x=x)['y']
        assert np.array_equal(got['y'], alone)
        assert got['last'][0].shape == (batch, 4)
    assert len(run.programs) == 4
    assert np.array_equal(run(x=x)['y'], run(x)['y'])


def test_a_function_pads_to_buckets_and_cuts_results():
    @pd.function(
        x=('f32', ['batch', 'time', 3]),
        ids=('i64', ['batch', 'time']),
        extents={'time': (1, 40, pd.multiples_of(8)), 'batch': (1, 9, pd.powers_of_two())},
        pad_with={'ids': 7},
    )
    def run(x, ids, time):
        return x * 2, ids.astype('f32').sum(axis=1), time, [x.sum(axis=1)]

    for batch, time in [(1, 1), (2, 8), (3, 9), (9, 40), (5, 39)]:
        x, ids = floats(batch, time, 3), np.ones((batch, time), np.int64)
        doubled, total, size, (sums,) = run(x, ids)
        assert np.array_equal(doubled, x * 2)
        assert total.tolist() == [time + 7.0 * (-time % 8)] * batch, 'of what is padded with 7'
        assert size.item() == time
        np.testing.assert_allclose(sums, x.sum(axis=1), rtol=1e-5, atol=1e-5)
    assert len(run.programs) == 5


def test_a_function_cuts_every_type_of_result():
    @pd.function(x=('f32', ['n', 2]), extents={'n': pd.multiples_of(4)})
    def run(x):
        return [x.astype(dtype) for dtype in ('f64', 'f16', 'bf16', 'i64', 'u8', 'bool')]

    x = np.array([[1, 2], [3, 0], [5, 6]], np.float32)
    for result in run(x):
        assert result.shape == (3, 2)
        wanted = x != 0 if result.dtype == pd.bool_ else x
        assert result.tolist() == wanted.tolist()


def test_a_function_does_not_guess_where_a_result_ends():
    @pd.function(x=('f32', ['n']), extents={'n': (1, 64, pd.multiples_of(8))})
    def halves(x):
        return x[::2]

    with pytest.raises(pd.ArgumentError, match='axis 0 of result 0 is 4 long where n is 8, and 8 where it is 16'):
        halves(floats(7))
    assert halves(floats(8)).shape == (4,)

    @pd.function(x=('f32', ['n']), extents={'n': (1, 64, pd.multiples_of(8))}, crop=False)
    def uncut(x):
        return x[::2]

    assert uncut(floats(7)).shape == (4,)


def test_a_function_trains_the_same_parameters_at_every_size():
    @pd.function(x=('f32', ['batch', 4]), y=('i64', ['batch']), seed=1)
    def step(x, y):
        loss = pd.cross_entropy(pd.nn.Linear('out', 4, 2)(x), y)
        pd.minimize(loss, pd.Sgd(0.5))
        return loss

    before = np.array(step.parameters['out/weight'] if 'out/weight' in step.parameters else 0)
    losses = []
    for i in range(60):
        x = floats(16 if i % 3 else 9, 4, seed=i)
        losses.append(step(x, (x.sum(axis=1) > 0).astype(np.int64)).item())
    assert losses[-1] < losses[0] / 2
    assert not np.array_equal(before, step.parameters[next(iter(step.parameters))])
    assert len(step.programs) == 2 or len(step.programs) == 3  # of the smallest, for the parameters


def test_a_function_names_inputs_and_extents_in_errors():
    @pd.function(a=('f32', ['n', 3]), b=('f32', ['n']), extents={'n': (2, 8)})
    def run(a, b):
        return a.sum(axis=1) + b

    with pytest.raises(pd.ShapeError, match="run: n is 4 in 'a' and 5 in 'b'"):
        run(floats(4, 3), floats(5))
    with pytest.raises(pd.ShapeError, match='n is 9; this class holds 2 to 8'):
        run(floats(9, 3), floats(9))
    with pytest.raises(pd.ShapeError, match="run: 'a' has the shape \\(4,\\), needed is \\(n, 3\\)"):
        run(floats(4), floats(4))
    with pytest.raises(pd.ShapeError, match=r"input 'a' is f32\[4,3\], not f32\[4,2\]"):
        run(floats(4, 2), floats(4))
    with pytest.raises(pd.ArgumentError, match="run: no value is given for 'b'"):
        run(floats(4, 3))
    with pytest.raises(pd.ArgumentError, match="run: there is no input 'c'"):
        run(floats(4, 3), floats(4), c=1)
    with pytest.raises(pd.ArgumentError, match="run: given twice is 'a'"):
        run(floats(4, 3), a=floats(4, 3), b=floats(4))
    with pytest.raises(pd.ArgumentError, match="no input has the extent 'm'"):
        pd.function(a=('f32', ['n']), extents={'m': (1, 2)})(lambda a: a)
    with pytest.raises(pd.ArgumentError, match="an input has the name of the extent 'n'"):
        pd.function(n=('f32', ['n']))(lambda n: n)
    assert run([[1, 2, 3], [4, 5, 6]], [1, 1]).tolist() == [7.0, 16.0]


def test_a_function_keeps_few_programs():
    @pd.function(x=('f32', ['n', 2]), keep_at_most=4)
    def run(x):
        return pd.tanh(x)

    sizes = np.random.default_rng(1).permutation(200) + 1
    for n in sizes:
        assert run(np.zeros((n, 2), np.float32)).shape == (n, 2)
    assert len(run.programs) == 4 and run.programs.made == 200
    gc.collect()
