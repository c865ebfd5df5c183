# SPDX-License-Identifier: Apache-2.0
"""Runs paoding graph text (docs/graph_text.md) in PyTorch: what it means there, op by op, gradients by autograd."""
import math
import re

import torch

from torch_composed import COMPOSED, Missing

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|%\d+(?:\.\d+)?|[A-Za-z_][A-Za-z0-9_.]*|-?(?:inf|nan|\d[\d.e+-]*)|[=(){}\[\],:;@~]|#[^\n]*|\n')
DTYPES = dict(f64=torch.float64, f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16, i64=torch.int64,
              i32=torch.int32, u8=torch.uint8, bool=torch.bool)


class Statement:
    def __init__(self, left, op, inputs=(), attrs=None, bodies=(), dtype=None, shape=None, seeds=None, wanted=()):
        self.left, self.op, self.inputs, self.attrs = left, op, list(inputs), attrs or {}
        self.bodies, self.dtype, self.shape, self.seeds, self.wanted = list(bodies), dtype, shape, seeds, list(wanted)


class Parser:
    def __init__(self, text):
        self.tokens = [t for t in TOKEN.findall(text.split('\n', 1)[1]) if not t.startswith('#')]
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, wanted=None):
        token = self.tokens[self.at]
        assert wanted is None or token == wanted, (wanted, self.tokens[max(0, self.at - 8):self.at + 3])
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def name(self):
        token = self.take()
        return token[1:-1] if token[0] == '"' else token

    def names(self, end):
        result = []
        while not self.accept(end):
            if self.peek() == ';':
                break
            result.append(self.name())
            self.accept(',')
        return result

    def type(self):
        dtype, shape = self.take(), []
        self.take('[')
        while not self.accept(']'):
            shape.append(int(self.take()))
            self.accept(',')
        return DTYPES[dtype], shape

    def attr(self):
        token = self.take()
        if token == '[':
            values = []
            while not self.accept(']'):
                values.append(number(self.take()))
                self.accept(',')
            return values
        if token[0] == '"':
            return token[1:-1]
        if token in ('true', 'false'):
            return token == 'true'
        return DTYPES[token] if token in DTYPES else number(token)

    def block(self):
        statements, fetches = [], []
        while self.peek() not in (None, ']'):
            if self.accept('\n'):
                continue
            if self.peek() == 'fetch':
                self.take()
                name = self.name()
                fetches.append((name, self.name() if self.accept('=') else name))
            else:
                statements.append(self.statement())
            while self.peek() not in (None, '\n', ']'):
                self.skip_note()
        return statements, fetches

    def skip_note(self):
        self.take()

    def statement(self):
        left = self.names('=')
        op = self.take()
        if op in ('input', 'parameter'):
            dtype, shape = self.type()
            return Statement(left, op, dtype=dtype, shape=shape)
        op = re.sub(r'\.v\d+$', '', op)
        self.take('(')
        inputs = self.names(')')
        if op == 'gradients':
            if self.accept(';'):
                seeds = self.names(')')
            else:
                inputs, seeds = inputs[:1], inputs[1:]
            assert self.take() == 'by'
            self.take('(')
            return Statement(left, op, inputs, seeds=seeds, wanted=self.names(')'))
        attrs, bodies, types = {}, [], []
        if self.accept('{'):
            while not self.accept('}'):
                key = self.name()
                self.take('=')
                attrs[key] = self.attr()
                self.accept(',')
        while self.accept('['):
            bodies.append(self.block())
            self.take(']')
        if self.accept(':'):
            types.append(self.type())
            while self.accept(','):
                types.append(self.type())
        statement = Statement(left, op, inputs, attrs, bodies)
        if types:
            statement.dtype, statement.shape = types[0]
        return statement


def number(token):
    return int(token) if re.fullmatch(r'-?\d+', token) else float(token)


def dims(attrs, a, key='axes'):
    return [d % a.dim() for d in attrs.get(key, [])] or list(range(a.dim()))


def total(a, attrs):
    # torch.sum() of no axis at all would sum over every axis.
    return a.clone() if a.dim() == 0 else torch.sum(a, dims(attrs, a), keepdim=attrs.get('keepdims', False), dtype=a.dtype)


def padded(a, attrs):
    pairs = [p for before, after in zip(reversed(attrs['before']), reversed(attrs['after'])) for p in (before, after)]
    return torch.nn.functional.pad(a, pairs)


def sliced(a, attrs):
    steps = attrs.get('step', [1] * a.dim())
    return a[tuple(slice(s, e, t) for s, e, t in zip(attrs['start'], attrs['end'], steps))]


def lstm_cell(x, h, c, w, u, b):
    if h.shape == c.shape:
        return torch.lstm_cell(x, (h, c), w.t(), u.t(), b, torch.zeros_like(b))
    i, f, g, o = (x @ w + h @ u + b).chunk(4, 1)  # h is a projection, which torch's cell does not take
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def matmul(a, b, attrs):
    return torch.matmul(a.mT if attrs.get('transpose_a') else a, b.mT if attrs.get('transpose_b') else b)


def promoted(function):
    return lambda *args: function(*args[:-1])


