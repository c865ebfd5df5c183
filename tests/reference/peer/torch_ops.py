# SPDX-License-Identifier: Apache-2.0
"""What every op of a graph is in PyTorch: a function of its operands and its attributes."""
import math

import torch

from torch_attention import ATTENTION
from torch_composed import COMPOSED, Missing
from torch_moves import MOVES, dims
from torch_windows import WINDOWS

F = torch.nn.functional


def total(a, attrs):
    # torch.sum() of no axis at all would sum over every axis.
    return a.clone() if a.dim() == 0 else torch.sum(a, dims(attrs, a), keepdim=attrs.get('keepdims', False), dtype=a.dtype)


def lstm_cell(x, h, c, w, u, b):
    if h.shape == c.shape:
        return torch.lstm_cell(x, (h, c), w.t(), u.t(), b, torch.zeros_like(b))
    i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)  # h is a projection, which torch's cell does not take
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def matmul(a, b, attrs):
    return torch.matmul(a.mT if attrs.get('transpose_a') else a, b.mT if attrs.get('transpose_b') else b)


def first_of_a_tie(function, a, b):
    """torch.minimum and torch.maximum share the gradient of a tie, which ours gives to the first. Feeds have no ties, but a
    graph may compare a value with itself."""
    return torch.where(a == b, a, function(a, b))


def add_n(*args):
    result = args[0]
    for a in args[1:-1]:
        result = result + a
    return result.clone() if len(args) == 2 else result


def reduced(function):
    return lambda a, attrs: function(a, dims(attrs, a), attrs.get('keepdims', False)) if a.dim() else a.clone()


def product(a, axes, keepdim):
    for axis in sorted(axes, reverse=True):
        a = a.prod(axis, keepdim=keepdim)
    return a


def truth(function):
    """any and all take one axis at a time."""
    def run(a, axes, keepdim):
        for axis in sorted(axes, reverse=True):
            a = function(a, axis, keepdim=keepdim)
        return a
    return run


def variance(a, axes, keepdim, correction):
    if math.prod(a.shape[i] for i in axes) <= correction:
        raise Missing('the variance of too few elements')
    return torch.var(a, axes, correction=correction, keepdim=keepdim)


def extreme(function):
    def run(a, axes, keepdim):
        if any(a.shape[i] == 0 for i in axes):
            raise Missing('the extreme of nothing')
        return function(a.to(torch.uint8), axes, keepdim=keepdim).bool() if a.dtype == torch.bool else \
            function(a, axes, keepdim=keepdim)
    return run


def normalized(x, gamma, beta, attrs):
    axes = [d % x.dim() for d in attrs.get('axes', [-1])]
    mean, var = x.mean(axes, keepdim=True), x.var(axes, correction=0, keepdim=True)
    return (x - mean) / torch.sqrt(var + attrs.get('epsilon', 1e-5)) * gamma + beta, mean, var


def cross_entropy(logits, labels, attrs):
    flat = logits.reshape(-1, logits.shape[-1])
    loss = F.cross_entropy(flat, labels.reshape(-1).long(), reduction='none',
                           label_smoothing=attrs.get('label_smoothing', 0)).reshape(labels.shape)
    return loss, torch.logsumexp(logits, -1)


def paired(function, **options):
    def run(prediction, target, attrs):
        a, b = torch.broadcast_tensors(prediction, target)
        more = {name: attrs.get(key, default) for name, (key, default) in options.items()}
        if a.numel() == 0 and attrs.get('reduction', 'mean') == 'mean':
            raise Missing('the mean of nothing')
        return function(a, b, reduction=attrs.get('reduction', 'mean'), **more)
    return run


def gru_cell(x, h, w, u, b, attrs):
    hidden = h.shape[-1]
    if b.shape[0] != 4 * hidden:
        raise Missing('a GRU that resets before its product')
    return torch.gru_cell(x, h, w.t(), u.t(), b[:3 * hidden], torch.cat([torch.zeros_like(b[:2 * hidden]), b[3 * hidden:]]))


def rnn_cell(x, h, w, u, b, attrs):
    a = x @ w + h @ u + b
    return torch.relu(a) if attrs.get('relu') else torch.tanh(a)


def one(function):
    return lambda a, _: function(a)


