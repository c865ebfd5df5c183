# SPDX-License-Identifier: Apache-2.0
"""Ops that a program in Python defines: beside NumPy, and their gradients beside finite differences."""

import doctest

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)


def run(build, dtype='f64', **arrays):
    with pd.Graph() as graph:
        values = {name: graph.input(name, dtype if each.dtype.kind == 'f' else each.dtype, each.shape) for name, each in arrays.items()}
        results = build(**values)
        for i, value in enumerate(results if isinstance(results, (tuple, list)) else [results]):
            graph.fetch(f'y{i}', value)
    return [each.astype('f64').numpy() for each in pd.Program(graph).run(arrays).values()]


@pd.op
def mishmash(a, b, *, slope=0.5, sharp=True):
    """a where it is large, else a curve of both"""
    curve = pd.sigmoid(b) * abs(a) ** 1.5 - 2 / (1 + a**2)
    return pd.where((a > b) & (a > 0) if sharp else a >= b, a * slope, curve)


def mishmash_of_numpy(a, b, slope=0.5, sharp=True):
    curve = 1 / (1 + np.exp(-b)) * np.abs(a) ** 1.5 - 2 / (1 + a**2)
    return np.where((a > b) & (a > 0) if sharp else a >= b, a * slope, curve)


def test_the_examples_of_docstrings_are_true():
    seen = 0
    for name in (*pd.own_ops.__all__, *pd.gradient_check.__all__):
        for example in doctest.DocTestFinder(recurse=False).find(getattr(pd, name), name, globs={'pd': pd}):
            seen += bool(example.examples)
            assert doctest.DocTestRunner().run(example).failed == 0, name
    assert seen == 4


@pytest.mark.parametrize(('dtype', 'limit'), [('f64', 1e-12), ('f32', 1e-6), ('bf16', 2e-2), ('f16', 3e-3)])
def test_a_formula_is_computed_in_every_dtype_and_broadcast(dtype, limit):
    a, b = RNG.standard_normal((3, 1, 4)), RNG.standard_normal((2, 4))
    exact = [each.astype(np.float16).astype(np.float64) if dtype == 'f16' else each for each in (a, b)]
    (made,) = run(lambda a, b: mishmash(a, b), dtype, a=exact[0], b=exact[1])
    assert made.shape == (3, 2, 4)
    np.testing.assert_allclose(made, mishmash_of_numpy(*exact), rtol=limit, atol=limit)
    (made,) = run(lambda a, b: mishmash(b=b, a=a, slope=2.0, sharp=False), dtype, a=exact[0], b=exact[1])
    np.testing.assert_allclose(made, mishmash_of_numpy(*exact, 2.0, False), rtol=limit, atol=limit)


def test_the_derivative_of_a_formula_is_derived():
    a, b = RNG.standard_normal((3, 1, 4)), RNG.standard_normal((2, 4))
    assert pd.check_gradient(lambda a, b: mishmash(a, b, slope=0.3), a, b) < 1e-6


def test_numbers_and_arrays_stand_beside_values():
    a = RNG.standard_normal(4)
    (made,) = run(lambda a: mishmash(a, 0.25), a=a)
    np.testing.assert_allclose(made, mishmash_of_numpy(a, 0.25))
    (made,) = run(lambda a: mishmash(np.arange(4.0), a), a=a)
    np.testing.assert_allclose(made, mishmash_of_numpy(np.arange(4.0), a))