def first_of_a_tie(function, a, b):
    """torch.minimum and torch.maximum share the gradient of a tie, which ours gives to the first. Feeds have no ties, but a
    graph may compare a value with itself."""
    return torch.where(a == b, a, function(a, b))


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
    'slice': sliced, 'pad': padded,
    'matmul': matmul,
    'lstm_cell': lambda *args: lstm_cell(*args[:-1]),
}


def add_n(*args):
    result = args[0]
    for a in args[1:-1]:
        result = result + a
    return result.clone() if len(args) == 2 else result


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


TORCH.update({
    'conv2d': convolved, 'conv2d_bias': convolved_with_bias, 'conv2d_grad_input': conv_grad_input,
    'conv2d_grad_weight': conv_grad_weight, 'max_pool2d': max_pool, 'max_pool2d_pick': max_pick,
    'max_pool2d_grad': max_grad, 'avg_pool2d': avg_pool,
    'avg_pool2d_grad': lambda dy, attrs: transposed(lambda x: avg_pool(x, attrs), list(dy.shape[:2]) + attrs['size'],
                                                    dy, dy),
})
F = torch.nn.functional


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


for name in ('ceil cos erf erfc expm1 floor isfinite isinf isnan log10 log1p log2 reciprocal sign sin square tan trunc '
             'relu').split():
    TORCH[name] = one(getattr(torch, name))
for name, function in (('hardswish', F.hardswish), ('mish', F.mish), ('silu', F.silu), ('softsign', F.softsign),
                       ('log_sigmoid', F.logsigmoid), ('hard_sigmoid', F.hardsigmoid), ('round', torch.round),
                       ('stop_gradient', torch.detach)):
    TORCH[name] = one(function)
for name, function in (('greater', torch.gt), ('greater_equal', torch.ge), ('not_equal', torch.ne),
                       ('logical_xor', torch.logical_xor), ('remainder', torch.remainder), ('pow', torch.pow)):
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


