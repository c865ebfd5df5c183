# SPDX-License-Identifier: Apache-2.0
"""pd.Streaming beside whole sequences, pd.find_nonfinite and pd.ProfiledSteps."""

import doctest
import re
import threading

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)


def test_the_examples_of_docstrings_are_true():
    for name in ('Streaming', 'find_nonfinite', 'ProfiledSteps'):
        for example in doctest.DocTestFinder(recurse=False).find(getattr(pd, name), name, globs={'pd': pd}):
            assert example.examples and doctest.DocTestRunner().run(example).failed == 0, name


def model(xs, lengths, states):
    made = pd.nn.LSTM('lstm', 3, 4)(xs, lengths=lengths, initial_h=[states[0]], initial_c=[states[1]])
    return [made.last_h[0], made.last_c[0]], {'states': made.outputs, 'logits': pd.nn.Linear('out', 4, 2)(made.outputs)}


def test_sequences_in_chunks_give_what_whole_ones_give():
    streaming = pd.Streaming(model, 3, input=('f32', 3), states=[('f32', 4), ('f32', (4,))], seed=2)
    whole = {0: RNG.standard_normal((9, 3)).astype(np.float32), 1: RNG.standard_normal((6, 3)).astype(np.float32)}
    with pd.Graph() as graph:
        graph.fetch('y', pd.nn.Linear('out', 4, 2)(pd.nn.LSTM('lstm', 3, 4)(graph.input('x', 'f32', (9, 1, 3))).outputs))
    other = pd.Parameters(graph)
    other.update({name: streaming.parameters[name] for name in other})
    program = pd.Program(graph, other)

    assert [streaming.join(), streaming.join()] == [0, 1]
    made = {0: [], 1: []}
    for chunk in ({0: 2, 1: 3}, {0: 4}, {1: 3, 0: 1}, {0: 2}):
        taken = {s: whole[s][sum(map(len, made[s])) :][:count] for s, count in chunk.items()}
        for s, outputs in streaming.run(taken).items():
            made[s].append(outputs['logits'])
            assert outputs['states'].shape == (chunk[s], 4)
    for s, steps in whole.items():
        padded = np.zeros((9, 1, 3), np.float32)
        padded[: len(steps), 0] = steps
        np.testing.assert_allclose(np.concatenate(made[s]), program(x=padded)['y'].numpy()[: len(steps), 0], rtol=1e-4, atol=1e-6)

    streaming.leave(0)
    assert (streaming.join(), streaming.sequences) == (0, 2)  # its states are 0 again
    first = streaming.run({0: whole[0][:1]})[0]['logits']
    np.testing.assert_allclose(first, made[0][0][:1], rtol=1e-5)
    assert streaming.run({}) == {}


def test_streaming_says_what_it_needs():
    streaming = pd.Streaming(model, 1, input=('f32', 3), states=[('f32', 4), ('f32', 4)])
    with pytest.raises(pd.ArgumentError, match='there is no sequence 0'):
        streaming.run({0: np.ones((2, 3))})
    streaming.join()
    with pytest.raises(pd.ArgumentError, match='1 sequences are there, as many as there may be'):
        streaming.join()
    with pytest.raises(pd.ShapeError, match='xs has shape'):
        streaming.run({0: np.ones((2, 5))})
    with pytest.raises(pd.ArgumentError, match='there is no sequence 4'):
        streaming.run({4: np.ones((2, 3))})
    with pytest.raises(pd.ArgumentError, match="a state is 'f32', needed is"):
        pd.Streaming(model, 1, input=('f32', 3), states='f32')
    with pytest.raises(pd.ArgumentError, match='needed are states and outputs'):
        pd.Streaming(lambda xs, lengths, states: xs, 1, input=('f32', 3), states=[]).prepare(1)
    with pytest.raises(ZeroDivisionError):
        pd.Streaming(lambda xs, lengths, states: 1 / 0, 1, input=('f32', 3), states=[]).prepare(1)


def test_a_skipped_update_is_followed_back_to_the_value_that_began_it():
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (4, 3))
        with graph.scope('encoder'):
            hidden = pd.nn.Linear('in', 3, 3)(pd.dropout(x, 0.1))
            ratio = pd.log(hidden - hidden - 1.0)
        loss = (pd.tanh(ratio) * 0 + hidden).mean()
        pd.minimize(loss, pd.Sgd(0.1), skip_nonfinite=True, name='mine')
    program = pd.Program(graph, pd.Parameters(graph))
    program(x=np.ones((4, 3)))
    assert program.parameters['mine/skipped'].item() == 1
    found = pd.find_nonfinite(program, {'x': np.ones((4, 3))}, rewind_random=1)
    assert 'skipped' in found.followed
    named = found.unfused or found.first
    assert (named.name, named.scope) == ('log', 'encoder')
    assert named.kind == 'step' and named.type == (pd.f32, (4, 3)) and named.reads[0].nans == 0
    assert 'log' in str(found) and 'encoder' in str(found)
    fed = pd.find_nonfinite(program, {'x': np.full((4, 3), np.nan)})
    assert (fed.first.kind, fed.first.name, fed.first.nans) == ('input', 'x', 12)
    with pytest.raises(pd.ArgumentError, match="the graph has no input 'z'"):
        pd.find_nonfinite(program, {'z': 1})


def test_some_steps_of_a_loop_are_recorded():
    with pd.Graph() as graph:
        graph.fetch('y', pd.tanh(graph.input('x', 'f32', (64, 64))))
    program = pd.Program(graph)
    seen = pd.ProfiledSteps(5, 8)
    for step in range(20):
        seen.before(step)
        assert seen.is_begun == (step >= 5)
        program(x=np.ones((64, 64), np.float32))
    seen.before(20)
    report = seen.report()
    row = next(line for line in report.splitlines() if '::tanh' in line)
    assert re.search(r'\b3\b', row), report
    none = pd.ProfiledSteps(5, 6)
    assert list(none.over('abc')) == ['a', 'b', 'c']
    with pytest.raises(pd.ArgumentError, match='none of the steps has begun'):
        none.report()


def test_threads_run_programs_of_one_store():
    with pd.Graph() as graph:
        graph.fetch('y', pd.nn.Linear('l', 4, 2)(graph.input('x', 'f32', (3, 4))))
    parameters = pd.Parameters(graph, seed=1)
    programs = [pd.Program(graph, parameters) for _ in range(4)]
    x = RNG.standard_normal((4, 3, 4)).astype(np.float32)
    wanted = x @ parameters['l/weight'].numpy() + parameters['l/bias'].numpy()
    wrong = []

    def work(i):
        for _ in range(200):
            if not np.allclose(programs[i](x=x[i])['y'], wanted[i], atol=1e-5):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert not wrong
