# SPDX-License-Identifier: Apache-2.0
"""Formulas and CUDA kernels of one's own on a GPU, or on the one that is not there, beside the same program on the CPU."""

import numpy as np
import pytest
from pretended_gpu import is_there, run_there

import paoding as pd

ROTATE = """
template <class T>
PD_DEVICE void rotate(const T* x, const T* angle, T* out, const Sizes& size) {
  const Index pair = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (pair >= size.pairs) return;
  const Index row = pair / size.half, i = pair % size.half, step = row % size.steps;
  const Compute<T> a = load_one<false>(angle + step * size.half + i) * (Compute<T>)size.sign;
  const T* const from = x + row * 2 * size.half + i;
  T* const to = out + row * 2 * size.half + i;
  const Compute<T> first = load_one<false>(from), second = load_one<false>(from + size.half), c = cos(a), s = sin(a);
  store_one(to, first * c - second * s);
  store_one(to + size.half, first * s + second * c);
}
"""
launches = []


def launch(inputs, outputs, *, inverse):
    launches.append((inputs, outputs, inverse))
    (_, x), (_, angle) = inputs
    pairs = int(np.prod(x)) // 2
    sizes = {'pairs': pairs, 'half': angle[1], 'steps': angle[0], 'sign': -1 if inverse else 1}
    return {'call': 'rotate(x, angle, out, size)', 'sizes': sizes, 'ctas': (pairs + 63) // 64, 'threads': 64}


def turned(x, angle, *, inverse=False):
    half = angle.shape[1]
    a, b = x[..., :half], x[..., half:]
    c, s = pd.cos(angle), pd.sin(-angle if inverse else angle)
    return pd.concat([a * c - b * s, a * s + b * c], -1)


def backwards(inputs, outputs, grads, *, inverse):
    return rotary(grads[0], inputs[1], inverse=not inverse), None


rotary = pd.cuda_op(pd.CudaKernel(ROTATE, launch), gradient=backwards, name='rotary_of_tests')(turned)
derived = pd.cuda_op(pd.CudaKernel(ROTATE, launch), name='rotary_derived')(turned)


@pd.op
def curve(a, b, *, slope=0.5):
    return pd.where((a > b) & (a > 0), a * slope, pd.exp(-abs(a)) * pd.sigmoid(b) ** 2)


def program(build, device):
    with pd.Graph() as graph:
        x, angle = graph.input('x', 'f32', (2, 5, 6)), graph.input('angle', 'f32', (5, 3))
        y = build(x, angle)
        graph.fetch('y', y)
        for name, gradient in zip(('dx', 'dangle'), pd.gradients((y * y * y).sum(), [x, angle])):
            graph.fetch(name, gradient)
    return pd.Program(graph, device=device)


if not is_there():

    def test_all_of_it_on_the_pretended_gpu():
        run_there(__file__)

else:

    @pytest.mark.parametrize(
        ('build', 'count'),
        [
            (lambda x, angle: rotary(x, angle), 2),
            (lambda x, angle: rotary(curve(x, 0.1), angle, inverse=True), 2),
            (lambda x, angle: derived(x, angle), 1),
            (lambda x, angle: curve(x, angle.sum(), slope=3.0), 0),
        ],
    )
    def test_a_gpu_gives_what_the_cpu_gives(build, count):
        random = np.random.default_rng(0)
        feeds = {'x': random.standard_normal((2, 5, 6)), 'angle': random.standard_normal((5, 3))}
        wanted = program(build, 'cpu').run(feeds)
        launches.clear()
        made = program(build, 'cuda').run(feeds)
        for name, each in wanted.items():
            np.testing.assert_allclose(made[name], each, rtol=1e-5, atol=1e-5, err_msg=name)
        assert len(launches) >= count
        for inputs, outputs, _ in launches:
            assert inputs == [(pd.f32, (2, 5, 6)), (pd.f32, (5, 3))] and outputs == [(pd.f32, (2, 5, 6))]

    def test_a_launch_is_checked():
        for given, problem in (
            (lambda *types, inverse: 3, 'its launch is of type int'),
            (lambda *types, inverse: {'grid': 1}, "its launch has 'grid'; it has call, sizes, ctas, threads and shared_bytes"),
        ):
            wrong = pd.cuda_op(pd.CudaKernel(ROTATE, given), name='wrong_launch')(turned)
            with pytest.raises((pd.ArgumentError, TypeError), match=problem):
                program(lambda x, angle, wrong=wrong: wrong(x, angle), 'cuda')
