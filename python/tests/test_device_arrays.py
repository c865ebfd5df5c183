# SPDX-License-Identifier: Apache-2.0
"""Feeds that are on a GPU and results that stay there: PyTorch's, JAX's and CuPy's where they are, else, on the GPU that
is not there (tests/gpu/pretend_gpu), arrays that speak DLPack and nothing else."""

import gc
import importlib
import os
import sys
import threading

import numpy as np
import pytest
from dlpack_arrays import Array, Kind, read
from pretended_gpu import IS_PRETENDED, is_there, run_there

import paoding as pd

if not is_there():

    def test_all_of_it_on_the_pretended_gpu():
        run_there(__file__)


class Own:
    """What stands for a library on the pretended GPU."""

    @staticmethod
    def of(array):
        return Array(np.ascontiguousarray(array))

    read = staticmethod(read)


class Torch:
    def __init__(self):
        self.torch = importlib.import_module('torch')
        if not self.torch.cuda.is_available():
            pytest.skip('not run: PyTorch sees no GPU')

    def of(self, array):
        return self.torch.from_numpy(np.array(array)).cuda()

    def read(self, exported):
        return self.torch.from_dlpack(exported).cpu().numpy()


class Jax:
    def __init__(self):
        os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
        self.jax = importlib.import_module('jax')
        if self.jax.default_backend() != 'gpu':
            pytest.skip('not run: JAX sees no GPU')

    def of(self, array):
        return self.jax.device_put(np.array(array))

    def read(self, exported):
        return np.asarray(self.jax.dlpack.from_dlpack(exported))


class CuPy:
    def __init__(self):
        self.cupy = importlib.import_module('cupy')

    def of(self, array):
        return self.cupy.asarray(array)

    def read(self, exported):
        return self.cupy.asnumpy(self.cupy.from_dlpack(exported))


@pytest.fixture(params=[Own, Torch, Jax, CuPy])
def library(request):
    if (request.param is Own) != IS_PRETENDED:
        pytest.skip('not run: of the pretended GPU' if request.param is Own else 'not run: on the pretended GPU')
    try:
        return request.param()
    except ImportError as error:
        pytest.skip(f'not run: {error}')


def program(device='cuda', shape=(4, 8), dtype=pd.f32):
    with pd.Graph() as graph:
        x, y = graph.input('x', dtype, shape), graph.input('y', dtype, shape)
        graph.fetch('next', x * 2 + y)
        graph.fetch('total', pd.sum(x, axis=1))
    return pd.Program(graph, device=device)


def numbers(*shape, start=0, dtype=np.float32):
    return (np.arange(np.prod(shape)).reshape(shape) % 17 + start).astype(dtype)


