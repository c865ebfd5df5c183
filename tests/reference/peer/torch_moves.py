# SPDX-License-Identifier: Apache-2.0
"""Ops that move elements, count along an axis or are read by an index, in PyTorch."""
import math

import torch

F = torch.nn.functional


def dims(attrs, a, key='axes'):
    return [d % a.dim() for d in attrs.get(key, [])] or list(range(a.dim()))


def padded_any(a, attrs):
    """pad with `value` and `interior` many elements between neighbours."""
    value, interior = attrs.get('value', 0), attrs.get('interior') or [0] * a.dim()
    size = [b + max(0, n + (n - 1) * i) + e for b, n, i, e in zip(attrs['before'], a.shape, interior, attrs['after'])]
    out = torch.full(size, value, dtype=a.dtype)
    if a.numel() == 0:
        return out + a.sum() * 0 if a.is_floating_point() else out
    place = tuple(slice(b, b + (n - 1) * (i + 1) + 1, i + 1) for b, n, i in zip(attrs['before'], a.shape, interior))
    mask = torch.zeros(size, dtype=torch.bool)
    mask[place] = True
    return out.masked_scatter(mask, a)


def sliced_any(a, attrs):
    """Steps below 0 walk backwards, which torch does not slice."""
    for axis, (s, e, t) in enumerate(zip(attrs['start'], attrs['end'], attrs.get('step') or [1] * a.dim())):
        a = a.index_select(axis, torch.arange(s, e, t)) if t < 0 or t > 1 else a.narrow(axis, s, e - s)
    return a.clone()


def gathered(a, indices, attrs):
    axis = attrs.get('axis', 0) % a.dim()
    flat = a.index_select(axis, indices.reshape(-1).long())
    return flat.reshape(a.shape[:axis] + indices.shape + a.shape[axis + 1:])


def cropped(a, attrs):
    for axis, (before, after) in enumerate(zip(attrs['before'], attrs['after'])):
        a = a.narrow(axis, before, a.shape[axis] - before - after)
    return a.clone()


def scattered(indices, updates, attrs):
    axis = attrs.get('axis', 0) % (updates.dim() - indices.dim() + 1)
    shape = list(updates.shape)
    flat = updates.reshape(shape[:axis] + [indices.numel()] + shape[axis + indices.dim():])
    size = list(flat.shape)
    size[axis] = attrs['extent']
    return torch.zeros(size, dtype=updates.dtype).index_add(axis, indices.reshape(-1).long(), flat)


def unsqueezed(a, axes):
    for axis in sorted(d % (a.dim() + len(axes)) for d in axes):
        a = a.unsqueeze(axis)
    return a.clone()


def cumulative(a, attrs):
    axis = attrs.get('axis', 0)
    if attrs.get('reverse'):
        a = a.flip(axis)
    total = a.cumsum(axis, dtype=a.dtype)
    if attrs.get('exclusive'):
        total = total - a
    return total.flip(axis) if attrs.get('reverse') else total


def cumulative_product(a, attrs):
    axis = attrs.get('axis', 0)
    if attrs.get('reverse'):
        a = a.flip(axis)
    product = a.cumprod(axis, dtype=a.dtype)
    if attrs.get('exclusive') and a.shape[axis] > 0:
        product = torch.cat([torch.ones_like(a.narrow(axis, 0, 1)), product.narrow(axis, 0, a.shape[axis] - 1)], axis)
    return product.flip(axis) if attrs.get('reverse') else product


def others_product(a, attrs):
    if a.dim() == 0:
        return torch.ones_like(a)
    axes = dims(attrs, a)
    kept = [d for d in range(a.dim()) if d not in axes]
    last = a.permute(kept + axes)
    row = last.reshape(math.prod(a.shape[d] for d in kept), -1 if a.numel() else 0)
    whole = {'axis': 1, 'exclusive': True}
    made = cumulative_product(row, whole) * cumulative_product(row, {**whole, 'reverse': True})
    order = kept + axes
    return made.reshape(last.shape).permute([order.index(d) for d in range(a.dim())])


