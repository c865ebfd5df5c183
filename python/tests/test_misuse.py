# SPDX-License-Identifier: Apache-2.0
"""What is called wrongly is an exception that says what is needed. What once ended the process runs in one of its own."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import paoding as pd

PACKAGE = str(pathlib.Path(pd.__file__).parents[1])


def run_alone(code, **environment):
    """The output of a process, which ends well."""
    done = subprocess.run(
        [sys.executable, '-X', 'faulthandler', '-c', textwrap.dedent(code)],
        env={**os.environ, 'PYTHONPATH': PACKAGE, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, f'exit status {done.returncode}\n{done.stdout}\n{done.stderr}'
    return done.stdout


def adding():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, 2)
        graph.fetch('y', x + 1)
    return graph, x


def test_a_value_as_a_feed_is_named():
    graph, x = adding()
    program = pd.Program(graph)
    for take in (
        lambda: program(x=x),
        lambda: program.run({'x': x}),
        lambda: pd.Tensor(x),
        lambda: pd.save_safetensors('never', {'w': x}),
    ):
        with pytest.raises(TypeError, match='is a Value, which has elements only while a program runs'):
            take()
    with pytest.raises(TypeError, match='list is no array, nor a list of numbers'):
        program(x=[x, x])


@pytest.mark.parametrize('given', [graph := pd.Graph(), object(), 'text', {'a': 1}, pd.f32, lambda: 0, [object()], None, b'', 1j])
def test_what_is_no_array_is_refused_as_a_feed(given):
    program = pd.Program(adding()[0])
    with pytest.raises((TypeError, ValueError)):
        program(x=given)


def test_wrong_arguments_are_named():
    graph, x = adding()
    program = pd.Program(graph)
    loss = graph.parameter('w', pd.f32, ())
    calls = [
        (lambda: program.run({1: np.zeros(2, np.float32)}), 'the name of an input is 1, needed is a str'),
        (lambda: program.run([1]), 'run: feeds is of type list, needed is a dict'),
        (lambda: pd.Program(graph, {'w': 1}), 'parameters is of type dict, needed is Parameters'),
        (lambda: pd.save_model('never', {'y': graph}, 5), 'parameters is of type int, needed is Parameters or a dict'),
        (lambda: pd.save_model('never', {'y': graph}, {1: 1}), 'the name of a parameter is 1'),
        (lambda: pd.save_model('never', {'y': graph}, {}, files={'a': 'text'}), "the file 'a' is of type str, needed are bytes"),
        (lambda: pd.save_model('never', {'y': graph}, {}, files={1: b''}), 'the name of a file is 1'),
        (lambda: pd.save_safetensors('never', {1: np.zeros(2)}), 'the name of a tensor is 1'),
        (lambda: pd.restore(pd.Parameters(graph), {1: 1}), 'the name of a tensor is 1'),
        (lambda: pd.minimize(loss, pd.Sgd(0.1), groups=[5]), 'minimize: a group is 5, needed is a ParameterGroup'),
        (lambda: pd.scan(lambda c, e: (c, 'text'), x, length=2), 'str is no value'),
        (lambda: pd.Sgd('fast'), 'learning_rate: needed is a number'),
    ]
    for call, words in calls:
        with pytest.raises((TypeError, pd.ArgumentError), match=words):
            call()
    with pytest.raises((TypeError, pd.ArgumentError), match='2 is|is no value|needed'):
        pd.softmax(x, axis=object())
    assert not pathlib.Path('never').exists()


def test_names_that_are_no_text_are_refused():
    graph, x = adding()
    for call in (
        lambda: pd.ProfileRange('\udc80'),
        lambda: graph.scope('\udc80'),
        lambda: graph.input('\udc80', pd.f32, 2),
        lambda: pd.Program(graph).run({'\udc80': 1}),
        lambda: graph.input('z', '\udc80', 2),
        lambda: pd.call('add', x, x, **{'\udc80': 1}),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()


def test_an_argument_of_a_range_that_is_no_text_is_refused():
    run_alone("""
        import paoding as pd
        with pd.Profiler() as seen:
            for arguments in ({'a': '\\udc80'}, {'\\udc80': 1}):
                try:
                    with pd.ProfileRange('range', **arguments):
                        pass
                    raise AssertionError(arguments)
                except ValueError as error:
                    assert 'no Unicode text' in str(error), error
        assert 'range' in seen.report()
    """)


def test_a_program_may_lie_under_a_name_that_is_no_text(tmp_path):
    """Where an op is called is noted with every op."""
    path = os.fsencode(tmp_path) + b'/\xff.py'
    code = """
        import paoding as pd
        with pd.Graph() as graph:
            graph.fetch('y', pd.gather(graph.input('x', pd.f32, 2), graph.input('i', pd.i64, 1)))
        try:
            pd.Program(graph)(x=[1.0, 2.0], i=[7])
        except pd.ArgumentError as error:
            print(ascii(error.__notes__))
    """
    with open(path, 'w') as file:
        file.write(textwrap.dedent(code))
    run = [sys.executable, path]
    done = subprocess.run(run, env={**os.environ, 'PYTHONPATH': PACKAGE}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert 'gather is called at \\\\udcff.py:4' in done.stdout, done.stdout


def test_leaving_what_was_not_entered_is_an_error():
    run_alone("""
        import threading
        import paoding as pd
        for make in (pd.Profiler, pd.Graph):
            try:
                make().__exit__(None, None, None)
                raise AssertionError(make)
            except pd.ArgumentError as error:
                assert '__exit__ without __enter__' in str(error), error
        pd.ProfileRange('x').__exit__(None, None, None)
        graph = pd.Graph()
        graph.scope('s').__exit__(None, None, None)
        graph.on_cpu().__exit__(None, None, None)
        graph.random_purpose('p').__exit__(None, None, None)
    """)


def test_a_path_with_a_nul_is_refused(tmp_path):
    path = str(tmp_path / 'a\0.json')
    with pd.Profiler() as seen:
        pass
    for call in (
        lambda: seen.report(path=path),
        lambda: pd.save_safetensors(path, {'w': np.zeros(2, np.float32)}),
        lambda: pd.load_safetensors(path),
        lambda: pd.CheckpointFolder(path),
        lambda: pd.load_checkpoint(path),
        lambda: pd.Model.load(path),
        lambda: pd.save_model(path, {'y': adding()[0]}),
    ):
        with pytest.raises((TypeError, ValueError)):
            call()
    assert not list(tmp_path.iterdir())
    seen.report(path=tmp_path / 'b.json')
    assert (tmp_path / 'b.json').exists()


def test_a_graph_may_be_changed_while_another_thread_compiles_it():
    out = run_alone("""
        import threading
        import numpy as np
        import paoding as pd
        graph = pd.Graph()
        with graph:
            x = graph.input('x', pd.f32, 4)
            y = x
            for _ in range(3000):
                y = y + x
            graph.fetch('y', y)
        done = threading.Event()

        def change():
            value = x
            while not done.is_set() and len(graph) < 400_000:
                value = value + 1

        threads = [threading.Thread(target=change) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            program = pd.Program(graph, fetches=['y'])
            program = program.bind(graph)
            print(program(x=np.ones(4, np.float32))['y'].tolist())
        done.set()
        for thread in threads:
            thread.join()
    """)
    assert out == '[3001.0, 3001.0, 3001.0, 3001.0]\n' * 3


def test_parameters_are_those_that_a_graph_has_when_they_are_made():
    """What makes their values may change the graph, in another thread too."""
    run_alone("""
        import threading
        import numpy as np
        import paoding as pd
        graph, begun, grown = pd.Graph(), threading.Event(), threading.Event()

        def initial(shape, dtype, seed):
            begun.set()
            grown.wait()
            return np.ones(shape, np.float32)

        def grow():
            begun.wait()
            for i in range(5000):
                graph.parameter(f'v{i}', pd.f32, 2)
            grown.set()

        for i in range(50):
            graph.parameter(f'w{i}', pd.f32, 2, initial=initial)
        thread = threading.Thread(target=grow)
        thread.start()
        parameters = pd.Parameters(graph)
        thread.join()
        assert len(parameters) == 50
        assert all(value.tolist() == [1, 1] for _, value in parameters.items())
    """)


@pytest.mark.parametrize(
    'work',
    [
        'step(x=given)',
        'pd.Program(graph)',
        'pd.Parameters(graph)',
        'pd.scan(lambda c, e: (c + sum(range(2000)), None), graph.input(str(next(numbers)), pd.f32, ()), length=2)',
        'pd.Tensor(given)',
        'printing(x=given)',
    ],
)
def test_a_daemon_thread_may_be_running_when_the_process_ends(work):
    out = run_alone(f"""
        import itertools, threading, time
        import numpy as np
        import paoding as pd
        numbers = itertools.count()
        graph = pd.Graph()
        with graph:
            x = graph.input('x', pd.f32, (200, 200))
            graph.fetch('y', pd.scan(lambda c, _: (pd.tanh(c @ x), None), x, length=4)[0])
            graph.parameter('w', pd.f32, 5, initial=lambda shape, dtype, seed: np.arange(5, dtype=np.float32) * sum(range(2000)))
        parameters = pd.Parameters(graph)
        step = pd.Program(graph, parameters)
        with pd.Graph() as other:
            other.fetch('y', pd.print_value(other.input('x', pd.f32, (200, 200)), 'x'))
        printing = pd.Program(other, on_print=lambda *_: sum(range(2000)))
        given = np.zeros((200, 200), np.float32)
        begun = threading.Barrier(4)

        def work():
            begun.wait()
            for _ in range(10_000_000):
                try:
                    {work}
                except pd.Error:
                    pass

        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        begun.wait()
        time.sleep(0.05)
        print('over')
    """)
    assert out == 'over\n'


def test_the_package_is_imported_again_after_it_was_taken_out_of_sys_modules():
    out = run_alone("""
        import sys
        import paoding as pd
        first, value = pd, pd.zeros(3, graph=pd.Graph())
        for name in [name for name in sys.modules if name.split('.')[0] == 'paoding']:
            del sys.modules[name]
        import paoding as pd
        assert pd is not first and pd.Value is first.Value and isinstance(value, pd.Value)
        with pd.Graph() as graph:
            graph.fetch('y', graph.input('x', pd.f32, 2) * 2)
        print(pd.Program(graph)(x=[1.0, 2.0])['y'].tolist())
        try:
            pd.Program(graph)(x=[1.0])
        except pd.ShapeError:
            print('refused')
        del sys.modules['paoding._paoding']
        import paoding._paoding
        print(pd.Program(graph)(x=[1.0, 2.0])['y'].tolist())
    """)
    assert out == '[2.0, 4.0]\nrefused\n[2.0, 4.0]\n'


@pytest.mark.parametrize('is_first', [True, False])
def test_an_interpreter_within_a_process_is_refused(is_first):
    within = """
        try:
            import paoding
            raise AssertionError('imported')
        except ImportError as error:
            assert 'main interpreter' in str(error), error
    """
    out = run_alone(f"""
        import sys
        if {is_first}:
            import paoding
        import _xxsubinterpreters as interpreters
        within = interpreters.create(isolated=False) if sys.version_info < (3, 13) else interpreters.create('legacy')
        interpreters.run_string(within, f'import sys; sys.path[:] = {{sys.path!r}}')
        interpreters.run_string(within, {textwrap.dedent(within)!r})
        interpreters.destroy(within)
        import paoding
        print(paoding.Tensor([1.0]).tolist())
    """)
    assert out == '[1.0]\n'


def test_a_run_is_interrupted_and_the_process_lives():
    """Ctrl-C in what reads a feed."""

    class Interrupts:
        def __dlpack__(self, **_):
            signal.raise_signal(signal.SIGINT)
            return None

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            pd.Program(adding()[0])(x=Interrupts())
    finally:
        signal.signal(signal.SIGINT, before)
