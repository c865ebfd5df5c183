# SPDX-License-Identifier: Apache-2.0
"""Ops one by one: samples of PyTorch's own database of ops, and random functions with views and writes through them, each by
eager mode and compiled. AOTAutograd is called without Dynamo, which knows nothing of ops."""

import functools
import math
import unittest.mock
import warnings

import pytest

from torch_or_skip import torch
from torch._functorch.aot_autograd import aot_function
from torch._functorch.partitioners import min_cut_rematerialization_partition

import paoding.torch.compiler._backend as backend
from paoding.torch.compiler._settings import Settings, decompositions
from random_torch_functions import compiled_source, function_of, inputs_of

SETTINGS = Settings(min_nodes=1)
DEVICE = 'cpu'
# What draws at random, and what stays an error of AOTAutograd's, whose results depend on data.
OPS = """
    acosh add addbmm addmm addmv all amax any argmax atan2 baddbmm cat clamp constant_pad_nd cumsum diagonal_scatter
    eq expand flip floor_divide fmod gather index_add index_put index_select logsumexp masked_fill max mean min
    native_layer_norm nn.functional.adaptive_avg_pool2d nn.functional.adaptive_avg_pool3d nn.functional.avg_pool2d
    nn.functional.avg_pool3d nn.functional.batch_norm nn.functional.binary_cross_entropy nn.functional.conv1d
    nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose2d nn.functional.cross_entropy
    nn.functional.embedding nn.functional.group_norm nn.functional.interpolate nn.functional.max_pool2d
    nn.functional.max_pool3d nn.functional.nll_loss permute pow prod remainder repeat roll scatter_add
    select_scatter slice_scatter softmax sort squeeze sum take_along_dim tile transpose tril unfold var where
""".split()


def compiled(function, reports):
    """By AOTAutograd, for a function of a list of tensors."""
    compilers = [
        functools.partial(backend._compile, kind=kind, settings=SETTINGS, listener=reports.append)
        for kind in ('forward', 'backward', 'inference')
    ]
    return aot_function(
        function,
        *compilers[:2],
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        inference_compiler=compilers[2],
        keep_inference_input_mutations=True,
    )


def tensors_of(results):
    return [each for each in torch.utils._pytree.tree_leaves(results) if isinstance(each, torch.Tensor)]


def same(made, wanted, limit):
    for mine, theirs in zip(tensors_of(made), tensors_of(wanted), strict=True):
        assert mine.dtype == theirs.dtype and mine.shape == theirs.shape
        assert mine.numel() < 2 or mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs, rtol=limit, atol=limit, equal_nan=True)


def has_gradients(results, read):
    """Whether PyTorch has them itself: what is needed for one may have been written to."""
    sums = [each.sum() for each in results if each.requires_grad]
    wanted = [each for each in read if each.requires_grad]
    if not sums or not wanted:
        return True
    try:
        torch.autograd.grad(sums, wanted, allow_unused=True, retain_graph=True)
    except RuntimeError:
        return False
    return True


def same_gradients(made, wanted, mine, theirs, limit):
    pairs = [(a, b) for a, b in zip(tensors_of(made), tensors_of(wanted)) if b.requires_grad]
    read = [(a, b) for a, b in zip(mine, theirs) if b.requires_grad]
    if not pairs or not read:
        return
    seeds = [torch.randn_like(b) for _, b in pairs]
    results = []
    for side in (0, 1):
        results.append(
            torch.autograd.grad(
                [pair[side] for pair in pairs], [each[side] for each in read], seeds, allow_unused=True
            )
        )
    for ours, eagers in zip(*results):
        if ours is None or eagers is None:
            assert all(each is None or not each.any() for each in (ours, eagers))
        else:
            torch.testing.assert_close(ours, eagers, rtol=limit, atol=limit, equal_nan=True)


