# SPDX-License-Identifier: Apache-2.0
"""scaled_dot_product_attention, compiled, and its conversion of PyTorch's op for CUDA, against eager mode in float64."""

import math

import numpy as np
import pytest

from torch_or_skip import torch

import paoding as pd
import paoding.torch.compiler._all_ops  # noqa: F401
from paoding.torch.compiler._table import Making, found

attend = torch.nn.functional.scaled_dot_product_attention
aten = torch.ops.aten


def tensors(queries, keys, width, heads=2, dtype=torch.float32):
    torch.manual_seed(queries + keys)
    shapes = [(2, heads, queries, width)] + [(2, heads, keys, width)] * 2
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


def mask_of(kind, queries, keys):
    seen = torch.rand(2, 1, queries, keys) > 0.3
    seen[0, 0, 0] = False  # a row that sees nothing
    if kind == 'bool':
        return seen
    return torch.zeros(2, 1, queries, keys).masked_fill(~seen, -math.inf)


@pytest.mark.parametrize('kind', [None, 'causal', 'bool', 'float'])
@pytest.mark.parametrize(('queries', 'keys', 'width'), [(9, 13, 8), (130, 130, 64)])
def test_compiled_attention_and_its_gradients_are_eagers(kind, queries, keys, width):
    torch._dynamo.reset()
    q, k, v = tensors(queries, keys, width)
    options = {'is_causal': kind == 'causal'}
    if kind in ('bool', 'float'):
        options['attn_mask'] = mask_of(kind, queries, keys)

    def call(q, k, v):
        return attend(q.sin(), k, v, **options).cos()

    made = torch.compile(call, backend='paoding')(q, k, v)
    doubles = [x.detach().double().requires_grad_() for x in (q, k, v)]
    if kind == 'float':
        options['attn_mask'] = options['attn_mask'].double()
    wanted = call(*doubles)
    torch.testing.assert_close(made.double(), wanted, rtol=2e-5, atol=2e-5)
    weight = torch.randn(made.shape)
    gradients = torch.autograd.grad(made, (q, k, v), weight)
    expected = torch.autograd.grad(wanted, doubles, weight.double())
    for mine, theirs in zip(gradients, expected, strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=5e-5, atol=5e-5)


@pytest.mark.parametrize('has_bias', [False, True])
def test_the_op_for_cuda_becomes_ours(has_bias):
    q, k, v = tensors(9, 9, 8)
    bias = torch.randn(2, 2, 9, 9) if has_bias else None
    weight = torch.randn(2, 2, 9, 8)
    f32, given = pd.f32, {'q': q, 'k': k, 'v': v, 'w': weight}
    if has_bias:
        given['bias'] = bias
    with pd.Graph() as graph:
        values = {name: graph.input(name, f32, tuple(tensor.shape)) for name, tensor in given.items()}
        making = Making(graph)
        making.dtypes = [f32, f32, pd.i64, pd.i64]
        convert = found(aten._scaled_dot_product_efficient_attention.default)[0]
        out, logs, seed, offset = convert(
            making, values['q'], values['k'], values['v'], values.get('bias'), True, 0.0, not has_bias
        )
        assert logs.shape == (2, 2, 32)
        making.dtypes = [f32] * 4
        convert = found(aten._scaled_dot_product_efficient_attention_backward.default)[0]
        made = convert(
            making, values['w'], values['q'], values['k'], values['v'], values.get('bias'), out, logs, seed, offset, 0.0,
            [True, True, True, has_bias], not has_bias,
        )
        assert (made[3] is None) == (not has_bias)
        for number, value in enumerate([out, *made]):
            if value is not None:
                graph.fetch(f'y{number}', value)
    got = pd.Program(graph)(**{name: tensor.detach().numpy() for name, tensor in given.items()})
    wanted_of = [q, k, v] + ([bias.requires_grad_()] if has_bias else [])
    wanted = attend(q, k, v, attn_mask=bias, is_causal=not has_bias)
    for number, theirs in enumerate([wanted, *torch.autograd.grad(wanted, wanted_of, weight)]):
        np.testing.assert_allclose(got[f'y{number}'], theirs.detach().numpy(), rtol=2e-5, atol=2e-5)
