# SPDX-License-Identifier: Apache-2.0
"""Derivatives, traced models and no rows on a GPU: what the same layer or function gives on the CPU."""

import copy
import warnings

import pytest

import paoding as pd

from torch_gpu_or_skip import torch
from torch.autograd import forward_ad

import paoding.torch as pt
from torch_layers import KINDS, flat, twins

NEAR = {'rtol': 1e-7, 'atol': 1e-8}


def on_both(kind, **options):
    ours, _ = twins(kind, **options)
    return ours.double(), copy.deepcopy(ours).cuda()


def same(on_cpu, on_gpu):
    assert all(each.is_cuda for each in on_gpu)
    torch.testing.assert_close([each.cpu() for each in on_gpu], list(on_cpu), **NEAR)


@pytest.mark.parametrize('kind, options', KINDS)
def test_derivatives_are_those_of_the_cpu(kind, options):
    pair = on_both(kind, bidirectional=True, **options)
    x, v = torch.randn(4, 3, 5, dtype=torch.float64), torch.randn(4, 3, 5, dtype=torch.float64)
    found = []
    for module, device in zip(pair, ('cpu', 'cuda')):
        xs, vs = x.to(device), v.to(device)

        def loss(x, module=module):
            return sum((each * each.sin()).sum() for each in flat(module(x)))

        made = [*torch.func.jvp(loss, (xs,), (vs,)), torch.func.hessian(loss)(xs), torch.func.vmap(loss)(xs[None])]
        with forward_ad.dual_level():
            made.append(forward_ad.unpack_dual(loss(forward_ad.make_dual(xs, vs))).tangent)
        leaf = xs.requires_grad_()
        (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
        made += [first, *torch.autograd.grad(first.square().sum(), [leaf, *module.parameters()])]
        found.append(made)
    same(*found)


def test_the_derivatives_of_a_function_are_those_of_the_cpu():
    with pd.Graph() as graph:
        a, b = graph.input('a', pd.f64, (4, 3)), graph.input('b', pd.f64, (3, 2))
        graph.fetch('y', pd.sum(pd.sin(a @ b) * pd.exp(b[0]), 0))
    function = pt.function(graph)
    a, b = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, 2, dtype=torch.float64)
    found = []
    for device in ('cpu', 'cuda'):
        given = a.to(device), b.to(device)
        made = [*torch.func.jvp(function, given, given), *torch.func.jacfwd(function, argnums=(0, 1))(*given)]
        made.append(torch.func.hessian(function)(*given))
        leaves = [each.requires_grad_() for each in given]
        first = torch.autograd.grad(function(*leaves).square().sum(), leaves, create_graph=True)
        found.append([*made, *first, *torch.autograd.grad(sum(each.sin().sum() for each in first), leaves)])
    same(*found)


@pytest.mark.parametrize('kind, options', KINDS)
def test_no_rows_and_no_steps_are_as_on_the_cpu(kind, options):
    on_cpu, on_gpu = on_both(kind, **options)
    x = torch.randn(4, 0, 5, dtype=torch.float64)
    same(flat(on_cpu(x)), flat(on_gpu(x.cuda())))
    flat(on_gpu(x.cuda()))[0].sum().backward()
    assert all((each.grad == 0).all() for each in on_gpu.parameters())
    with pytest.raises(RuntimeError, match='length to be larger than 0'):
        on_gpu(torch.randn(0, 3, 5, dtype=torch.float64, device='cuda'))


@pytest.mark.parametrize('kind, options', KINDS)
def test_a_traced_model_is_the_model_on_other_inputs(kind, options):
    _, on_gpu = on_both(kind, **options)
    x, other = (torch.randn(steps, 3, 5, dtype=torch.float64, device='cuda') for steps in (4, 6))
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter('ignore', DeprecationWarning)
        made = torch.jit.trace(on_gpu, x)
        torch.testing.assert_close(flat(made(other)), flat(on_gpu(other)), **NEAR)


def test_lengths_of_the_host_are_checked_and_those_of_the_gpu_count_as_the_nearest():
    _, on_gpu = on_both('GRU')
    x = torch.randn(4, 3, 5, dtype=torch.float64, device='cuda')
    lengths = torch.tensor([9, -1, 2])
    with pytest.raises(RuntimeError, match=r'lengths\[0\] is 9, needed is 0 to 4'):
        on_gpu(x, lengths=lengths)
    torch.testing.assert_close(
        flat(on_gpu(x, lengths=lengths.cuda())), flat(on_gpu(x, lengths=lengths.clamp(0, 4).cuda()))
    )
