# SPDX-License-Identifier: Apache-2.0
"""Graphs, programs and parameters, held against NumPy."""

import ctypes
import gc
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import paoding as pd


def run_one(build, **feeds):
    """What `build` makes of inputs that are fed these arrays."""
    with pd.Graph() as graph:
        inputs = {name: graph.input(name, pd.Tensor(array).dtype, array.shape) for name, array in feeds.items()}
        graph.fetch('result', build(**inputs))
    return np.asarray(pd.Program(graph).run(feeds)['result'])


def floats(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    'function',
    [
        lambda a, b: a + b,
        lambda a, b: a - b * 2,
        lambda a, b: 1 / (a * a + 1) + b,
        lambda a, b: 2.5 - a,
        lambda a, b: -abs(a) // 0.3,
        lambda a, b: a % 0.7,
        lambda a, b: (a * a) ** 1.5 + a**2,
        lambda a, b: a @ b.T,
        lambda a, b: a.T @ b,
        lambda a, b: (a < b) & ~(a == b) | (a >= 1),
        lambda a, b: a[1] + b[-1],
        lambda a, b: a[1:, ::-1] * b[:-1, ::1],
        lambda a, b: a[..., None, 2] + b[0, None, ::2],
        lambda a, b: a[3:1:-1],
        lambda a, b: a[2:2],
        lambda a, b: a.sum(axis=0) + b.mean(axis=(0,)),
        lambda a, b: a.max(axis=-1, keepdims=True) - b.min(),
        lambda a, b: a.reshape(2, -1) + b.reshape((2, 10)),
        lambda a, b: a.transpose(1, 0) + b.transpose(),
        lambda a, b: a + np.arange(5, dtype=np.float32),
        lambda a, b: np.ones((4, 1), np.float32) * b,
    ],
)
def test_an_expression_means_what_numpy_makes_of_it(function):
    a, b = floats(4, 5), floats(4, 5, seed=1)
    wanted = function(a, b)
    got = run_one(function, a=a, b=b)
    assert got.shape == wanted.shape
    np.testing.assert_allclose(got, wanted, rtol=2e-5, atol=2e-6)


def test_functions_have_numpys_names():
    a, b = floats(3, 4), floats(3, 4, seed=1)
    for name, arguments in [
        ('add', (a, b)),
        ('subtract', (a, b)),
        ('multiply', (a, b)),
        ('divide', (a, b)),
        ('exp', (a,)),
        ('tanh', (a,)),
        ('maximum', (a, b)),
        ('absolute', (a,)),
        ('negative', (a,)),
        ('sign', (a,)),
    ]:
        got = run_one(lambda **inputs: getattr(pd, name)(*inputs.values()), **dict(zip('ab', arguments)))
        np.testing.assert_allclose(got, getattr(np, name)(*arguments), rtol=1e-5, atol=1e-6)
    got = run_one(lambda a, b: pd.concatenate([a, b], axis=1), a=a, b=b)
    np.testing.assert_array_equal(got, np.concatenate([a, b], axis=1))
    got = run_one(lambda a, b: pd.where(a < b, a, 7.0), a=a, b=b)
    np.testing.assert_array_equal(got, np.where(a < b, a, np.float32(7)))
    got = run_one(lambda a, b: pd.where(a < b, 1.5, 7), a=a, b=b)
    np.testing.assert_array_equal(got, np.where(a < b, np.float32(1.5), np.float32(7)))
    np.testing.assert_array_equal(run_one(lambda a: pd.clip(a, -0.5, 0.5), a=a), np.clip(a, -0.5, 0.5))
    np.testing.assert_array_equal(run_one(lambda a: pd.expand_dims(a, 1), a=a), np.expand_dims(a, 1))
    np.testing.assert_array_equal(run_one(lambda a: pd.swapaxes(a, 0, 1), a=a), np.swapaxes(a, 0, 1))


def test_an_integer_beyond_what_a_double_holds_is_kept():
    a = np.array([2**60 + 1], np.int64)
    assert run_one(lambda a: a + (2**61 + 1), a=a)[0] == 2**60 + 2**61 + 2