if is_there():

    def test_feeds_and_results_of_a_library_are_read_where_they_are(library):
        step = program()
        for turn in range(3):
            x, y = numbers(4, 8, start=turn), numbers(4, 8, start=5)
            for feeds in ({'x': library.of(x), 'y': library.of(y)}, {'x': x, 'y': library.of(y)}, {'x': x, 'y': y}):
                on_host, there = step.run(feeds), step.run_on_device(feeds)
                assert isinstance(there['next'], pd.DeviceTensor) and there['next'].device == 'cuda:0'
                np.testing.assert_array_equal(on_host['next'].numpy(), 2 * x + y)
                np.testing.assert_array_equal(library.read(there['next']), 2 * x + y)
                np.testing.assert_array_equal(library.read(there['total']), x.sum(axis=1))

    @pytest.mark.parametrize('dtype', ['float64', 'float32', 'float16', 'int64', 'int32'])
    def test_every_dtype_comes_and_goes(library, dtype):
        if dtype in ('float64', 'int64') and isinstance(library, Jax):
            pytest.skip('not run: JAX has 32 bits')
        x = numbers(4, 8, dtype=dtype)
        of_x = {'float64': pd.f64, 'float32': pd.f32, 'float16': pd.f16, 'int64': pd.i64, 'int32': pd.i32}[dtype]
        there = program(dtype=of_x).run_on_device({'x': library.of(x), 'y': library.of(x)})['next']
        assert there.dtype == of_x
        np.testing.assert_array_equal(library.read(there), 3 * x)

    def test_large_and_empty_arrays_too(library):
        x = numbers(300, 512)
        there = program(shape=(300, 512)).run_on_device({'x': library.of(x), 'y': library.of(x)})
        np.testing.assert_array_equal(library.read(there['next']), 3 * x)
        nothing = numbers(0, 8)
        made = program(shape=(0, 8)).run_on_device({'x': nothing, 'y': nothing})['next']
        assert made.shape == (0, 8) and made.numpy().shape == (0, 8)

    def test_a_result_is_the_feed_of_another_program():
        first, second = program(), program()
        x = y = numbers(4, 8)
        there = first.run_on_device({'x': x, 'y': y})['next']
        for turn in range(6):
            there = (second, first)[turn % 2].run_on_device({'x': there, 'y': y})['next']
        want = x
        for _ in range(7):
            want = 2 * want + y
        np.testing.assert_array_equal(there.numpy(), want)

    def test_results_are_what_they_were_whatever_runs_next(library):
        step = program()
        y = library.of(numbers(4, 8))
        kept = [step.run_on_device({'x': numbers(4, 8, start=turn), 'y': y})['next'] for turn in range(8)]
        taken = [step.run_on_device({'x': numbers(4, 8, start=turn), 'y': y})['next'] for turn in range(8)]
        for turn in range(8):
            want = 2 * numbers(4, 8, start=turn) + numbers(4, 8)
            np.testing.assert_array_equal(kept[turn].numpy(), want)
            np.testing.assert_array_equal(library.read(taken[turn]), want)
        del step
        gc.collect()
        np.testing.assert_array_equal(kept[3].numpy(), 2 * numbers(4, 8, start=3) + numbers(4, 8))

    def test_a_result_looks_like_an_array():
        there = program().run_on_device({'x': numbers(4, 8), 'y': numbers(4, 8)})
        result, total = there['next'], there['total']
        assert (result.shape, result.ndim, result.size, result.nbytes, len(result)) == ((4, 8), 2, 32, 128, 4)
        assert repr(result) == 'DeviceTensor(f32[4,8] on cuda:0)'
        assert isinstance(result.cpu(), pd.Tensor) and total.tolist() == numbers(4, 8).sum(axis=1).tolist()
        np.testing.assert_array_equal(np.asarray(result), 3 * numbers(4, 8))
        np.testing.assert_array_equal(np.from_dlpack(result.cpu()), 3 * numbers(4, 8))
        with pytest.raises(pd.ShapeError):
            result.item()
        with pytest.raises(pd.ArgumentError, match='no stream'):
            result.__dlpack__(stream=0)
        with pytest.raises(BufferError):
            result.__dlpack__(stream=1, copy=True)

    def test_what_does_not_fit_is_refused_by_name(library):
        step, y = program(), numbers(4, 8)
        for wrong, kind, said in [
            (library.of(numbers(4, 9)), pd.ShapeError, r"input 'x' is f32\[4,8\], not f32\[4,9\]"),
            (library.of(numbers(4, 8, dtype=np.int32)), pd.DtypeError, r"input 'x' is f32\[4,8\], not i32\[4,8\]"),
        ]:
            with pytest.raises(kind, match=said):
                step.run({'x': wrong, 'y': y})
        with pytest.raises(pd.ArgumentError, match="input 'x': .*\nhint: tensor.cpu()"):
            program('cpu').run({'x': library.of(y), 'y': y})
        made = step.run_on_device({'x': y, 'y': y})
        with pytest.raises(pd.ArgumentError, match="input 'x' is on cuda:0, the program on cpu"):
            program('cpu').run({'x': made['next'], 'y': y})
        with pytest.raises(pd.ArgumentError, match="'next' on the device: the program is on the CPU"):
            program('cpu').run_on_device({'x': y, 'y': y})
        with pytest.raises(pd.ArgumentError, match="no value is given for 'y'\nhint: .*keep=True"):
            step.run({'x': y})
        np.testing.assert_array_equal(step.run({'x': library.of(y), 'y': y})['next'].numpy(), 3 * y)

    def test_a_run_that_failed_gives_nothing(library):
        with pd.Graph() as graph:
            rows = graph.input('x', pd.f32, (4, 8))
            graph.fetch('row', pd.gather(rows, graph.input('at', pd.i64, 1)))
        look = pd.Program(graph, device='cuda')
        x = library.of(numbers(4, 8))
        bad = look.run_on_device({'x': x, 'at': np.array([7])})['row']
        for reads in (bad.numpy, lambda: library.read(bad)):
            with pytest.raises(pd.ArgumentError, match='gather: .*7'):
                reads()
        good = look.run_on_device({'x': x, 'at': np.array([2])})['row']
        np.testing.assert_array_equal(library.read(good), numbers(4, 8)[2:3])

    def test_calls_of_one_program_by_two_threads_are_an_error():
        step, errors, right = program(), [], []
        x = numbers(4, 8)

        def many(start):
            for turn in range(200):
                try:
                    made = step.run_on_device({'x': x + start + turn, 'y': x})['next'].numpy()
                    right.append(np.array_equal(made, 2 * (x + start + turn) + x))
                except pd.ArgumentError as error:
                    errors.append(str(error))

        threads = [threading.Thread(target=many, args=(start,)) for start in (0, 1000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(right) and len(right) + len(errors) == 400
        assert all('under way' in error for error in errors)

    if IS_PRETENDED:

        def test_a_feed_is_held_until_it_was_read_and_asked_for_in_the_programs_stream():
            step, x = program(), Array(numbers(4, 8))
            step.run({'x': x, 'y': numbers(4, 8)})
            assert x.streams == [step.stream] and step.stream > 2
            assert x.holders == 0  # the run was waited for
            x = Array(numbers(4, 8))
            step.run_on_device({'x': x, 'y': numbers(4, 8)})
            del step
            gc.collect()
            assert x.holders == 0

        def test_devices_strides_and_freed_memory_are_refused():
            step, y = program(), numbers(4, 8)
            for wrong, said in [
                (Array(y, index=1), "input 'x' is on cuda:1, the program on cuda:0"),
                (Array(y, kind=Kind.ROCM), "input 'x': it is on a device of DLPack's kind 10, the program on cuda:0"),
                (Array(y, is_freed=True), "input 'x': its memory was freed"),
                (Array(y, strides=[1, 4]), "input 'x': its elements do not lie densely"),
            ]:
                with pytest.raises(pd.ArgumentError, match=said):
                    step.run({'x': wrong, 'y': y})
                assert wrong.holders == 0
            with pytest.raises(pd.DtypeError, match="input 'x': elements of DLPack's code 1 with 16 bits"):
                step.run({'x': Array(y.astype(np.uint16)), 'y': y})

            class Refuses(Array):
                def __dlpack__(self, *, stream=None):
                    raise BufferError('not today')

            with pytest.raises(pd.ArgumentError, match="input 'x': not today"):
                step.run({'x': Refuses(y), 'y': y})
            np.testing.assert_array_equal(step.run({'x': Array(y), 'y': y})['next'].numpy(), 3 * y)

        @pytest.mark.skipif(sys.version_info < (3, 12), reason='not run: __buffer__ is of Python 3.12')
        def test_a_buffer_that_refuses_is_none():
            class AsJax(Array):
                def __buffer__(self, flags):
                    raise BufferError('of the host alone')

            step, y = program(), numbers(4, 8)
            np.testing.assert_array_equal(step.run({'x': AsJax(y), 'y': y})['next'].numpy(), 3 * y)

        def test_what_says_it_is_in_the_hosts_memory_is():
            step, y = program(), numbers(4, 8)
            np.testing.assert_array_equal(step.run({'x': Array(y, kind=Kind.CPU), 'y': y})['next'].numpy(), 3 * y)
