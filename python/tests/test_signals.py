# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals are called while a long run goes on, and an exception of one ends it."""

import signal
import threading
import time

import numpy as np
import pytest

import paoding as pd

X = np.random.default_rng(0).standard_normal((200, 200)).astype(np.float32)


def long_program(length, parameters=None):
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', X.shape)
        last, _ = pd.scan(lambda c, e: (pd.sin(c @ x), None), x, length=length)  # many kernels; of tanh it were one
        graph.fetch('y', last)
        count = graph.parameter('count', 'i64', ())
        graph.assign(count, count + 1)
    return pd.Program(graph, pd.Parameters(graph))


@pytest.fixture(scope='module')
def program():
    """One whose run takes a second or more."""
    length = 500
    while True:
        made = long_program(length)
        began = time.perf_counter()
        made(x=X)
        took = time.perf_counter() - began
        if took > 1:
            return made
        length = int(length * max(2, 1.5 / took))


class Handler:
    def __init__(self, number, function):
        self.number, self.function = number, function

    def __enter__(self):
        self.before = signal.signal(self.number, self.function)

    def __exit__(self, *exception):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(self.number, self.before)


def test_an_alarm_is_heard_in_time_and_the_run_goes_on(program):
    quiet = np.asarray(program(x=X)['y'])
    heard, before = [], program.parameters['count'].item()
    with Handler(signal.SIGALRM, lambda *_: heard.append(time.perf_counter())):
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
        began = time.perf_counter()
        result = program(x=X)['y']
        ended = time.perf_counter()
    assert len(heard) >= 3 and heard[0] - began < 0.1 + 0.5 * (ended - began)
    np.testing.assert_array_equal(result, quiet)
    assert program.parameters['count'].item() == before + 1


def test_an_exception_of_a_handler_ends_the_run(program):
    class TooLate(Exception):
        pass

    def stop(*_):
        raise TooLate

    before = program.parameters['count'].item()
    with Handler(signal.SIGALRM, stop):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        began = time.perf_counter()
        with pytest.raises(TooLate):
            program(x=X)
        took = time.perf_counter() - began
    assert took < 0.9 and program.parameters['count'].item() == before
    program(x=X)
    assert program.parameters['count'].item() == before + 1


def test_a_handler_may_run_programs(program):
    small = long_program(2)
    wanted, made = np.asarray(small(x=X)['y']), []
    with Handler(signal.SIGALRM, lambda *_: made.append(np.asarray(small(x=X)['y']))):
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        program(x=X)
    np.testing.assert_array_equal(made[0], wanted)


def test_a_run_in_another_thread_leaves_signals_to_the_main_one(program):
    heard = []
    with Handler(signal.SIGALRM, lambda *_: heard.append(threading.current_thread())):
        thread = threading.Thread(target=lambda: program(x=X))
        thread.start()
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        thread.join()
    assert heard == [threading.main_thread()]
