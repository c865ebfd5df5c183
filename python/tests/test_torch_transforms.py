# SPDX-License-Identifier: Apache-2.0
"""Derivatives in forward mode, of derivatives, and torch.func's transforms, through layers and functions of ours."""

import pytest

import paoding as pd

from torch_or_skip import torch
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence

import paoding.torch as pt
from torch_layers import KINDS, flat, states_of, twins

EXACT = {'rtol': 1e-9, 'atol': 1e-10}


@pytest.fixture(autouse=True)
def torchs_own_lstm():
    """PyTorch's LSTM by oneDNN has no forward mode; the one without it has."""
    with torch.backends.mkldnn.flags(enabled=False):
        yield


def doubles(kind, **options):
    return [module.double() for module in twins(kind, **options)]


def of_sum(module):
    """A scalar of all results, and of what makes it curved."""
    return lambda *given: sum((each * each.sin()).sum() for each in flat(module(*given)))


LAYERS = [
    (kind, {**options, **more})
    for kind, options in KINDS
    for more in ({}, {'num_layers': 2, 'bidirectional': True, 'batch_first': True})
]


@pytest.mark.parametrize('kind, options', LAYERS)
def test_forward_mode_is_torchs(kind, options):
    ours, theirs = doubles(kind, **options)
    x, v = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    batch = 4 if ours.batch_first else 3
    hx, d_hx = (states_of(ours, batch, torch.float64) for _ in range(2))

    def by_func(module):
        (output, last), (d_output, d_last) = torch.func.jvp(lambda *given: module(*given), (x, hx), (v, d_hx))
        return flat((output, last)) + flat((d_output, d_last))

    torch.testing.assert_close(by_func(ours), by_func(theirs), **EXACT)
    for is_frozen in (False, True):
        for module in (ours, theirs):
            module.requires_grad_(not is_frozen)
        tangents = []
        for module in (ours, theirs):
            with forward_ad.dual_level():
                made = flat(module(forward_ad.make_dual(x, v)))
                tangents.append([forward_ad.unpack_dual(each).tangent for each in made])
        torch.testing.assert_close(*tangents, **EXACT)
        assert all(each.abs().sum() > 0 for each in tangents[0])
    with torch.no_grad():
        torch.testing.assert_close(by_func(ours), by_func(theirs), **EXACT)


@pytest.mark.parametrize('kind, options', LAYERS)
def test_torch_funcs_derivatives_are_torchs(kind, options):
    ours, theirs = doubles(kind, **options)
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    for transform in (torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian):
        torch.testing.assert_close(transform(of_sum(ours))(x), transform(of_sum(theirs))(x), **EXACT)


@pytest.mark.parametrize('kind, options', LAYERS)
def test_vmap_is_a_call_of_each(kind, options):
    ours, _ = doubles(kind, **options)
    xs = torch.randn(4, 3, 2, 5, dtype=torch.float64)
    wanted = [torch.stack(each) for each in zip(*(flat(ours(x)) for x in xs))]
    torch.testing.assert_close(flat(torch.func.vmap(ours)(xs)), wanted, **EXACT)
    wanted = torch.stack([torch.func.grad(of_sum(ours))(x) for x in xs])
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(of_sum(ours)))(xs), wanted, **EXACT)


