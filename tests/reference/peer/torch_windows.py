# SPDX-License-Identifier: Apache-2.0
"""Convolutions and pools in PyTorch: gradients as transposes, pools with the elements of every window side by side."""
import math

import torch

from torch_composed import Missing


def convolved(x, w, attrs):
    top, bottom, left, right = attrs.get('padding', [0] * 4)
    return torch.nn.functional.conv2d(torch.nn.functional.pad(x, (left, right, top, bottom)), w,
                                      stride=attrs.get('stride', 1), dilation=attrs.get('dilation', 1),
                                      groups=attrs.get('groups', 1))


def convolved_with_bias(x, w, bias, attrs):
    y = convolved(x, w, attrs) + bias[:, None, None]
    activation = attrs.get('activation')
    return torch.relu(y) if activation == 'relu' else torch.clamp(y, 0, 6) if activation == 'relu6' else y


def transposed(function, shape, like, dy):
    """What the transpose of a linear function gives: its gradient at any point of this shape."""
    point = torch.zeros(shape, dtype=like.dtype, requires_grad=True)
    made = torch.autograd.grad(function(point), point, dy, create_graph=True, allow_unused=True)[0]
    return torch.zeros(shape, dtype=like.dtype) if made is None else made


def conv_grad_input(dy, w, attrs):
    shape = [dy.shape[0], w.shape[1] * attrs.get('groups', 1)] + attrs['size']
    return transposed(lambda x: convolved(x, w, attrs), shape, dy, dy)


def conv_grad_weight(x, dy, attrs):
    shape = [dy.shape[1], x.shape[1] // attrs.get('groups', 1)] + attrs['kernel']
    return transposed(lambda w: convolved(x, w, attrs), shape, x, dy)


def windows(x, attrs, outside):
    """[N, C, taps, OH, OW]: every window's elements."""
    if x.shape[0] == 0:
        raise Missing('windows of no image')
    top, bottom, left, right = attrs.get('padding', [0] * 4)
    x = torch.nn.functional.pad(x, (left, right, top, bottom), value=outside)
    kernel, stride, dilation = attrs['kernel'], attrs.get('stride', [1, 1]), attrs.get('dilation', [1, 1])
    flat = torch.nn.functional.unfold(x, kernel, dilation=dilation, stride=stride)
    size = [(x.shape[i + 2] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1 for i in (0, 1)]
    return flat.reshape(x.shape[0], x.shape[1], kernel[0] * kernel[1], *size)


def max_pool(x, attrs):
    value, index = windows(x, attrs, -math.inf).max(2)
    return value, index.to(torch.uint8 if math.prod(attrs['kernel']) <= 256 else torch.int32)


def max_pick(x, index, attrs):
    return windows(x, attrs, 0).gather(2, index.long().unsqueeze(2)).squeeze(2)


def max_grad(dy, index, attrs):
    return transposed(lambda x: max_pick(x, index, attrs), list(dy.shape[:2]) + attrs['size'], dy, dy)


def avg_pool(x, attrs):
    taken = windows(x, attrs, 0)
    return taken.sum(2) / (taken.shape[2] if attrs.get('count_padding', True) else
                           windows(torch.ones_like(x), attrs, 0).sum(2))


WINDOWS = {
    'conv2d': convolved, 'conv2d_bias': convolved_with_bias, 'conv2d_grad_input': conv_grad_input,
    'conv2d_grad_weight': conv_grad_weight, 'max_pool2d': max_pool, 'max_pool2d_pick': max_pick,
    'max_pool2d_grad': max_grad, 'avg_pool2d': avg_pool,
    'avg_pool2d_grad': lambda dy, attrs: transposed(lambda x: avg_pool(x, attrs), list(dy.shape[:2]) + attrs['size'],
                                                    dy, dy),
}