TORCH = {
    'add': lambda a, b, _: torch.add(a, b), 'sub': lambda a, b, _: torch.sub(a, b),
    'mul': lambda a, b, _: torch.mul(a, b), 'div': lambda a, b, _: torch.div(a, b), 'neg': lambda a, _: torch.neg(a),
    'abs': lambda a, _: torch.abs(a), 'exp': lambda a, _: torch.exp(a), 'log': lambda a, _: torch.log(a),
    'minimum': lambda a, b, _: first_of_a_tie(torch.minimum, a, b),
    'maximum': lambda a, b, _: first_of_a_tie(torch.maximum, a, b),
    'sqrt': lambda a, _: torch.sqrt(a), 'rsqrt': lambda a, _: torch.rsqrt(a), 'tanh': lambda a, _: torch.tanh(a),
    'sigmoid': lambda a, _: torch.sigmoid(a), 'softplus': lambda a, _: torch.nn.functional.softplus(a, threshold=100),
    'less': lambda a, b, _: a < b, 'less_equal': lambda a, b, _: a <= b, 'equal': lambda a, b, _: a == b,
    'logical_and': lambda a, b, _: torch.logical_and(a, b), 'logical_or': lambda a, b, _: torch.logical_or(a, b),
    'logical_not': lambda a, _: torch.logical_not(a), 'select': lambda c, a, b, _: torch.where(c, a, b),
    'lerp': lambda a, b, t, _: torch.lerp(a, b, t.expand(torch.broadcast_shapes(a.shape, b.shape, t.shape))),
    'cast': lambda a, attrs: a.to(attrs['dtype']),
    'sum': total,
    'reshape': lambda a, attrs: a.reshape(attrs['shape']),
    'expand': lambda a, attrs: a.expand(attrs['shape']),
    'matmul': matmul,
    'lstm_cell': lambda *args: lstm_cell(*args[:-1]),
    'print': lambda a, _: a.clone(), 'check_indices': lambda a, _: a.clone(),
    'barrier': lambda *args: [a.clone() for a in args[:-1]],
    # It jumps, so it has the gradient 0 here, and none in PyTorch.
    'floor_divide': lambda a, b, _: torch.floor_divide(a.detach(), b.detach()),
}
for name in ('acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf erfc expm1 floor isfinite isinf isnan log10 log1p '
             'log2 reciprocal sign sin sinh square tan trunc '
             'relu').split():
    TORCH[name] = one(getattr(torch, name))
for name, function in (('hardswish', F.hardswish), ('mish', F.mish), ('silu', F.silu), ('softsign', F.softsign),
                       ('log_sigmoid', F.logsigmoid), ('hard_sigmoid', F.hardsigmoid), ('round', torch.round),
                       ('stop_gradient', torch.detach)):
    TORCH[name] = one(function)
for name, function in (('greater', torch.gt), ('greater_equal', torch.ge), ('not_equal', torch.ne),
                       ('logical_xor', torch.logical_xor), ('remainder', torch.remainder), ('fmod', torch.fmod), ('atan2', torch.atan2),
                       ('bitwise_and', torch.bitwise_and), ('bitwise_or', torch.bitwise_or), ('bitwise_xor', torch.bitwise_xor), ('pow', torch.pow)):
    TORCH[name] = lambda a, b, _, function=function: function(a, b)
TORCH.update({
    'clamp': lambda a, attrs: torch.clamp(a, attrs.get('min', -math.inf), attrs.get('max', math.inf)),
    'elu': lambda a, attrs: F.elu(a, attrs.get('alpha', 1.0)),
    'leaky_relu': lambda a, attrs: F.leaky_relu(a, attrs.get('slope', 0.01)),
    'hardtanh': lambda a, attrs: F.hardtanh(a, attrs.get('min', -1.0), attrs.get('max', 1.0)),
    'gelu': lambda a, attrs: F.gelu(a, approximate=attrs.get('approximate', 'none')),
    'mean': reduced(lambda a, axes, keepdim: torch.mean(a, axes, keepdim=keepdim)),
    'max': reduced(extreme(torch.amax)), 'min': reduced(extreme(torch.amin)), 'prod': reduced(product),
    'any': reduced(truth(torch.any)), 'all': reduced(truth(torch.all)),
    'logsumexp': reduced(lambda a, axes, keepdim: torch.logsumexp(a, axes, keepdim=keepdim)),
    'var': lambda a, attrs: variance(a, dims(attrs, a), attrs.get('keepdims', False), attrs.get('correction', 0)),
    'argmax': lambda a, attrs: torch.argmax(a, attrs['axis'], keepdim=attrs.get('keepdims', False)),
    'argmin': lambda a, attrs: torch.argmin(a, attrs['axis'], keepdim=attrs.get('keepdims', False)),
    'softmax': lambda a, attrs: torch.softmax(a, attrs.get('axis', -1)),
    'log_softmax': lambda a, attrs: torch.log_softmax(a, attrs.get('axis', -1)),
    'layer_norm': normalized,
    'batch_norm': lambda x, gamma, beta, attrs: normalized(x, gamma, beta, {'axes': [0], **attrs}),
    'rms_norm': lambda x, gamma, attrs: (F.rms_norm(x, x.shape[-1:], gamma.expand(x.shape[-1:]), attrs.get('epsilon', 1e-6)),
                                         (x * x).mean(-1, keepdim=True)),
    'cross_entropy': cross_entropy,
    'mse_loss': paired(F.mse_loss), 'l1_loss': paired(F.l1_loss),
    'huber_loss': paired(F.huber_loss, delta=('delta', 1.0)),
    'binary_cross_entropy_with_logits': paired(F.binary_cross_entropy_with_logits),
    'gru_cell': gru_cell, 'rnn_cell': rnn_cell,
})
TORCH.update(WINDOWS)
TORCH.update(MOVES)
TORCH.update(COMPOSED)
TORCH.update(ATTENTION)
TORCH['add_n'] = add_n
TORCH['concat'] = lambda *args: torch.cat(args[:-1], args[-1]['axis'])