def training_program():
    with pd.Graph() as graph:
        x, y = graph.input('x', 'f32', (8, 5)), graph.input('y', pd.i64, 8)
        with graph.scope('model'):
            loss = pd.cross_entropy(pd.nn.Linear('out', 5, 3)(x), y)
        pd.minimize(loss, pd.Adam(learning_rate=0.05))
        graph.fetch('loss', loss)
    parameters = pd.Parameters(graph, seed=7)
    return graph, parameters, pd.Program(graph, parameters)


def test_training_lowers_the_loss():
    _, parameters, program = training_program()
    x, y = floats(8, 5), np.arange(8) % 3
    losses = [float(program(x=x, y=y)['loss']) for _ in range(200)]
    assert losses[-1] < 0.5 * losses[0]
    assert 'out/weight' in parameters and parameters['out/weight'].shape == (5, 3)
    assert parameters['optimizer/step'].item() == 200


def test_a_learning_rate_may_be_a_function_of_the_step():
    with pd.Graph() as graph:
        w = graph.parameter('w', pd.f32, ())
        pd.minimize(w, pd.Sgd(learning_rate=lambda step: 0.5 / (step + 1)))
    parameters = pd.Parameters(graph)
    program = pd.Program(graph, parameters)
    for _ in range(3):
        program()
    assert parameters['w'].item() == pytest.approx(-(0.5 + 0.25 + 0.5 / 3))


def test_parameters_begin_as_they_are_told():
    with pd.Graph() as graph:
        graph.parameter('array', pd.f32, (2, 2), initial=np.eye(2, dtype=np.float32))
        graph.parameter('function', pd.f64, 3, initial=lambda shape, dtype, seed: np.arange(3.0))
        graph.parameter('initializer', pd.f32, 1000, initial=pd.nn.uniform(2, 3))
        graph.parameter('zero', pd.bf16, 2)
    parameters = pd.Parameters(graph, seed=1)
    np.testing.assert_array_equal(parameters['array'], np.eye(2))
    np.testing.assert_array_equal(parameters['function'], [0, 1, 2])
    values = np.asarray(parameters['initializer'])
    assert values.min() >= 2 and values.max() < 3
    assert parameters['zero'].tolist() == [0, 0]
    parameters['zero'] = [1.5, 2]
    assert parameters['zero'].tolist() == [1.5, 2]
    assert dict(parameters.items()).keys() == set(parameters)


def test_gradients_are_those_of_finite_differences():
    def value(x):
        return (pd.tanh(x) * x[::-1]).sum()

    x = np.random.default_rng(0).standard_normal(6)

    def both(x):
        return pd.stack([pd.gradients(value(x), x), pd.zeros(6, pd.f64) + value(x)])

    gradient = run_one(both, x=x)[0]
    for i in range(6):
        step = np.zeros(6)
        step[i] = 1e-6
        slope = (run_one(both, x=x + step)[1][0] - run_one(both, x=x - step)[1][0]) / 2e-6
        assert gradient[i] == pytest.approx(slope, rel=1e-6)


def test_a_text_is_a_graph_and_back():
    with pd.Graph() as graph:
        graph.fetch('y', pd.exp(graph.input('x', pd.f32, 3)))
    text = str(graph)
    assert 'exp(' in text and str(pd.Graph.parse(text)) == text
    np.testing.assert_allclose(pd.Program(pd.Graph.parse(text))(x=np.zeros(3, np.float32))['y'], np.ones(3))


def test_a_strict_program_refuses_strides_and_results_share_their_memory():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (2, 3))
        graph.fetch('y', x * 2)
    program = pd.Program(graph, strict=True)
    with pytest.raises(pd.ArgumentError, match="input 'x': its elements do not lie densely"):
        program(x=floats(3, 2).T)
    result = program(x=floats(2, 3))['y']
    view = result.numpy()
    view[:] = 5
    assert result.tolist() == [[5] * 3] * 2
    assert memoryview(result).shape == (2, 3) and memoryview(result).format == 'f'
    del result
    assert view.sum() == 30  # it keeps what it is a view of
    assert np.from_dlpack(program(x=floats(2, 3))['y']).shape == (2, 3)


