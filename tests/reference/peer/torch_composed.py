# SPDX-License-Identifier: Apache-2.0
"""Composed ops in PyTorch, by other ways than ours where it has none of its own."""
import functools
import math

import torch

F = torch.nn.functional


class Missing(Exception):
    """PyTorch has no counterpart of an op."""


def einsum(*args):
    dtype = functools.reduce(torch.promote_types, [a.dtype for a in args[:-1]])
    return torch.einsum(args[-1]['formula'], *[a.to(dtype) for a in args[:-1]])


def place(a, sizes, start, attrs):
    """Where a dynamic slice is, as an index."""
    axes = [d % a.dim() for d in attrs.get('axes') or range(a.dim())]
    index = [slice(None)] * a.dim()
    for axis, size, first in zip(axes, sizes, start.reshape(-1).tolist()):
        first = max(0, min(first, a.shape[axis] - size))
        index[axis] = slice(first, first + size)
    return tuple(index)


def dynamic_slice(a, start, attrs):
    return a[place(a, attrs['sizes'], start, attrs)].clone()


def dynamic_update_slice(a, update, start, attrs):
    sizes = [update.shape[d] for d in attrs.get('axes') or range(a.dim())]
    mask = torch.zeros(a.shape, dtype=torch.bool)
    mask[place(a, sizes, start, attrs)] = True
    return a.masked_scatter(mask, update)


def categorical(logits, uniform, attrs):
    temperature, top_k, top_p = attrs.get('temperature', 1.0), attrs.get('top_k', 0), attrs.get('top_p', 1.0)
    scores, where = torch.sort(logits / temperature, descending=True, stable=True)
    if 0 < top_k < scores.shape[-1]:
        scores, where = scores[..., :top_k], where[..., :top_k]
    probabilities = torch.softmax(scores, -1)
    is_left = probabilities.cumsum(-1) - probabilities < top_p
    if top_k == 0 and top_p == 1:  # numbers of the categories as they stand, not by size
        uniform = torch.gather(uniform, -1, where)
    noisy = scores - torch.log(-torch.log(uniform.clamp(0, 1)))
    drawn = torch.where(is_left, noisy, torch.tensor(-math.inf, dtype=noisy.dtype))
    most = drawn.max(-1, keepdim=True)[0]
    if (drawn == most).sum() > most.numel():
        raise Missing('a tie, of which ours is the first as they stand')
    return torch.gather(where, -1, drawn.argmax(-1, keepdim=True)).squeeze(-1)


def angles(positions, width, attrs):
    factors = attrs.get('base', 10000.0) ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    return positions.unsqueeze(-1) * factors


def sinusoidal(positions, attrs):
    angle = angles(positions.double(), attrs['width'], attrs)
    return torch.stack([torch.sin(angle), torch.cos(angle)], -1).flatten(-2).to(attrs.get('dtype', torch.float32))


def rotary(x, positions, attrs):
    """As a product of complex numbers."""
    halves = x.unflatten(-1, (-1, 2)) if attrs.get('interleaved') else x.unflatten(-1, (2, -1)).mT
    angle = angles(positions.to(x.dtype), x.shape[-1], attrs)
    turned = torch.view_as_real(torch.view_as_complex(halves.contiguous()) * torch.polar(torch.ones_like(angle), angle))
    return turned.flatten(-2) if attrs.get('interleaved') else turned.mT.flatten(-2)


def group_norm(x, gamma, beta, attrs):
    if x.numel() == 0:
        raise Missing('groups of nothing')
    return F.group_norm(x, attrs['groups'], gamma, beta, attrs.get('epsilon', 1e-5))


COMPOSED = {
    'einsum': einsum, 'dynamic_slice': dynamic_slice, 'dynamic_update_slice': dynamic_update_slice,
    'categorical': categorical, 'sinusoidal_positions': sinusoidal, 'rotary_embedding': rotary,
    'group_norm': group_norm,
}
