# SPDX-License-Identifier: Apache-2.0
"""attention in PyTorch, by its math for scaled_dot_product_attention with one mask of floats; its gradient by autograd."""
import math

import torch

from torch_composed import Missing

F = torch.nn.functional
INPUTS = {False: [], True: ['result', 'dresult', 'lse']}


def named(args, is_gradient):
    attrs, values = args[-1], list(args[:-1])
    if attrs.get('dropout', 0.0) > 0:
        raise Missing('random numbers of our own')
    names = ['q', 'k', 'v'] + INPUTS[is_gradient]
    names += [name for name in ['dlse'] * is_gradient + ['bias', 'mask', 'lengths', 'slopes'] if attrs.get(name)]
    return dict(zip(names, values)), attrs


def bias_of(given, attrs):
    """What is added to scores: -inf where a key is not seen."""
    q, k = given['q'], given['k']
    T, S = q.shape[-2], k.shape[-2]
    position = torch.arange(T)[:, None] + (S - T if attrs.get('bottom_right') else 0)
    distance = position - torch.arange(S)
    bias = given['bias'] if 'bias' in given else torch.zeros((), dtype=q.dtype)
    bias = bias.expand(torch.broadcast_shapes(bias.shape, (*q.shape[:-1], S)))
    if 'slopes' in given:
        bias = bias - given['slopes'][..., None, None] * distance.abs()
    seen = torch.ones((T, S), dtype=torch.bool)
    if attrs.get('left', -1) >= 0:
        seen = seen & (distance <= attrs['left'])
    if attrs.get('right', -1) >= 0:
        seen = seen & (distance >= -attrs['right'])
    if 'mask' in given:
        seen = seen & given['mask'].bool()
    if 'lengths' in given:
        seen = seen & (torch.arange(S) < given['lengths'][..., None, None])
    return bias.masked_fill(~seen, -math.inf)


def both_results(given, attrs):
    q, k, v = given['q'], given['k'], given['v']
    if q.dim() > 2:
        k, v = (x.repeat_interleave(q.shape[-3] // max(k.shape[-3], 1), -3) for x in (k, v))
    bias = bias_of(given, attrs)
    logs = torch.logsumexp(q @ k.mT * attrs['scale'] + bias, -1)
    if torch.isinf(logs).any():
        raise Missing('rows that see nothing, of which NaN would be the result')
    return F.scaled_dot_product_attention(q, k, v, bias, scale=attrs['scale']), logs


def attention(*args):
    return both_results(*named(args, False))


def attention_grad(*args):
    given, attrs = named(args, True)
    wanted = {name: given[name].detach().requires_grad_() for name in ['q', 'k', 'v', 'bias'] if name in given}
    with torch.enable_grad():
        result, logs = both_results({**given, **wanted}, attrs)
        if not torch.allclose(logs, given['lse']) or not torch.allclose(result, given['result']):
            raise Missing('results that are not those of the inputs')
        loss = (result * given['dresult']).sum() + (logs * given['dlse'] if 'dlse' in given else logs * 0).sum()
        made = torch.autograd.grad(loss, list(wanted.values()))
    return tuple(made)


ATTENTION = {'attention': attention, 'attention_grad': attention_grad}