def test_feeds_are_checked_before_anything_runs():
    graph, parameters, program = training_program()
    x, y = floats(8, 5), np.zeros(8, np.int64)
    with pytest.raises(pd.DtypeError, match=r"input 'x' is f32\[8,5\], not f64.*\nhint: array.astype\('float32'\)"):
        pd.Program(graph, parameters, strict=True)(x=x.astype(np.float64), y=y)
    with pytest.raises(pd.ShapeError, match=r"input 'y' is i64\[8\], not i64\[9\]"):
        program(x=x, y=np.zeros(9, np.int64))
    with pytest.raises(pd.ArgumentError, match="no value is given for 'y'"):
        program(x=x)
    with pytest.raises(pd.ArgumentError, match='z'):
        program(x=x, y=y, z=y)
    with pytest.raises(pd.DtypeError, match='of no dtype'):
        program(x=x.astype(np.complex64), y=y)
    assert parameters['optimizer/step'].item() == 0
    program(x=x, y=y)
    program.run({'x': x}, keep=True)
    assert parameters['optimizer/step'].item() == 2


class Exported:
    """Of DLPack, made by hand: i64 [2] at `address`, of a device by its kind."""

    class Managed(ctypes.Structure):
        _fields_ = [
            ('data', ctypes.c_void_p),
            ('device', ctypes.c_int32 * 2),
            ('rank', ctypes.c_int32),
            ('dtype', ctypes.c_uint8 * 4),  # code, bits, lanes
            ('shape', ctypes.POINTER(ctypes.c_int64)),
            ('strides', ctypes.c_void_p),
            ('offset', ctypes.c_uint64),
            ('context', ctypes.c_void_p),
            ('deleter', ctypes.c_void_p),
        ]

    def __init__(self, address, kind):
        self.kind = kind
        self.shape = (ctypes.c_int64 * 1)(2)
        self.managed = self.Managed(
            address, (ctypes.c_int32 * 2)(kind, 0), 1, (ctypes.c_uint8 * 4)(0, 64, 1, 0), self.shape
        )
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        self.capsule = make(ctypes.addressof(self.managed), b'dltensor', None)

    def __dlpack__(self, **_):
        return self.capsule

    def __dlpack_device__(self):
        return self.kind, 0


def test_memory_that_cannot_be_read_is_refused():
    memory = (ctypes.c_int64 * 2)(3, 4)
    host, gpu = 1, 2
    assert pd.Tensor(Exported(ctypes.addressof(memory), host)).tolist() == [3, 4]
    with pytest.raises(pd.ArgumentError, match="not in the host's memory"):
        pd.Tensor(Exported(ctypes.addressof(memory), gpu))
    with pytest.raises(pd.ArgumentError, match='its memory was freed'):
        pd.Tensor(Exported(None, host))
    released = memoryview(bytearray(8))
    released.release()
    with pytest.raises((pd.DtypeError, ValueError)):
        pd.Tensor(released)


def test_what_should_be_integers_and_is_not_is_named():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (1, 4, 8, 8))
        with pytest.raises(pd.ArgumentError, match="the shape is 'all', needed is an integer of 64 bits or a list"):
            graph.input('y', pd.f32, 'all')
        with pytest.raises(pd.ArgumentError, match='the shape is 18446744073709551616'):
            x.reshape(1 << 64)
        with pytest.raises(pd.ArgumentError, match=r'axes is \(0, 1.5, 2, 3\)'):
            x.transpose(0, 1.5, 2, 3)
        with pytest.raises(pd.ArgumentError, match="padding is 'same'"):
            pd.nn.Conv2d('conv', 4, 8, 3, padding='same')
        with pytest.raises(pd.ArgumentError, match='stride is 2.5'):
            pd.nn.Conv2d('conv', 4, 8, 3, stride=2.5)
        with pytest.raises(pd.ArgumentError, match="axis is 'last'"):
            pd.layer_norm(x, axis='last')
        with pytest.raises(pd.ArgumentError, match="conv2d 'conv': groups = 0, needs to be at least 1"):
            pd.nn.Conv2d('conv', 4, 8, 3, groups=0)