def test_a_formula_of_integers_stays_one():
    @pd.op
    def wrapped(a, b):
        return (a * 3 + b) % 5 - a // 2

    a, b = np.arange(-5, 5), np.arange(10)
    (made,) = run(wrapped, a=a, b=b)
    np.testing.assert_array_equal(made, (a * 3 + b) % 5 - a // 2)
    halved = pd.op(name='halved')(lambda a: a * 0.5)
    with pytest.raises(pd.DtypeError, match='0.5 beside a scalar of i64'):
        run(halved, a=a)


def test_formulas_use_each_other():
    @pd.op
    def outer(a):
        return mishmash(a, 1.0, slope=3.0) + mishmash(a, a * 2)

    a = RNG.standard_normal(5)
    (made,) = run(outer, a=a)
    np.testing.assert_allclose(made, mishmash_of_numpy(a, 1.0, 3.0) + mishmash_of_numpy(a, a * 2))


def test_a_formula_may_have_a_gradient_of_its_own():
    def straight(inputs, outputs, grads, *, steps):
        (x,), (y,), (dy,) = inputs, outputs, grads
        return [dy * (abs(x) < 1) + 0 * y]

    @pd.op(name='quantized', gradient=straight)
    def quantized(x, *, steps=4):
        return pd.round(x * float(steps)) / float(steps)

    x = RNG.standard_normal(9)
    y, dx = run(lambda x: (quantized(x), pd.gradients(quantized(x, steps=2).sum(), x)), x=x)
    np.testing.assert_allclose(y, np.round(x * 4) / 4)
    np.testing.assert_array_equal(dx, np.abs(x) < 1)


def test_ops_are_written_as_text_and_read():
    with pd.Graph() as graph:
        graph.fetch('y', mishmash(graph.input('a', 'f32', 3), 0.5, slope=0.25))
    text = str(graph)
    assert 'mishmash(' in text and 'slope=0.25' in text
    a = RNG.standard_normal(3).astype(np.float32)
    np.testing.assert_array_equal(pd.Program(pd.Graph.parse(text))(a=a)['y'], pd.Program(graph)(a=a)['y'])


@pd.custom_gradient
def log_of_sum(a, b, *, floor=0.0):
    both = a + b + floor
    result = pd.log(both)
    return (result, both), lambda dresult, dboth: (dresult / both + dboth, None)


def test_a_composition_has_the_gradient_that_it_gives():
    a, b = np.abs(RNG.standard_normal((2, 2, 3)))

    def build(a, b):
        first, second = log_of_sum(a, b, floor=1.0)
        return first, second, *pd.gradients((first * 2).sum(), [a, b]), pd.gradients(second.sum(), a)

    first, second, da, db, other = run(build, a=a, b=b)
    np.testing.assert_allclose(first, np.log(a + b + 1))
    np.testing.assert_allclose(second, a + b + 1)
    np.testing.assert_allclose(da, 2 / (a + b + 1))
    np.testing.assert_array_equal(db, 0 * b)  # None is no gradient
    np.testing.assert_array_equal(other, np.ones_like(a))
    with pytest.raises(pd.GradientError, match='the gradient for array 1 at'):
        pd.check_gradient(lambda a, b: log_of_sum(a, b)[0], a, b)


def test_a_composition_works_in_loops_branches_and_checkpoints():
    @pd.custom_gradient
    def twice(x):
        return x * 2, lambda dy: dy * 10

    x = RNG.standard_normal((3, 2))

    def build(x):
        last, _ = pd.scan(lambda carry, each: (twice(carry) + each, None), pd.zeros(2, 'f64'), x)
        chosen = pd.cond(pd.full((), 1, 'i64') > 0, lambda: twice(x), lambda: x)
        kept = pd.checkpoint(lambda x: pd.tanh(twice(x)), x)
        return last, *(pd.gradients(each.sum(), x) for each in (last, chosen, kept))

    last, of_scan, of_cond, of_checkpoint = run(build, x=x)
    np.testing.assert_allclose(last, 4 * x[0] + 2 * x[1] + x[2])
    np.testing.assert_allclose(of_scan, np.array([[100.0], [10], [1]]) * np.ones((3, 2)))
    np.testing.assert_allclose(of_cond, np.full((3, 2), 10))
    np.testing.assert_allclose(of_checkpoint, 10 * (1 - np.tanh(2 * x) ** 2))


def test_a_composition_trains_a_layers_weights():
    @pd.custom_gradient
    def product(x, w):
        return x @ w, lambda dy: (dy @ w.T, x.T @ dy)

    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (8, 3))
        w = graph.parameter('w', 'f32', (3, 1), initial=np.zeros((3, 1)))
        loss = pd.mean((product(x, w) - x.sum(axis=1, keepdims=True)) ** 2)
        pd.minimize(loss, pd.Adam(0.1))
        graph.fetch('loss', loss)
    parameters = pd.Parameters(graph)
    step = pd.Program(graph, parameters)
    for _ in range(300):
        step(x=RNG.standard_normal((8, 3)))
    np.testing.assert_allclose(parameters['w'], np.ones((3, 1)), atol=1e-2)


def test_a_cuda_op_is_its_composition_on_a_cpu():
    kernel = pd.CudaKernel('PD_DEVICE void none() {}', lambda inputs, outputs, *, factor: {'call': 'none()', 'ctas': 0})

    @pd.cuda_op(kernel)
    def scaled(x, y, *, factor=2.0):
        return x * factor + pd.sin(y), x - y

    @pd.cuda_op(kernel, gradient=lambda inputs, outputs, grads, *, factor: (grads[0] * 7, None))
    def odd(x, y, *, factor=2.0):
        return x * factor

    x, y = RNG.standard_normal((2, 3, 2))
    sum_, difference, dx = run(lambda x, y: (*scaled(x, y, factor=3.0), pd.gradients(odd(x, y).sum(), x)), x=x, y=y)
    np.testing.assert_allclose(sum_, 3 * x + np.sin(y))
    np.testing.assert_allclose(difference, x - y)
    np.testing.assert_array_equal(dx, np.full((3, 2), 7))
    assert pd.check_gradient(lambda x, y: scaled(x, y), x, y) < 1e-6