def samples_of(names):
    """Of each op one sample, as a function of its tensors, with these."""
    # PyTorch's own tests forbid the process to set global flags (TF32, say) when they are imported; other tests here set them.
    with warnings.catch_warnings(), unittest.mock.patch('torch.backends.disable_global_flags'):
        warnings.simplefilter('ignore')
        from torch.testing._internal.common_methods_invocations import op_db
    pending = set(names)
    for op in op_db:
        if op.name not in pending or torch.float64 not in op.supported_dtypes(DEVICE):
            continue
        pending.remove(op.name)
        samples = list(op.sample_inputs(DEVICE, torch.float64, requires_grad=op.supports_autograd))
        sample = samples[len(samples) // 2]
        leaves, form = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        places = [i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

        def call(tensors, op=op, leaves=leaves, form=form, places=places):
            given = list(leaves)
            for i, tensor in zip(places, tensors):
                given[i] = tensor
            first, rest, keywords = torch.utils._pytree.tree_unflatten(given, form)
            return op.op(first, *rest, **keywords)

        yield op.name, call, [leaves[i] for i in places]


def test_samples_of_pytorchs_ops_are_eagers():
    pytest.importorskip('expecttest', reason='not run: no expecttest here (make deps-torch)')
    cases = list(samples_of(OPS))
    assert len(cases) == len(OPS)
    left = []
    for first in range(0, len(cases), 9):
        chosen = cases[first : first + 9]

        def call(given, chosen=chosen):
            return [function(tensors) for (_, function, _), tensors in zip(chosen, given)]

        theirs, mine = (
            [[each.detach().requires_grad_(each.requires_grad) for each in tensors] for _, _, tensors in chosen]
            for _ in range(2)
        )
        reports = []
        wanted, made = call(theirs), compiled(call, reports)(mine)
        for (name, _, _), ours, eagers in zip(chosen, made, wanted, strict=True):
            assert len(tensors_of(ours)) == len(tensors_of(eagers)), name
            same(ours, eagers, 1e-8)
        same_gradients(made, wanted, tensors_of(mine), tensors_of(theirs), 1e-7)
        assert reports and all(report.whole is None for report in reports)
        left += [each.op for report in reports for each in report.left]
    assert len(left) <= 10, left


def test_extents_that_pytorch_promises_and_does_not_keep_are_looked_at():
    index = torch.tensor([2, 1, 4, 2, 2])  # the gradient of the value goes by _unique, promised to have 5 elements

    def call(tensors):
        x, value, at = tensors
        return x.index_fill(1, at, value)

    theirs, mine = ([torch.ones(5, 5).requires_grad_(), torch.tensor(2.0).requires_grad_(), index] for _ in range(2))
    wanted, made = call(theirs), compiled(call, [])(mine)
    same(made, wanted, 0)
    same_gradients(made, wanted, mine, theirs, 1e-6)


@pytest.mark.parametrize('first', range(0, 24, 12))
def test_random_functions_with_views_and_writes_are_eagers(first):
    count = 0
    for seed in range(first, first + 12):
        is_training = seed % 3 == 0
        call = compiled_source(function_of(seed, may_write=not is_training))
        theirs, mine = inputs_of(seed), inputs_of(seed)
        if is_training:
            theirs, mine = (
                [each.detach().requires_grad_(each.is_floating_point()) for each in given] for given in (theirs, mine)
            )
        wanted, reports = call(*theirs), []
        if is_training and not has_gradients(wanted, theirs):
            continue
        made = torch.compile(call, backend=lambda gm, xs, reports=reports: backend.compiled(gm, xs, SETTINGS, reports.append))(
            *mine
        )
        torch._dynamo.reset()
        same(made, wanted, 1e-9)
        same(mine, theirs, 1e-9)
        for a, b in zip(made, wanted):
            for x, y in zip(mine, theirs):
                assert (a.untyped_storage()._cdata == x.untyped_storage()._cdata) == (
                    b.untyped_storage()._cdata == y.untyped_storage()._cdata
                )
        if is_training:
            same_gradients(made, wanted, mine, theirs, 1e-8)
        count += len(reports)
    assert count >= 10


NUMBERS = (math.nan, math.inf, -math.inf, 0.0, -0.0, 1e-30, 1e30, 0.5, -0.5, 1.5, 2.5, -3.0, 3.0, 88.5, -104.0)
FUNCTIONS = """
    relu exp expm1 log log1p sqrt rsqrt sin tanh sigmoid erf erfc reciprocal floor ceil trunc round sign isnan isinf isfinite
""".split()
ACTIVATIONS = 'gelu silu mish softplus elu selu hardtanh hardsigmoid hardswish leaky_relu relu6 logsigmoid softsign'.split()


@pytest.mark.parametrize('dtype', [torch.float32, torch.bfloat16])
def test_nan_and_infinities_are_eagers(dtype):
    functions = [getattr(torch, name) for name in FUNCTIONS]
    functions += [getattr(torch.nn.functional, name) for name in ACTIVATIONS]
    # PyTorch's vectorized gelu makes nan of infinity on some CPUs, its scalar one infinity.
    gelu = torch.nn.functional.gelu
    functions[functions.index(gelu)] = lambda x: gelu(torch.where(x.isinf(), 0, x))

    def call(tensors):
        x, y = tensors
        made = [function(x) for function in functions]
        made += [torch.maximum(x, y), torch.minimum(x, y), x.clamp(-1, 1), x == y, x < y, torch.where(x > y, x, y)]
        made += [x.amax(0), x.amin(1), x.argmax(0), x.argmin(1), x.max(0)[1], x.sum(0), x.any(1), x**2, x**0.5, x**-1]
        return made

    limit = 2e-5 if dtype == torch.float32 else 2e-2
    numbers = torch.tensor(NUMBERS, dtype=dtype)
    theirs, mine = (
        [each.clone().requires_grad_() for each in torch.meshgrid(numbers, numbers, indexing='ij')] for _ in range(2)
    )
    reports = []
    wanted, made = call(theirs), compiled(call, reports)(mine)
    same(made, wanted, limit)
    assert [left for report in reports for left in report.left] == []