def test_programs_and_stores_that_do_not_belong_together_are_refused():
    graph, parameters, _ = training_program()
    with pd.Graph() as other:
        other.fetch('y', other.parameter('mine', pd.f32, 3) * 2)
    with pytest.raises(pd.ArgumentError, match='mine'):
        pd.Program(other, parameters)
    with pytest.raises(pd.ArgumentError):
        pd.Program(other)
    with pytest.raises(pd.ArgumentError, match='no device'):
        pd.Parameters(graph, device='tpu')
    with pytest.raises(pd.Error):
        pd.Program(graph, parameters, fetches=['nothing'])
    with pytest.raises(pd.DtypeError, match="'f33' is no dtype"):
        other.input('x', 'f33', 3)
    with pytest.raises(pd.ShapeError):
        other.input('x', pd.f32, -1)
    with pytest.raises(pd.ArgumentError, match='nothing'):
        parameters['nothing']
    with pytest.raises(pd.ShapeError, match=r"parameter 'out/bias' is f32\[3\]"):
        parameters['out/bias'] = np.zeros(4, np.float32)
    with pytest.raises(pd.Error):
        graph.find('x') + other.find('mine')  # of two graphs
    with pytest.raises(pd.FileError, match='graph text>:2:5'):
        pd.Graph.parse('paoding graph 1\ny = nothing(x)\n')


def test_bf16_comes_and_goes():
    with pd.Graph() as graph:
        x = graph.input('x', pd.bf16, 3)
        graph.fetch('y', x + x)
    result = pd.Program(graph)(x=[1.0, 2.5, 3.0])['y']
    assert result.dtype == pd.bf16 and result.tolist() == [2, 5, 6]
    with pytest.raises(pd.DtypeError, match='no bf16'):
        result.numpy()
    np.testing.assert_array_equal(result.astype('f32').numpy(), np.float32([2, 5, 6]))


def test_errors_say_what_where_and_on_which_line():
    with pd.Graph() as graph, graph.scope('decoder'):
        x = graph.input('x', pd.f32, (2, 3))
        with pytest.raises(pd.ShapeError, match=r'matmul: .*\(in decoder\)') as caught:
            x @ x
        assert isinstance(caught.value, ValueError) and caught.value.kind == 'shape'
        indices = graph.input('i', pd.i64, 1)
        graph.fetch('y', pd.gather(x, indices))  # the line that is looked for
    program = pd.Program(graph)
    with pytest.raises(pd.ArgumentError, match=r'gather: .*7') as caught:
        program(x=floats(2, 3), i=np.array([7]))
    line = next(n for n, text in enumerate(open(__file__), 1) if 'pd.gather(x, indices))  # the line' in text)
    assert f'gather is called at test_program.py:{line}' in ''.join(caught.value.__notes__)
    assert program(x=floats(2, 3), i=np.array([1]))['y'].shape == (1, 3)


def test_ops_without_inputs_need_a_graph():
    with pytest.raises(pd.ArgumentError, match='zeros: .*\nhint: call it within `with graph:`'):
        pd.zeros(3)
    graph = pd.Graph()
    assert pd.zeros(3, graph=graph).graph is not None
    with pytest.raises(TypeError):
        bool(pd.zeros(3, graph=graph))
    with pytest.raises(pd.ArgumentError, match='softmax'):
        pd.softmax(pd.zeros(3, graph=graph), axis='last')
    with pytest.raises(pd.ArgumentError, match="no attribute 'axle'"):
        pd.call('softmax', pd.zeros(3, graph=graph), axle=1)
    with pytest.raises(IndexError):
        pd.zeros((2, 2), graph=graph)[2]


def test_print_hands_values_over():
    seen = []
    with pd.Graph() as graph:
        graph.fetch('y', pd.print_value(graph.input('x', pd.f32, 2), 'x is') * 2)
    program = pd.Program(graph, on_print=lambda message, value, scope, instance: seen.append((message, value.tolist())))
    program(x=[1.0, 2.0])
    assert seen == [('x is', [1.0, 2.0])]

    def listener(*_):
        raise KeyError('from the listener')

    with pytest.raises(KeyError, match='from the listener'):
        pd.Program(graph, on_print=listener)(x=[1.0, 2.0])