def test_an_op_that_is_defined_again_is_another():
    first = pd.op(name='again')(lambda a: a + 1)
    second = pd.op(name='again')(lambda a: a + 2)
    assert (first.name, second.name) == ('again', 'again.2')
    one, two = run(lambda a: (first(a), second(a)), a=np.zeros(1))
    assert (one.item(), two.item()) == (1, 2)


def test_mistakes_are_named_when_an_op_is_defined_or_called():
    for make, problem in (
        (lambda: pd.op(lambda *a: a[0]), r'takes \*a, needed is a fixed number of inputs'),
        (lambda: pd.op(name='x1')(lambda a, b=2: a), "'b' has a default; write attributes behind a *"),
        (lambda: pd.op(lambda a, *, b: a), "the attribute 'b' needs a default"),
        (lambda: pd.op(lambda a: a), "the name is '<lambda>'"),
        (lambda: pd.op(name='x2')(lambda: 1), 'the function has no input'),
        (lambda: pd.op(name='x3')(lambda a, *, b={}: a), "'b' has the default {}, needed is a bool"),
    ):
        with pytest.raises(pd.ArgumentError, match=problem):
            make()

    outside = []

    def of_outside(x):
        return x * outside[0], lambda dy: dy

    def of_parameters(x):
        return pd.nn.Linear('inside', 2, 2)(x), lambda dy: dy

    def alone(x):
        return x

    for function, problem in (
        (of_outside, 'value of another graph'),
        (of_parameters, 'declares parameters, which an op cannot have'),
        (alone, 'needed are its results and their gradient'),
    ):
        own = pd.custom_gradient(function)
        with pd.Graph() as graph, pytest.raises(pd.ArgumentError, match=problem):
            x = graph.input('x', 'f32', (2, 2))
            outside.append(x)
            own(x)
    for rule, problem in (
        (lambda dy: (dy, dy), 'its gradient gave 2 values, needed are 1'),
        (lambda dy: 3.0, 'needed are Values, or None for no gradient'),
        (lambda dy: dy[0], r'its gradient for input 0 is f32\[2\], the input is f32\[2,2\]'),
    ):
        own = _with_rule(rule)
        with pd.Graph() as graph, pytest.raises(pd.Error, match=problem):
            x = graph.input('x', 'f32', (2, 2))
            pd.gradients(own(x).sum(), x)
    if_op = pd.op(name='with_if')(lambda a: a if a > 0 else -a)
    mixed = pd.op(name='with_matmul')(lambda a: pd.matmul(a, a))
    array = pd.op(name='with_array')(lambda a: a * np.ones(3))
    with pd.Graph() as graph:
        x = graph.input('x', 'f32', (2, 2))
        with pytest.raises(TypeError, match='a formula is traced once for all elements, so it has no `if`'):
            if_op(x)
        with pytest.raises(pd.ArgumentError, match='matmul: is no function of single numbers'):
            mixed(x)
        with pytest.raises(TypeError):
            array(x)
        with pytest.raises(TypeError, match='missing'):
            mishmash(x)
        with pytest.raises(pd.ArgumentError, match="'slope' is 'a', needed is a number"):
            mishmash(x, x, slope='a')


def _with_rule(rule):
    @pd.custom_gradient(name='with_rule')
    def own(x):
        return x * 1, rule

    return own


def test_check_gradient_finds_wrong_gradients_and_says_what_it_needs():
    x = RNG.standard_normal((3, 4))
    w = RNG.standard_normal((4, 2))
    assert pd.check_gradient(lambda x, w, i: (pd.tanh(x @ w), {'row': x[i]}), x, w, np.array([0, 2])) < 1e-6
    assert pd.check_gradient(lambda x: pd.nn.Linear('l', 4, 3, dtype='f64')(x), x.astype(np.float32)) < 1e-6
    assert pd.check_gradient(lambda x: x**3, RNG.standard_normal(500), at_most=5) < 1e-6

    wrong = _with_rule(lambda dy: dy * 1.01)
    with pytest.raises(pd.GradientError, match=r'the gradient for array 0 at \[\d, \d\] is') as caught:
        pd.check_gradient(wrong, x)
    assert isinstance(caught.value, AssertionError)
    with pytest.raises(pd.GradientError, match='is nan'):
        pd.check_gradient(_with_rule(lambda dy: dy * float('nan')), x)
    with pytest.raises(pd.ArgumentError, match='no array has floats'):
        pd.check_gradient(lambda i: i, np.arange(3))
    with pytest.raises(pd.ArgumentError, match='two runs give different results'):
        pd.check_gradient(lambda x: pd.dropout(x, 0.5), x)
    with pytest.raises(pd.ArgumentError, match='the function gives no float'):
        pd.check_gradient(lambda x: x > 0, x)