TORCH.update({
    'pad': padded_any, 'slice': sliced_any,
    'transpose': lambda a, attrs: a.permute(attrs['permutation']).clone(),
    'flip': lambda a, attrs: torch.flip(a, attrs.get('axes') or list(range(a.dim()))),
    'gather': gathered, 'embedding': lambda t, ids, attrs: embedded(t, ids, attrs),
    'gather_elements': lambda a, i, attrs: torch.gather(a, attrs.get('axis', 0), i.long()),
    'sort': lambda a, attrs: tuple(torch.sort(a, dim=attrs.get('axis', -1), descending=attrs.get('descending', False),
                                              stable=True)),
    'argsort': lambda a, attrs: torch.sort(a, dim=attrs.get('axis', -1), descending=attrs.get('descending', False),
                                           stable=True)[1],
    'topk': lambda a, attrs: tuple(torch.topk(a, attrs['k'], attrs.get('axis', -1), attrs.get('largest', True))),
    'squeeze': lambda a, attrs: a.reshape([n for i, n in enumerate(a.shape) if n != 1 or attrs.get('axes') and
                                           i not in [d % a.dim() for d in attrs['axes']]]),
    'unsqueeze': lambda a, attrs: unsqueezed(a, attrs['axes']),
    'print': lambda a, _: a.clone(), 'barrier': lambda *args: [a.clone() for a in args[:-1]],
    # It jumps, so it has the gradient 0 here, and none in PyTorch.
    'floor_divide': lambda a, b, _: torch.floor_divide(a.detach(), b.detach()),
    'stack': lambda *args: torch.stack(args[:-1], args[-1].get('axis', 0)),
    'unstack': lambda a, attrs: torch.unbind(a, attrs.get('axis', 0)),
    'crop': lambda a, attrs: cropped(a, attrs),
    'tile': lambda a, attrs: torch.tile(a, attrs['times']),
    'roll': lambda a, attrs: torch.roll(a, attrs['shift'], attrs.get('axis', 0)),
    'repeat': lambda a, attrs: torch.repeat_interleave(a, attrs['times'], attrs.get('axis', 0)),
    'swap_axes': lambda a, attrs: a.transpose(attrs.get('first', -2), attrs.get('second', -1)).clone(),
    'flatten': lambda a, attrs: torch.flatten(a, attrs.get('first', 0), attrs.get('last', -1)).clone(),
    'split': lambda a, attrs: torch.split(a, attrs['sizes'], attrs.get('axis', 0)) if attrs.get('sizes') else
    torch.split(a, a.shape[attrs.get('axis', 0)] // attrs.get('parts', 1), attrs.get('axis', 0)),
    'scatter_add': lambda i, u, attrs: scattered(i, u, attrs),
    'embedding_grad': lambda i, g, attrs: scattered(i, g * (i != attrs['padding']).reshape(
        i.shape + (1,) * (g.dim() - i.dim())), attrs),
    'scatter_add_elements': lambda i, u, attrs: torch.zeros(
        [attrs['extent'] if d == attrs.get('axis', 0) % u.dim() else n for d, n in enumerate(u.shape)],
        dtype=u.dtype).scatter_add(attrs.get('axis', 0), i.long(), u),
    'cumsum': lambda a, attrs: cumulative(a, attrs), 'cumprod': lambda a, attrs: cumulative_product(a, attrs),
    'prod_others': lambda a, attrs: others_product(a, attrs), 'one_hot': lambda ids, attrs: one_hot(ids, attrs),
    'sequence_mask': lambda lengths, attrs: torch.arange(attrs['max_length']) < lengths.unsqueeze(-1),
    'full_like': lambda a, attrs: torch.full_like(a, attrs['value'], requires_grad=False),
    'shape': lambda a, _: torch.tensor(list(a.shape), dtype=torch.int64),
})


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


TORCH.update(COMPOSED)
TORCH['add_n'] = add_n
TORCH['concat'] = lambda *args: torch.cat(args[:-1], args[-1]['axis'])


def run_scan(statement, values):
    attrs = statement.attrs
    carries, sequences, length = attrs['carries'], attrs['sequences'], attrs['length']
    body, fetches = statement.bodies[0]
    inside = [s.left[0] for s in body if s.op == 'input']
    state, outputs = list(values[:carries]), []

    def step(elements):
        env = dict(zip(inside, state + elements + list(values[carries + sequences:])))
        run_block(body, env)
        return [env[name] for _, name in fetches]

    for t in (reversed(range(length)) if attrs.get('reverse') else range(length)):
        made = step([v[t] for v in values[carries:carries + sequences]])
        state = made[:carries]
        outputs.append(made[carries:])
    if attrs.get('reverse'):
        outputs.reverse()
    if not outputs:  # one step says which types would have been stacked
        made = step([torch.zeros(v.shape[1:], dtype=v.dtype) for v in values[carries:carries + sequences]])
        # Results of no steps depend on nothing, but gradients by what is made of them are asked for.
        return [s.clone() for s in state] + [torch.zeros([0, *o.shape], dtype=o.dtype, requires_grad=o.is_floating_point())
                                             for o in made[carries:]]
    # The last carries are values of their own, apart from what was stacked.
    return [s.clone() for s in state] + [torch.stack(column) for column in zip(*outputs)]


def run_block(statements, env):
    known = {id(v) for v in env.values()}
    for s in statements:
        if s.op in ('input', 'parameter'):
            continue
        if s.op == 'gradients':
            outputs = [env[n] for n in s.inputs]
            seeds = [env[n] for n in s.seeds] if s.seeds else [torch.ones_like(o) for o in outputs]
            wanted = [env[n] for n in s.wanted]
            kept = [(o, g) for o, g in zip(outputs, seeds) if o.requires_grad]
            made = [None] * len(wanted)
            used = [i for i, w in enumerate(wanted) if w.requires_grad]
            if kept and used:
                parts = torch.autograd.grad([o for o, _ in kept], [wanted[i] for i in used], [g for _, g in kept],
                                            allow_unused=True, create_graph=True)
                for i, part in zip(used, parts):
                    made[i] = part
            for name, w, d in zip(s.left, wanted, made):
                env[name] = torch.zeros_like(w) if d is None else d
                known.add(id(env[name]))
            continue
        values = [env[n] for n in s.inputs]
        if s.op == 'full':
            value = torch.full(s.attrs.get('shape', []), s.attrs['value'], dtype=s.attrs.get('dtype', torch.float32))
            # Or what is computed from constants alone had no gradient to ask for.
            results = [value.requires_grad_() if value.is_floating_point() else value]
        elif s.op == 'constant':
            dtype = s.attrs.get('dtype', torch.float32)
            value = torch.tensor(s.attrs['values'], dtype=torch.float64).reshape(s.attrs.get('shape', [])).to(dtype)
            results = [value.requires_grad_() if value.is_floating_point() else value]
        elif s.op == 'iota':
            value = torch.full(s.attrs['shape'], s.attrs.get('start', 0), dtype=s.attrs.get('dtype', torch.int64))
            for axis, stride in enumerate(s.attrs['strides']):
                steps = torch.arange(s.attrs['shape'][axis], dtype=value.dtype) * stride
                value = value + steps.reshape([-1 if i == axis else 1 for i in range(value.dim())])
            results = [value]
        elif s.op == 'scan':
            results = run_scan(s, values)
        elif s.op in TORCH:
            results = TORCH[s.op](*values, s.attrs)
            results = list(results) if isinstance(results, (tuple, list)) else [results]
        else:
            raise Missing(s.op)
        for name, result in zip(s.left, results):
            # Here every value is one of its own; what PyTorch hands through would share its gradient.
            env[name] = result.clone() if id(result) in known else result
            known.add(id(env[name]))


def run(text, take):
    """The fetches of a graph text in order; take(count) gives the next numbers of the feeds."""
    statements, fetches = Parser(text).block()
    env = {}
    for s in statements:
        if s.op in ('input', 'parameter'):
            value = torch.tensor(take(math.prod(s.shape)), dtype=torch.float64).reshape(s.shape).to(s.dtype)
            env[s.left[0]] = value.requires_grad_() if value.is_floating_point() else value
    run_block(statements, env)
    return [(name, env[source].detach()) for name, source in fetches]