def test_a_tensor_is_an_array():
    tensor = pd.Tensor([[1, 2], [3, 4]], 'i32')
    assert tensor.dtype == pd.i32 and tensor.shape == (2, 2) and tensor.ndim == 2 and tensor.size == 4
    assert tensor.nbytes == 16 and len(tensor) == 2 and tensor.tolist() == [[1, 2], [3, 4]]
    assert 'i32[2,2]' in repr(tensor)
    assert pd.Tensor(np.float64(2.5)).item() == 2.5 and pd.Tensor(True).item() is True
    assert float(pd.Tensor(3)) == 3.0 and int(pd.Tensor([7])) == 7
    with pytest.raises(pd.ShapeError):
        tensor.item()
    array = np.arange(4.0)
    shared = pd.Tensor(array)
    array[0] = 9
    assert shared.tolist()[0] == 9  # the same memory
    text = b'abc'
    pd.Tensor(text).numpy()[0] = 0  # memory of its own: nobody may write to that of bytes
    assert text == b'abc'


def test_many_programs_are_made_and_dropped():
    x = np.zeros((1,), np.float32)

    def make():
        with pd.Graph() as graph:
            value = graph.input('x', pd.f32, 1)
            graph.fetch('y', pd.scan(lambda c, _: (c + 1, None), value, length=2)[0])
        program = pd.Program(graph)
        program(x=x)
        return graph

    for _ in range(200):
        make()
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    references = sys.getrefcount(x)
    for _ in range(10_000):
        make()
    gc.collect()
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20_000  # KiB
    assert sys.getrefcount(x) == references


def test_a_graph_goes_when_nobody_holds_anything_of_it():
    array = floats(4)
    with pd.Graph() as graph:
        value = graph.input('x', pd.f32, 4) * 2
    graph = None
    assert value.shape == (4,)  # a value keeps its graph
    assert value.graph.inputs == ['x']
    references = sys.getrefcount(array)
    tensor = pd.Tensor(array)
    assert sys.getrefcount(array) > references
    del tensor
    assert sys.getrefcount(array) == references


def endless_program():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, ())
        graph.fetch('y', pd.while_loop(lambda v: v >= 0, lambda v: v + 0, x))
    return pd.Program(graph)


def test_the_gil_is_free_while_a_program_runs():
    program = endless_program()
    counted = []

    def count():
        until = time.monotonic() + 0.2
        while time.monotonic() < until:
            counted.append(1)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    thread = threading.Thread(target=count)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs have none
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            program(x=0.0)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(counted) > 1000


def test_a_handler_that_returns_lets_the_run_go_on():
    with pd.Graph() as graph:
        n = graph.input('n', pd.f32, ())
        graph.fetch('y', pd.while_loop(lambda v: v < 300000, lambda v: v + 1, n))
    program = pd.Program(graph)
    heard = []
    before = signal.signal(signal.SIGINT, lambda *_: heard.append(1))
    try:
        timer = threading.Timer(0.02, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT))
        timer.start()
        assert program(n=0.0)['y'].item() == 300000
        timer.join()
        time.sleep(0.01)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [1]


def test_threads_run_programs_of_their_own_and_one_program_is_one_threads():
    _, parameters, program = training_program()
    results, refused = [], []
    x, y = floats(8, 5), np.zeros(8, np.int64)

    def work():
        with pd.Graph() as graph:
            v = graph.input('v', pd.f32, (64, 64))
            graph.fetch('y', pd.scan(lambda c, _: (pd.tanh(c @ c), None), v, length=20)[0].sum())
        mine = pd.Program(graph)
        fed = floats(64, 64, seed=3)
        results.append({mine(v=fed)['y'].item() for _ in range(30)})
        for _ in range(30):
            try:
                program(x=x, y=y)
            except pd.ArgumentError as error:
                refused.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 4 and len(set.union(*results)) == 1
    assert all('is under way' in text for text in refused)
    assert parameters['optimizer/step'].item() + len(refused) == 120


def test_it_is_imported_quickly():
    """By the processor's time, as tests may share the machine."""
    code = 'import time; t = time.process_time(); import paoding; print(time.process_time() - t)'
    times = [
        float(
            subprocess.run(
                [sys.executable, '-c', code],
                env={**os.environ, 'PYTHONPATH': str(pathlib.Path(pd.__file__).parents[1])},
                capture_output=True,
                check=True,
            ).stdout
        )
        for _ in range(7)
    ]
    assert min(times) < 0.15