def embedded(table, ids, attrs):
    padding = attrs.get('padding', -1)
    if table.dim() != 2:  # rows of matrices: those of a table of longer rows
        return embedded(table.reshape(table.shape[0], -1), ids, attrs).reshape(ids.shape + table.shape[1:])
    return F.embedding(ids.long(), table, padding_idx=padding if padding >= 0 else None)


def one_hot(ids, attrs):
    depth, axis = attrs['depth'], attrs.get('axis', -1)
    # F.one_hot refuses ids beyond the depth.
    hot = F.one_hot(ids.long(), max(depth, 5))[..., :depth].bool().movedim(-1, axis)
    dtype = attrs.get('dtype', torch.float32)
    return torch.where(hot, torch.tensor(attrs.get('on', 1.0)).to(dtype), torch.tensor(attrs.get('off', 0.0)).to(dtype))


MOVES = {
    'pad': padded_any, 'slice': sliced_any,
    'transpose': lambda a, attrs: a.permute(attrs['permutation']).clone(),
    'flip': lambda a, attrs: torch.flip(a, attrs.get('axes') or list(range(a.dim()))),
    'gather': gathered, 'embedding': embedded,
    'gather_elements': lambda a, i, attrs: torch.gather(a, attrs.get('axis', 0), i.long()),
    'sort': lambda a, attrs: tuple(torch.sort(a, dim=attrs.get('axis', -1), descending=attrs.get('descending', False),
                                              stable=True)),
    'argsort': lambda a, attrs: torch.sort(a, dim=attrs.get('axis', -1), descending=attrs.get('descending', False),
                                           stable=True)[1],
    'topk': lambda a, attrs: tuple(torch.topk(a, attrs['k'], attrs.get('axis', -1), attrs.get('largest', True))),
    'squeeze': lambda a, attrs: a.reshape([n for i, n in enumerate(a.shape) if n != 1 or attrs.get('axes') and
                                           i not in [d % a.dim() for d in attrs['axes']]]),
    'unsqueeze': lambda a, attrs: unsqueezed(a, attrs['axes']),
    'stack': lambda *args: torch.stack(args[:-1], args[-1].get('axis', 0)),
    'unstack': lambda a, attrs: torch.unbind(a, attrs.get('axis', 0)),
    'crop': cropped,
    'tile': lambda a, attrs: torch.tile(a, attrs['times']),
    'roll': lambda a, attrs: torch.roll(a, attrs['shift'], attrs.get('axis', 0)),
    'repeat': lambda a, attrs: torch.repeat_interleave(a, attrs['times'], attrs.get('axis', 0)),
    'swap_axes': lambda a, attrs: a.transpose(attrs.get('first', -2), attrs.get('second', -1)).clone(),
    'flatten': lambda a, attrs: torch.flatten(a, attrs.get('first', 0), attrs.get('last', -1)).clone(),
    'split': lambda a, attrs: torch.split(a, attrs['sizes'], attrs.get('axis', 0)) if attrs.get('sizes') else
    torch.split(a, a.shape[attrs.get('axis', 0)] // attrs.get('parts', 1), attrs.get('axis', 0)),
    'scatter_add': scattered,
    'embedding_grad': lambda i, g, attrs: scattered(i, g * (i != attrs['padding']).reshape(
        i.shape + (1,) * (g.dim() - i.dim())), attrs),
    'scatter_add_elements': lambda i, u, attrs: torch.zeros(
        [attrs['extent'] if d == attrs.get('axis', 0) % u.dim() else n for d, n in enumerate(u.shape)],
        dtype=u.dtype).scatter_add(attrs.get('axis', 0), i.long(), u),
    'cumsum': cumulative, 'cumprod': cumulative_product,
    'prod_others': others_product, 'one_hot': one_hot,
    'sequence_mask': lambda lengths, attrs: torch.arange(attrs['max_length']) < lengths.unsqueeze(-1),
    'full_like': lambda a, attrs: torch.full_like(a, attrs['value'], requires_grad=False),
    'shape': lambda a, _: torch.tensor(list(a.shape), dtype=torch.int64),
}