@pytest.mark.parametrize('kind, options', KINDS)
def test_an_ensemble_is_one_vmapped_call(kind, options):
    layers = [getattr(pt, kind)(5, 7, **options) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    x = torch.randn(3, 2, 5)
    called = torch.func.vmap(
        lambda p, b: torch.func.functional_call(layers[0], (p, b), (x,))[0]
    )(parameters, buffers)
    torch.testing.assert_close(called, torch.stack([layer(x)[0] for layer in layers]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('kind, options', LAYERS)
def test_gradients_of_gradients_are_torchs(kind, options):
    ours, theirs = doubles(kind, **options)
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    made = []
    for module in (ours, theirs):
        xs = x.clone().requires_grad_()
        hx = states_of(module, 3 if module.batch_first else 2, torch.float64)
        torch.manual_seed(8)
        hx = tuple(torch.randn_like(each).requires_grad_() for each in (hx if isinstance(hx, tuple) else (hx,)))
        inputs = (xs, *hx, *module.parameters())
        first = torch.autograd.grad(of_sum(module)(xs, hx if len(hx) == 2 else hx[0]), inputs, create_graph=True)
        second = torch.autograd.grad(sum(each.square().sum() for each in first), inputs)
        made.append([*first, *second])
    torch.testing.assert_close(*made, **EXACT)


def test_gradients_of_gradients_pass_gradgradcheck():
    for kind in ('LSTM', 'GRU', 'RNN'):
        ours, _ = doubles(kind, bidirectional=True)
        lengths = torch.tensor([2, 0])
        x = torch.randn(2, 2, 5, dtype=torch.float64, requires_grad=True)
        assert torch.autograd.gradgradcheck(lambda x: tuple(flat(ours(x, lengths=lengths))), (x,), fast_mode=True)
        assert torch.autograd.gradcheck(
            lambda x: tuple(flat(ours(x, lengths=lengths))), (x,), check_forward_ad=True
        )


@pytest.mark.parametrize('kind, options', [each for each in LAYERS if 'proj_size' not in each[1]])
def test_gradients_that_are_batched_are_each_ones(kind, options):
    ours, _ = doubles(kind, **options)
    x = torch.randn(3, 2, 5, dtype=torch.float64, requires_grad=True)
    outputs = flat(ours(x))
    seeds = [torch.randn(4, *each.shape, dtype=torch.float64) for each in outputs]
    inputs = [x, *ours.parameters()]
    wanted = [torch.autograd.grad(outputs, inputs, [seed[i] for seed in seeds], retain_graph=True) for i in range(4)]
    made = torch.autograd.grad(outputs, inputs, seeds, is_grads_batched=True)
    torch.testing.assert_close(made, tuple(torch.stack(each) for each in zip(*wanted)), **EXACT)


def test_parameters_that_are_the_same_tensor_have_its_gradient_once():
    ours, theirs = doubles('GRU')
    x = torch.randn(3, 2, 5, dtype=torch.float64)
    made = []
    for module in (ours, theirs):
        module.bias_hh_l0 = module.bias_ih_l0
        first = torch.autograd.grad(of_sum(module)(x), list(module.parameters()), create_graph=True)
        made.append([*first, *torch.autograd.grad(sum(each.square().sum() for each in first), list(module.parameters()))])
    torch.testing.assert_close(*made, **EXACT)


def test_gradients_that_are_batched_are_refused_with_a_projection():
    ours, _ = twins('LSTM', proj_size=4)
    output, _ = ours(torch.randn(3, 2, 5))
    with pytest.raises(RuntimeError, match='Batching rule not implemented for paoding::function'):
        torch.autograd.grad(output, ours.weight_ih_l0, torch.ones(4, *output.shape), is_grads_batched=True)


def test_gradients_of_gradients_are_refused_when_what_they_need_was_written():
    ours, _ = twins('LSTM')
    x, h0, c0 = torch.randn(3, 2, 5), *states_of(ours, 2)
    wide = torch.randn(3, 2, 10)
    for given, written in (((x, (h0, c0)), c0), ((x, (h0, c0)), ours.bias_hh_l0), ((wide[:, :, ::2], None), wide)):
        output, _ = ours(*given)
        with torch.no_grad():
            written.mul_(2)
        with pytest.raises(RuntimeError, match='modified by an inplace operation'):
            torch.autograd.grad(output.sum(), ours.weight_ih_l0, create_graph=True)


@pytest.mark.parametrize('kind', ['LSTM', 'GRU', 'RNN'])
def test_what_stands_behind_a_rows_end_has_no_part_in_any_derivative(kind):
    ours, theirs = doubles(kind, bidirectional=True)
    x = torch.randn(4, 2, 5, dtype=torch.float64)
    broken = x.clone()
    broken[2:, 1] = torch.nan

    def row_by_row(x):
        return sum(each.square().sum() for row in (x[:4, :1], x[:2, 1:]) for each in flat(theirs(row)))

    def by_lengths(x):
        return sum(each.square().sum() for each in flat(ours(x, lengths=torch.tensor([4, 2]))))

    wanted = torch.func.hessian(row_by_row)(x)
    torch.testing.assert_close(torch.func.hessian(by_lengths)(broken), wanted, **EXACT)
    torch.testing.assert_close(torch.func.grad(by_lengths)(broken), torch.func.grad(row_by_row)(x), **EXACT)


@pytest.mark.parametrize('kind, options', KINDS[:4])
@pytest.mark.parametrize('transform', [torch.func.jacfwd, torch.func.jacrev, torch.func.hessian])
def test_packed_sequences_have_derivatives_too(kind, options, transform):
    ours, _ = doubles(kind, bidirectional=True, **options)
    batch_sizes, lengths = torch.tensor([3, 2, 1]), torch.tensor([3, 2, 1])
    rows = torch.tensor([0, 1, 2, 3, 4, 6])  # of steps and rows of the batch, flat
    data = torch.randn(6, 5, dtype=torch.float64)

    def packed(data):
        return flat(ours(PackedSequence(data, batch_sizes)))

    def padded(data):
        x = torch.zeros(9, 5, dtype=torch.float64).index_copy(0, rows, data).reshape(3, 3, 5)
        output, *last = flat(ours(x, lengths=lengths))
        return output.flatten(0, 1)[rows], *last

    def curved(f):
        return lambda data: sum((each * each.sin()).sum() for each in f(data))

    torch.testing.assert_close(transform(curved(packed))(data), transform(curved(padded))(data), **EXACT)
    torch.testing.assert_close(transform(packed)(data), [*transform(padded)(data)], **EXACT)


def test_torch_compile_of_transforms_is_what_they_are():
    ours, _ = twins('LSTM')
    x, v = torch.randn(3, 2, 5), torch.randn(3, 2, 5)

    def tangent(x):
        return torch.func.jvp(lambda x: ours(x)[0], (x,), (v,))[1]

    gradient = torch.func.grad(of_sum(ours))
    for function in (tangent, gradient):
        compiled = torch.compile(function, backend='aot_eager', fullgraph=True)
        torch.testing.assert_close(compiled(x), function(x), rtol=1e-5, atol=1e-5)


# ---- functions ----


def activated():
    """y = sum over an axis of sin(a @ b) * t, with a result of integers beside it; as a graph and by PyTorch."""
    with pd.Graph() as graph:
        a, b, t = (graph.input(name, pd.f64, shape) for name, shape in (('a', (4, 3)), ('b', (3, 2)), ('t', (2,))))
        graph.fetch('y', pd.sum(pd.sin(a @ b) * pd.exp(t), 0))
        graph.fetch('which', pd.argmax(b, 1))
        graph.fetch('z', pd.tanh(a) * t[0])
    return pt.function(graph), lambda a, b, t: (((a @ b).sin() * t.exp()).sum(0), b.argmax(1), a.tanh() * t[0])


def given(**options):
    torch.manual_seed(4)
    return [torch.randn(shape, dtype=torch.float64, **options) for shape in ((4, 3), (3, 2), (2,))]


def test_a_function_has_gradients_of_any_order():
    ours, theirs = activated()
    inputs = given(requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda *inputs: ours(*inputs)[::2], inputs)
    with pytest.raises(RuntimeError, match='Batching rule not implemented for paoding::function'):
        seeds = [torch.ones(5, 2, dtype=torch.float64)]
        torch.autograd.grad(ours(*inputs)[0], inputs, seeds, is_grads_batched=True)
    made = []
    for function in (ours, theirs):
        found = sum(each.sin().sum() for each in function(*inputs)[::2])
        orders = []
        for _ in range(3):
            gradients = torch.autograd.grad(found, inputs, create_graph=True)
            orders += gradients
            found = sum(each.sin().sum() for each in gradients)
        made.append(orders)
    torch.testing.assert_close(*made, **EXACT)


def test_a_function_has_a_forward_mode():
    ours, theirs = activated()
    inputs, tangents = given(), [torch.rand_like(each) for each in given()]
    leaves = given(requires_grad=True)
    assert torch.autograd.gradcheck(lambda *inputs: ours(*inputs)[::2], leaves, check_forward_ad=True)
    made = [
        torch.func.jvp(lambda *inputs: function(*inputs)[::2], tuple(inputs), tuple(tangents))
        for function in (ours, theirs)
    ]
    torch.testing.assert_close(*made, **EXACT)
    made = []
    for function in (ours, theirs):
        with forward_ad.dual_level():
            y, which, z = function(inputs[0], forward_ad.make_dual(inputs[1], tangents[1]), inputs[2])
            assert torch.equal(which, inputs[1].argmax(1))
            made.append([forward_ad.unpack_dual(y).tangent, z])
    torch.testing.assert_close(*made, **EXACT)


@pytest.mark.parametrize('transform', [torch.func.grad, torch.func.jacrev, torch.func.jacfwd, torch.func.hessian])
def test_a_function_takes_torch_funcs_derivatives(transform):
    ours, theirs = activated()
    inputs = given()
    made = [
        transform(lambda *inputs: sum(each.sin().sum() for each in function(*inputs)[::2]), argnums=(0, 1, 2))(*inputs)
        for function in (ours, theirs)
    ]
    torch.testing.assert_close(*made, **EXACT)


def test_a_function_is_vmapped_by_a_call_of_each():
    ours, theirs = activated()
    a, b, t = given()
    many = torch.stack([b, 2 * b, -b], 1)
    for count in (3, 0):
        made = [torch.func.vmap(f, in_dims=(None, 1, None))(a, many[:, :count], t) for f in (ours, theirs)]
        if count == 0:  # of no calls only the extents are known
            made = [[each.shape for each in results] for results in made]
        torch.testing.assert_close(*made, **EXACT)

    def gradients(f):
        return torch.func.vmap(torch.func.grad(lambda b: f(a, b, t)[0].square().sum()), in_dims=1)(many)

    torch.testing.assert_close(gradients(ours), gradients(theirs), **EXACT)


@pytest.mark.parametrize(
    'build, shapes',
    [
        (lambda x, w: pd.conv2d(x, w), [(1, 2, 4, 4), (2, 2, 3, 3)]),
        (lambda x, w: pd.layer_norm(x, w, w), [(3, 4), (4,)]),
        (lambda xw, u: pd.ops.gru_recurrence(xw, u, pd.zeros(2, pd.f64), pd.zeros((2, 2), pd.f64))[0], [(3, 2, 6), (2, 6)]),
        (lambda x: pd.cond(pd.sum(x) < 0, lambda: x * x * x, lambda: pd.sin(x)), [(3,)]),
        (lambda x: pd.while_loop(lambda v: pd.sum(v * v) < 50.0, lambda v: v * 1.5, x, max_iterations=20), [(3,)]),
    ],
    ids=['conv2d', 'layer_norm', 'gru_recurrence', 'cond', 'while_loop'],
)
def test_the_derivatives_of_graphs_of_all_kinds_are_finite_differences(build, shapes):
    with pd.Graph() as graph:
        graph.fetch('y', build(*(graph.input(f'x{i}', pd.f64, shape) for i, shape in enumerate(shapes))))
    function = pt.function(graph)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_a_loop_without_a_limit_has_no_derivative_in_forward_mode_either():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f64, ())
        graph.fetch('y', pd.while_loop(lambda v: v < 100, lambda v: v * 2, x))
    x = torch.tensor(3.0, dtype=torch.float64)
    with pytest.raises(pd.UnsupportedError, match='max_iterations'):
        torch.func.jvp(pt.function(graph), (x,), (x,))


def test_the_derivatives_of_a_recurrence_in_a_function_are_finite_differences():
    with pd.Graph() as graph:
        xs, w = graph.input('xs', pd.f64, (3, 2)), graph.input('w', pd.f64, (2, 2))
        h, hs = pd.scan(lambda h, x: (pd.tanh(x + h @ w),) * 2, pd.zeros((1, 2), pd.f64), xs)
        graph.fetch('hs', hs)
    function = pt.function(graph)
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((3, 2), (2, 2))]
    assert torch.autograd.gradcheck(function, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_torch_compile_of_a_functions_transforms_is_what_they_are():
    ours, theirs = activated()
    a, b, t = given()

    def tangent(f):
        return lambda a: torch.func.jvp(lambda a: f(a, b, t)[0], (a,), (a,))[1]

    def gradient(f):
        return torch.func.grad(lambda a: f(a, b, t)[0].square().sum())

    for transformed in (tangent, gradient):
        compiled = torch.compile(transformed(ours), backend='aot_eager')
        torch.testing.assert_close(compiled(a), transformed(theirs)(a), **EXACT)


def test_an_op_that_was_exported_refuses_tangents():
    ours, _ = twins('GRU')
    x = torch.randn(3, 2, 5)
    lerp, _ = activated()
    for module, inputs in ((ours, (x,)), (torch.nn.Module(), tuple(given()))):
        if module is not ours:
            module.forward = lerp
        exported = torch.export.export(module, inputs).module()
        for tensor in exported.parameters():
            tensor.requires_grad_(False)
        with pytest.raises(pd.UnsupportedError, match='has a tangent'), forward_ad.dual_level():
            exported(forward_ad.make_dual(inputs[0], inputs[0]), *inputs[1:])