def test_kernels_may_be_timed_on_the_device():
    """On a GPU it times convolutions; what is computed is the same."""
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, (2, 3, 6, 6))
        graph.fetch('y', pd.conv2d(x, graph.parameter('w', pd.f32, (4, 3, 3, 3), pd.nn.uniform(-1, 1))))
    parameters = pd.Parameters(graph, seed=3)
    fed = {'x': np.linspace(-1, 1, 216, dtype=np.float32).reshape(2, 3, 6, 6)}
    plain, tuned = (pd.Program(graph, parameters, tune=tune).run(fed)['y'].numpy() for tune in (False, True))
    np.testing.assert_array_equal(plain, tuned)


def run_on_the_pretended_gpu(code):
    folder = pathlib.Path(pd.__file__).parents[2] / 'pretend_gpu'
    if not (folder / 'libcuda.so.1').exists():
        pytest.skip(f'{folder} is not built')
    package = str(pathlib.Path(pd.__file__).parents[1])
    environment = {**os.environ, 'PYTHONPATH': package, 'PAODING_CUDA_PATH': str(folder)}
    done = subprocess.run([sys.executable, '-c', code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_program_for_a_gpu_trains_as_that_for_the_cpu():
    """On the GPU that is not there (tests/gpu/pretend_gpu)."""
    code = """
import numpy as np, paoding as pd
with pd.Graph() as graph:
    x, y = graph.input('x', pd.f32, (8, 5)), graph.input('y', pd.i64, 8)
    loss = pd.cross_entropy(pd.nn.Linear('out', 5, 3)(x), y)
    pd.minimize(loss, pd.Adam(0.05))
    graph.fetch('loss', loss)
fed = {'x': np.linspace(-1, 1, 40, dtype=np.float32).reshape(8, 5), 'y': np.arange(8) % 3}
losses = []
for device in ('cpu', 'cuda'):
    parameters = pd.Parameters(graph, device=device, seed=7)
    assert parameters.device == {'cpu': 'cpu', 'cuda': 'cuda:0'}[device]
    step = pd.Program(graph, parameters)
    losses.append([step.run(fed)['loss'].item() for _ in range(10)])
np.testing.assert_allclose(*losses, rtol=1e-5)
assert losses[0][-1] < losses[0][0]
"""
    run_on_the_pretended_gpu(code)


def test_a_graph_on_addresses_tells_of_positions_that_are_outside():
    """On the GPU that is not there, whose memory is NumPy's, and which runs work when somebody waits for it."""
    code = """
import ctypes, os, numpy as np, paoding as pd
from paoding import _paoding
def memory(count, dtype):
    size = count * np.dtype(dtype).itemsize
    room = np.empty(size + 256, np.uint8)
    first = -room.ctypes.data % 256
    return room[first : first + size].view(dtype)
with pd.Graph() as graph, graph.scope('table'):
    graph.fetch('y', pd.gather(graph.input('x', pd.f32, 4), graph.input('i', pd.i64, 2), axis=0))
try:
    _paoding.PlacedGraph(graph, 'cuda')
    assert False, 'it is refused'
except pd.UnsupportedError as error:
    assert 'table' in str(error)
placed = _paoding.PlacedGraph(graph, 'cuda', reports_faults=True, uses_graph=True)
first, size = placed.fault_words
assert size == 16 and first + size <= placed.workspace_bytes
x, i, y, room = memory(4, np.float32), memory(2, np.int64), memory(2, np.float32), memory(placed.workspace_bytes, np.uint8)
x[:] = 1, 2, 3, 4
driver = ctypes.CDLL(os.environ['PAODING_CUDA_PATH'] + '/libcuda.so.1')
def run(*positions):
    i[:] = positions
    placed.run([x.ctypes.data, i.ctypes.data], [y.ctypes.data], room.ctypes.data)
    assert driver.cuStreamSynchronize(None) == 0
    placed.check(room.ctypes.data + first)
    return y.tolist()
for _ in range(3):
    assert run(3, 0) == [4, 1]
    try:
        run(3, 4)
        assert False, 'a position is outside'
    except pd.ArgumentError as error:
        assert 'gather' in str(error) and 'table' in str(error) and '4' in str(error), error
"""
    run_on_the_pretended_gpu(code)
