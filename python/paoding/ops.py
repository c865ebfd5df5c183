# SPDX-License-Identifier: Apache-2.0
# Written by `paoding ops --python`; do not edit.
"""Every op that takes values, with its inputs and attributes; a number or array beside a Value becomes a constant."""

from __future__ import annotations

from collections.abc import Sequence

from ._paoding import DType, Value, call_all, call_one
from ._types import Ints, ValueLike

__all__ = [
    'abs',
    'acos',
    'acosh',
    'add',
    'add_n',
    'all',
    'all_gather',
    'all_reduce',
    'any',
    'argmax',
    'argmin',
    'argsort',
    'asin',
    'asinh',
    'atan',
    'atan2',
    'atanh',
    'attention',
    'attention_grad',
    'avg_pool2d_grad',
    'binary_cross_entropy_with_logits',
    'bitwise_and',
    'bitwise_not',
    'bitwise_or',
    'bitwise_xor',
    'broadcast',
    'cast',
    'ceil',
    'check_indices',
    'clamp',
    'concat',
    'conv2d_add',
    'conv2d_bias',
    'conv2d_grad_input',
    'conv2d_grad_weight',
    'conv2d_grad_weight_wide',
    'conv2d_pool',
    'conv2d_pool_grad_input',
    'conv2d_pool_grad_weight',
    'cos',
    'cosh',
    'crop',
    'cumprod',
    'cumsum',
    'div',
    'dynamic_slice',
    'dynamic_update_slice',
    'elu',
    'embedding',
    'embedding_grad',
    'equal',
    'erf',
    'erfc',
    'exp',
    'expand',
    'expm1',
    'flatten',
    'flip',
    'floor',
    'floor_divide',
    'fmod',
    'full_like',
    'gather',
    'gather_elements',
    'gelu',
    'greater',
    'greater_equal',
    'gru_cell',
    'gru_recurrence',
    'gru_recurrence_grad',
    'hard_sigmoid',
    'hardswish',
    'hardtanh',
    'huber_loss',
    'is_rank',
    'isfinite',
    'isinf',
    'isnan',
    'l1_loss',
    'leaky_relu',
    'lerp',
    'less',
    'less_equal',
    'log',
    'log10',
    'log1p',
    'log2',
    'log_sigmoid',
    'log_softmax',
    'logical_and',
    'logical_not',
    'logical_or',
    'logical_xor',
    'logsumexp',
    'lstm_cell',
    'lstm_recurrence',
    'lstm_recurrence_grad',
    'matmul',
    'matmul_packed',
    'matmul_wide',
    'max',
    'max_pool2d_grad',
    'max_pool2d_pick',
    'maximum',
    'mean',
    'min',
    'minimum',
    'mish',
    'mse_loss',
    'mul',
    'neg',
    'not_equal',
    'one_hot',
    'pack_weights',
    'pad',
    'prod',
    'prod_others',
    'random_bits',
    'reciprocal',
    'reduce_scatter',
    'relu',
    'remainder',
    'repeat',
    'reshape',
    'rnn_cell',
    'rnn_recurrence',
    'rnn_recurrence_grad',
    'roll',
    'rotary_embedding',
    'round',
    'rsqrt',
    'scatter_add_elements',
    'scatter_add_sorted',
    'select',
    'sequence_mask',
    'shape',
    'sigmoid',
    'sign',
    'silu',
    'sin',
    'sinh',
    'sinusoidal_positions',
    'slice',
    'softmax',
    'softplus',
    'softsign',
    'sort',
    'split',
    'sqrt',
    'square',
    'squeeze',
    'stack',
    'stop_gradient',
    'store_as',
    'sub',
    'sum',
    'swap_axes',
    'tan',
    'tanh',
    'tile',
    'topk',
    'trunc',
    'unsqueeze',
    'unstack',
    'var',
]


def abs(a: ValueLike) -> Value:
    """|a|."""
    return call_one('abs', (a,), {})


def acos(a: ValueLike) -> Value:
    """arc cosine of a, in radians."""
    return call_one('acos', (a,), {})


def acosh(a: ValueLike) -> Value:
    """inverse hyperbolic cosine of a."""
    return call_one('acosh', (a,), {})


def add(a: ValueLike, b: ValueLike) -> Value:
    """a + b."""
    return call_one('add', (a, b), {})


def add_n(a: Sequence[ValueLike]) -> Value:
    """the sum of all inputs."""
    return call_one('add_n', (*a,), {})


def all(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """whether all elements are true, or not 0."""
    return call_one('all', (a,), {'axes': axis, 'keepdims': keepdims})


def all_gather(x: ValueLike, ranks: int) -> Value:
    """the ranks' x along axis 0, in the order of the ranks."""
    return call_one('all_gather', (x,), {'ranks': ranks})


def all_reduce(x: ValueLike, reduction: str = 'sum') -> Value:
    """the sum of the ranks' x, or their mean, max or min, on every rank."""
    return call_one('all_reduce', (x,), {'reduction': reduction})


def any(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """whether any element is true, or not 0."""
    return call_one('any', (a,), {'axes': axis, 'keepdims': keepdims})


def argmax(a: ValueLike, axis: int, keepdims: bool = False) -> Value:
    """index of the largest element along axis, the first of several."""
    return call_one('argmax', (a,), {'axis': axis, 'keepdims': keepdims})


def argmin(a: ValueLike, axis: int, keepdims: bool = False) -> Value:
    """index of the smallest element along axis, the first of several."""
    return call_one('argmin', (a,), {'axis': axis, 'keepdims': keepdims})


def argsort(a: ValueLike, axis: int = -1, descending: bool = False) -> Value:
    """where the elements of a in order along axis come from."""
    return call_one('argsort', (a,), {'axis': axis, 'descending': descending})


def asin(a: ValueLike) -> Value:
    """arc sine of a, in radians."""
    return call_one('asin', (a,), {})


def asinh(a: ValueLike) -> Value:
    """inverse hyperbolic sine of a."""
    return call_one('asinh', (a,), {})


def atan(a: ValueLike) -> Value:
    """arc tangent of a, in radians."""
    return call_one('atan', (a,), {})


def atan2(a: ValueLike, b: ValueLike) -> Value:
    """the angle of the point (b, a), from -pi to pi."""
    return call_one('atan2', (a, b), {})


def atanh(a: ValueLike) -> Value:
    """inverse hyperbolic tangent of a."""
    return call_one('atanh', (a,), {})


def attention(q: ValueLike, k: ValueLike, v: ValueLike, bias: ValueLike | None = None, mask: ValueLike | None = None, lengths: ValueLike | None = None, slopes: ValueLike | None = None, first: ValueLike | None = None, run: ValueLike | None = None, seed: ValueLike | None = None, *, scale: float, left: int = -1, right: int = -1, bottom_right: bool = False, has_bias: bool = False, has_mask: bool = False, has_lengths: bool = False, has_slopes: bool = False, dropout: float = 0, stream: int = 0) -> tuple[Value, ...]:
    """softmax(scale q k^T + bias) v over keys that are seen, and the logarithms of the softmax's sums."""
    return call_all('attention', (q, k, v, bias, mask, lengths, slopes, first, run, seed), {'scale': scale, 'left': left, 'right': right, 'bottom_right': bottom_right, 'bias': has_bias, 'mask': has_mask, 'lengths': has_lengths, 'slopes': has_slopes, 'dropout': dropout, 'stream': stream})


def attention_grad(q: ValueLike, k: ValueLike, v: ValueLike, result: ValueLike, dresult: ValueLike, lse: ValueLike, dlse: ValueLike | None = None, bias: ValueLike | None = None, mask: ValueLike | None = None, lengths: ValueLike | None = None, slopes: ValueLike | None = None, first: ValueLike | None = None, run: ValueLike | None = None, seed: ValueLike | None = None, *, scale: float, left: int = -1, right: int = -1, bottom_right: bool = False, has_bias: bool = False, has_mask: bool = False, has_lengths: bool = False, has_slopes: bool = False, dropout: float = 0, stream: int = 0, has_dlse: bool = False) -> tuple[Value, ...]:
    """gradients of attention for q, k, v and the bias where there is one."""
    return call_all('attention_grad', (q, k, v, result, dresult, lse, dlse, bias, mask, lengths, slopes, first, run, seed), {'scale': scale, 'left': left, 'right': right, 'bottom_right': bottom_right, 'bias': has_bias, 'mask': has_mask, 'lengths': has_lengths, 'slopes': has_slopes, 'dropout': dropout, 'stream': stream, 'dlse': has_dlse})


def avg_pool2d_grad(dy: ValueLike, kernel: Ints, size: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), count_padding: bool = True) -> Value:
    """dy spread evenly over every window."""
    return call_one('avg_pool2d_grad', (dy,), {'kernel': kernel, 'stride': stride, 'padding': padding, 'dilation': dilation, 'count_padding': count_padding, 'size': size})


def binary_cross_entropy_with_logits(prediction: ValueLike, target: ValueLike, reduction: str = 'mean') -> Value:
    """-target log(s) - (1 - target) log(1 - s) of s = sigmoid(logits), reduced."""
    return call_one('binary_cross_entropy_with_logits', (prediction, target), {'reduction': reduction})


def bitwise_and(a: ValueLike, b: ValueLike) -> Value:
    """bits that are set in both a and b, integers."""
    return call_one('bitwise_and', (a, b), {})


def bitwise_not(a: ValueLike) -> Value:
    """bits that are not set in a, an integer."""
    return call_one('bitwise_not', (a,), {})


def bitwise_or(a: ValueLike, b: ValueLike) -> Value:
    """bits that are set in a or b, integers."""
    return call_one('bitwise_or', (a, b), {})


def bitwise_xor(a: ValueLike, b: ValueLike) -> Value:
    """bits that are set in a or b, not in both, integers."""
    return call_one('bitwise_xor', (a, b), {})


def broadcast(x: ValueLike, root: int = 0) -> Value:
    """the x of rank root, on every rank."""
    return call_one('broadcast', (x,), {'root': root})


def cast(a: ValueLike, dtype: DType | str) -> Value:
    """a converted to dtype."""
    return call_one('cast', (a,), {'dtype': dtype})


def ceil(a: ValueLike) -> Value:
    """the least integer >= a."""
    return call_one('ceil', (a,), {})


def check_indices(indices: ValueLike, most: int, may_be_negative: bool = False, on_gpu: bool = True, what: str = 'indices') -> Value:
    """indices as they are; a run that has one above most, or below 0, is an error."""
    return call_one('check_indices', (indices,), {'most': most, 'may_be_negative': may_be_negative, 'on_gpu': on_gpu, 'what': what})


def clamp(a: ValueLike, min: float = float('-inf'), max: float = float('inf')) -> Value:
    """a, but at least min and at most max."""
    return call_one('clamp', (a,), {'min': min, 'max': max})


def concat(a: Sequence[ValueLike], axis: int) -> Value:
    """the inputs one after the other along axis."""
    return call_one('concat', (*a,), {'axis': axis})


def conv2d_add(x: ValueLike, w: ValueLike, bias: ValueLike, added: ValueLike, activation: str = 'none', stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """activation(conv2d_bias(x, w, bias) + added) in one kernel; add_to_convolutions makes it."""
    return call_one('conv2d_add', (x, w, bias, added), {'activation': activation, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_bias(x: ValueLike, w: ValueLike, bias: ValueLike, activation: str = 'none', stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """activation(conv2d(x, w) + bias) in one kernel; fuse_convolutions makes it."""
    return call_one('conv2d_bias', (x, w, bias), {'activation': activation, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_grad_input(dy: ValueLike, w: ValueLike, size: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """the gradient of conv2d for its images."""
    return call_one('conv2d_grad_input', (dy, w), {'size': size, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_grad_weight(x: ValueLike, dy: ValueLike, kernel: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """the gradient of conv2d for its kernels."""
    return call_one('conv2d_grad_weight', (x, dy), {'kernel': kernel, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_grad_weight_wide(x: ValueLike, dy: ValueLike, kernel: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """conv2d_grad_weight of f16 or bf16 whose result is f32, as the sums are; mixed_precision makes it."""
    return call_one('conv2d_grad_weight_wide', (x, dy), {'kernel': kernel, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_pool(x: ValueLike, w: ValueLike, bias: ValueLike, activation: str = 'none', pool: Ints = (2, 2), stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> tuple[Value, ...]:
    """max_pool2d(conv2d_bias(x, w, bias)) of windows side by side, and its index, 255 where a relu's gradient is 0; pool_convolutions makes it."""
    return call_all('conv2d_pool', (x, w, bias), {'activation': activation, 'pool': pool, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_pool_grad_input(dy: ValueLike, index: ValueLike, w: ValueLike, size: Ints, pool: Ints = (2, 2), stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> Value:
    """the gradient of conv2d_pool for its images, of where index says; pool_convolutions makes it."""
    return call_one('conv2d_pool_grad_input', (dy, index, w), {'size': size, 'pool': pool, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def conv2d_pool_grad_weight(x: ValueLike, dy: ValueLike, index: ValueLike, kernel: Ints, wide: bool = False, pool: Ints = (2, 2), stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1), groups: int = 1) -> tuple[Value, ...]:
    """the gradients of conv2d_pool for its kernels and its bias, of where index says; pool_convolutions makes it."""
    return call_all('conv2d_pool_grad_weight', (x, dy, index), {'kernel': kernel, 'wide': wide, 'pool': pool, 'stride': stride, 'padding': padding, 'dilation': dilation, 'groups': groups})


def cos(a: ValueLike) -> Value:
    """cosine of a, in radians."""
    return call_one('cos', (a,), {})


def cosh(a: ValueLike) -> Value:
    """hyperbolic cosine of a."""
    return call_one('cosh', (a,), {})


def crop(a: ValueLike, before: Ints, after: Ints) -> Value:
    """a without the first `before` and the last `after` elements of every axis."""
    return call_one('crop', (a,), {'before': before, 'after': after})


def cumprod(a: ValueLike, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    """running products along axis."""
    return call_one('cumprod', (a,), {'axis': axis, 'exclusive': exclusive, 'reverse': reverse})


def cumsum(a: ValueLike, axis: int = 0, exclusive: bool = False, reverse: bool = False) -> Value:
    """running sums along axis."""
    return call_one('cumsum', (a,), {'axis': axis, 'exclusive': exclusive, 'reverse': reverse})


def div(a: ValueLike, b: ValueLike) -> Value:
    """a / b."""
    return call_one('div', (a, b), {})


def dynamic_slice(a: ValueLike, start: ValueLike, sizes: Ints, axis: Ints | None = None) -> Value:
    """`sizes` elements from start on, which is moved to where they fit."""
    return call_one('dynamic_slice', (a, start), {'sizes': sizes, 'axes': axis})


def dynamic_update_slice(a: ValueLike, update: ValueLike, start: ValueLike, axis: Ints | None = None) -> Value:
    """a with update in place of the slice at start."""
    return call_one('dynamic_update_slice', (a, update, start), {'axes': axis})


def elu(a: ValueLike, alpha: float = 1) -> Value:
    """a where it is above 0, else alpha * (e^a - 1)."""
    return call_one('elu', (a,), {'alpha': alpha})


def embedding(table: ValueLike, ids: ValueLike, padding: int = -1) -> Value:
    """rows of table by number; the row `padding` gets no gradient."""
    return call_one('embedding', (table, ids), {'padding': padding})


def embedding_grad(ids: ValueLike, grad: ValueLike, padding: int, extent: int) -> Value:
    """the gradient of embedding's table: scatter_add along the first axis of what does not belong to the padding."""
    return call_one('embedding_grad', (ids, grad), {'padding': padding, 'extent': extent})


def equal(a: ValueLike, b: ValueLike) -> Value:
    """a == b, a bool."""
    return call_one('equal', (a, b), {})


def erf(a: ValueLike) -> Value:
    """the error function of a."""
    return call_one('erf', (a,), {})


def erfc(a: ValueLike) -> Value:
    """1 - erf(a), precise for large a."""
    return call_one('erfc', (a,), {})


def exp(a: ValueLike) -> Value:
    """e^a."""
    return call_one('exp', (a,), {})


def expand(a: ValueLike, shape: Ints) -> Value:
    """a stretched to shape by broadcasting."""
    return call_one('expand', (a,), {'shape': shape})


def expm1(a: ValueLike) -> Value:
    """e^a - 1, precise near 0."""
    return call_one('expm1', (a,), {})


def flatten(a: ValueLike, first: int = 0, last: int = -1) -> Value:
    """the axes from first to last as one."""
    return call_one('flatten', (a,), {'first': first, 'last': last})


def flip(a: ValueLike, axis: Ints | None = None) -> Value:
    """a with the order along axes reversed."""
    return call_one('flip', (a,), {'axes': axis})


def floor(a: ValueLike) -> Value:
    """the greatest integer <= a."""
    return call_one('floor', (a,), {})


def floor_divide(a: ValueLike, b: ValueLike) -> Value:
    """a / b rounded down."""
    return call_one('floor_divide', (a, b), {})


def fmod(a: ValueLike, b: ValueLike) -> Value:
    """a - b * trunc(a / b), with the sign of a."""
    return call_one('fmod', (a, b), {})


def full_like(a: ValueLike, value: float) -> Value:
    """the shape and dtype of a, filled with value."""
    return call_one('full_like', (a,), {'value': value})


def gather(a: ValueLike, indices: ValueLike, axis: int = 0) -> Value:
    """a's elements at indices along axis: a.shape[:axis] + indices.shape + a.shape[axis + 1:]."""
    return call_one('gather', (a, indices), {'axis': axis})


def gather_elements(a: ValueLike, indices: ValueLike, axis: int = 0) -> Value:
    """one element per index: a[p, indices[p, i, q], q], the middle one being axis."""
    return call_one('gather_elements', (a, indices), {'axis': axis})


def gelu(a: ValueLike, approximate: str = 'none') -> Value:
    """a * P(N(0, 1) <= a)."""
    return call_one('gelu', (a,), {'approximate': approximate})


def greater(a: ValueLike, b: ValueLike) -> Value:
    """a > b, a bool."""
    return call_one('greater', (a, b), {})


def greater_equal(a: ValueLike, b: ValueLike) -> Value:
    """a >= b, a bool."""
    return call_one('greater_equal', (a, b), {})


def gru_cell(x: ValueLike, h: ValueLike, w: ValueLike, u: ValueLike, b: ValueLike, reset_after: bool = True) -> Value:
    """one GRU step: h' = (1 - z) n + z h; gates r, z, n of x w + h u + b."""
    return call_one('gru_cell', (x, h, w, u, b), {'reset_after': reset_after})


def gru_recurrence(xw: ValueLike, u: ValueLike, bm: ValueLike, h0: ValueLike, lengths: ValueLike | None = None, bias: ValueLike | None = None, *, reverse: bool = False, has_bias: bool = False) -> tuple[Value, ...]:
    """a GRU over time: gates r, z of xw_t + h u, n = tanh(xw_n + r m), m = h u_n + bm; h' = n + z (h - n)."""
    return call_all('gru_recurrence', (xw, u, bm, h0, lengths, bias), {'reverse': reverse, 'bias': has_bias})


def gru_recurrence_grad(u: ValueLike, saved: ValueLike, states: ValueLike, dstates: ValueLike | None = None, dlast_h: ValueLike | None = None, lengths: ValueLike | None = None, *, has_states: bool = False, last_h: bool = False, reverse: bool = False, sums: bool = False, sums_dtype: DType | str = DType.f32) -> tuple[Value, ...]:
    """gradients of gru_recurrence: for xw, h u and h0, from those of its results that are given."""
    return call_all('gru_recurrence_grad', (u, saved, states, dstates, dlast_h, lengths), {'states': has_states, 'last_h': last_h, 'reverse': reverse, 'sums': sums, 'sums_dtype': sums_dtype})


def hard_sigmoid(a: ValueLike) -> Value:
    """a / 6 + 1/2, kept in [0, 1]."""
    return call_one('hard_sigmoid', (a,), {})


def hardswish(a: ValueLike) -> Value:
    """a * hard_sigmoid(a)."""
    return call_one('hardswish', (a,), {})


def hardtanh(a: ValueLike, min: float = -1, max: float = 1) -> Value:
    """a, but at least min and at most max; the gradient at both is 0."""
    return call_one('hardtanh', (a,), {'min': min, 'max': max})


def huber_loss(prediction: ValueLike, target: ValueLike, reduction: str = 'mean', delta: float = 1) -> Value:
    """d^2 / 2 for |d| < delta, else delta (|d| - delta / 2), of prediction - target, reduced."""
    return call_one('huber_loss', (prediction, target), {'reduction': reduction, 'delta': delta})


def is_rank(number: int) -> Value:
    """whether this is the rank of that number."""
    return call_one('is_rank', (), {'number': number})


def isfinite(a: ValueLike) -> Value:
    """whether a is neither NaN nor infinite, a bool."""
    return call_one('isfinite', (a,), {})


def isinf(a: ValueLike) -> Value:
    """whether a is infinite, a bool."""
    return call_one('isinf', (a,), {})


def isnan(a: ValueLike) -> Value:
    """whether a is NaN, a bool."""
    return call_one('isnan', (a,), {})


def l1_loss(prediction: ValueLike, target: ValueLike, reduction: str = 'mean') -> Value:
    """|prediction - target|, reduced."""
    return call_one('l1_loss', (prediction, target), {'reduction': reduction})


def leaky_relu(a: ValueLike, slope: float = 0.01) -> Value:
    """a where it is above 0, else slope * a."""
    return call_one('leaky_relu', (a,), {'slope': slope})


def lerp(a: ValueLike, b: ValueLike, t: ValueLike) -> Value:
    """a + t * (b - a), exactly b at t = 1."""
    return call_one('lerp', (a, b, t), {})


def less(a: ValueLike, b: ValueLike) -> Value:
    """a < b, a bool."""
    return call_one('less', (a, b), {})


def less_equal(a: ValueLike, b: ValueLike) -> Value:
    """a <= b, a bool."""
    return call_one('less_equal', (a, b), {})


def log(a: ValueLike) -> Value:
    """natural logarithm of a."""
    return call_one('log', (a,), {})


def log10(a: ValueLike) -> Value:
    """logarithm of a to base 10."""
    return call_one('log10', (a,), {})


def log1p(a: ValueLike) -> Value:
    """log(1 + a), precise near 0."""
    return call_one('log1p', (a,), {})


def log2(a: ValueLike) -> Value:
    """logarithm of a to base 2."""
    return call_one('log2', (a,), {})


def log_sigmoid(a: ValueLike) -> Value:
    """log(sigmoid(a))."""
    return call_one('log_sigmoid', (a,), {})


def log_softmax(a: ValueLike, axis: int = -1) -> Value:
    """the logarithm of softmax along axis."""
    return call_one('log_softmax', (a,), {'axis': axis})


def logical_and(a: ValueLike, b: ValueLike) -> Value:
    """a and b, bools."""
    return call_one('logical_and', (a, b), {})


def logical_not(a: ValueLike) -> Value:
    """not a, a bool."""
    return call_one('logical_not', (a,), {})


def logical_or(a: ValueLike, b: ValueLike) -> Value:
    """a or b, bools."""
    return call_one('logical_or', (a, b), {})


def logical_xor(a: ValueLike, b: ValueLike) -> Value:
    """either a or b, bools."""
    return call_one('logical_xor', (a, b), {})


def logsumexp(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """log(sum(e^a)) over axes."""
    return call_one('logsumexp', (a,), {'axes': axis, 'keepdims': keepdims})


def lstm_cell(x: ValueLike, h: ValueLike, c: ValueLike, w: ValueLike, u: ValueLike, b: ValueLike) -> tuple[Value, ...]:
    """one LSTM step: h' = o tanh(c'), c' = f c + i g; gates i, f, g, o of x w + h u + b."""
    return call_all('lstm_cell', (x, h, c, w, u, b), {})


def lstm_recurrence(xw: ValueLike, u: ValueLike, h0: ValueLike, c0: ValueLike, lengths: ValueLike | None = None, bias: ValueLike | None = None, *, reverse: bool = False, has_bias: bool = False) -> tuple[Value, ...]:
    """an LSTM over time: gates i, f, g, o of xw_t + h u; c' = f c + i g, h' = o tanh(c')."""
    return call_all('lstm_recurrence', (xw, u, h0, c0, lengths, bias), {'reverse': reverse, 'bias': has_bias})


def lstm_recurrence_grad(u: ValueLike, gates: ValueLike, cells: ValueLike, dstates: ValueLike | None = None, dlast_h: ValueLike | None = None, dlast_c: ValueLike | None = None, lengths: ValueLike | None = None, *, states: bool = False, last_h: bool = False, last_c: bool = False, reverse: bool = False, sums: bool = False, sums_dtype: DType | str = DType.f32) -> tuple[Value, ...]:
    """gradients of lstm_recurrence: for xw, h0 and c0, from those of its results that are given."""
    return call_all('lstm_recurrence_grad', (u, gates, cells, dstates, dlast_h, dlast_c, lengths), {'states': states, 'last_h': last_h, 'last_c': last_c, 'reverse': reverse, 'sums': sums, 'sums_dtype': sums_dtype})


def matmul(a: ValueLike, b: ValueLike, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """product of matrices in the last two axes, leading axes broadcast."""
    return call_one('matmul', (a, b), {'transpose_a': transpose_a, 'transpose_b': transpose_b})


def matmul_packed(a: ValueLike, packed: ValueLike, rows: int, columns: int) -> Value:
    """matmul of a and the b that pack_weights packed; the pass pack_weights makes it."""
    return call_one('matmul_packed', (a, packed), {'rows': rows, 'columns': columns})


def matmul_wide(a: ValueLike, b: ValueLike, transpose_a: bool = False, transpose_b: bool = False) -> Value:
    """matmul of f16 or bf16 whose result is f32, as the sums are; the pass mixed_precision makes it."""
    return call_one('matmul_wide', (a, b), {'transpose_a': transpose_a, 'transpose_b': transpose_b})


def max(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """the largest element over axes."""
    return call_one('max', (a,), {'axes': axis, 'keepdims': keepdims})


def max_pool2d_grad(dy: ValueLike, index: ValueLike, kernel: Ints, size: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1)) -> Value:
    """dy added where index says that the windows' largest elements are."""
    return call_one('max_pool2d_grad', (dy, index), {'kernel': kernel, 'stride': stride, 'padding': padding, 'dilation': dilation, 'size': size})


def max_pool2d_pick(x: ValueLike, index: ValueLike, kernel: Ints, stride: Ints = (1, 1), padding: Ints = (0, 0, 0, 0), dilation: Ints = (1, 1)) -> Value:
    """of every window of x the element that index names."""
    return call_one('max_pool2d_pick', (x, index), {'kernel': kernel, 'stride': stride, 'padding': padding, 'dilation': dilation})


def maximum(a: ValueLike, b: ValueLike) -> Value:
    """the larger of a and b."""
    return call_one('maximum', (a, b), {})


def mean(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """sum / count over axes."""
    return call_one('mean', (a,), {'axes': axis, 'keepdims': keepdims})


def min(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """the smallest element over axes."""
    return call_one('min', (a,), {'axes': axis, 'keepdims': keepdims})


def minimum(a: ValueLike, b: ValueLike) -> Value:
    """the smaller of a and b."""
    return call_one('minimum', (a, b), {})


def mish(a: ValueLike) -> Value:
    """a * tanh(softplus(a))."""
    return call_one('mish', (a,), {})


def mse_loss(prediction: ValueLike, target: ValueLike, reduction: str = 'mean') -> Value:
    """(prediction - target)^2, reduced."""
    return call_one('mse_loss', (prediction, target), {'reduction': reduction})


def mul(a: ValueLike, b: ValueLike) -> Value:
    """a * b."""
    return call_one('mul', (a, b), {})


def neg(a: ValueLike) -> Value:
    """-a."""
    return call_one('neg', (a,), {})


def not_equal(a: ValueLike, b: ValueLike) -> Value:
    """a != b, a bool."""
    return call_one('not_equal', (a, b), {})


def one_hot(ids: ValueLike, depth: int, axis: int = -1, dtype: DType | str = DType.f32, on: float = 1, off: float = 0) -> Value:
    """on where the position along a new axis is the id, else off."""
    return call_one('one_hot', (ids,), {'depth': depth, 'axis': axis, 'dtype': dtype, 'on': on, 'off': off})


def pack_weights(b: ValueLike, rows: int, elements: int, transpose: bool = False) -> Value:
    """b in the order in which products read it fastest, for matmul_packed; the pass pack_weights makes it."""
    return call_one('pack_weights', (b,), {'rows': rows, 'elements': elements, 'transpose': transpose})


def pad(a: ValueLike, before: Ints, after: Ints, value: float = 0, interior: Ints | None = None) -> Value:
    """value around a, before and after many along every axis, and between its elements."""
    return call_one('pad', (a,), {'before': before, 'after': after, 'value': value, 'interior': interior})


def prod(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """product over axes."""
    return call_one('prod', (a,), {'axes': axis, 'keepdims': keepdims})


def prod_others(a: ValueLike, axis: Ints | None = None) -> Value:
    """the product of all other elements over axes: prod's derivative."""
    return call_one('prod_others', (a,), {'axes': axis})


def random_bits(index: ValueLike, stream: ValueLike, seed: ValueLike) -> Value:
    """32 random bits as an i32, of i64 index, stream and seed."""
    return call_one('random_bits', (index, stream, seed), {})


def reciprocal(a: ValueLike) -> Value:
    """1 / a."""
    return call_one('reciprocal', (a,), {})


def reduce_scatter(x: ValueLike, ranks: int, reduction: str = 'sum') -> Value:
    """the rank's part, along axis 0, of the sum of the ranks' x, or of their mean, max or min."""
    return call_one('reduce_scatter', (x,), {'ranks': ranks, 'reduction': reduction})


def relu(a: ValueLike) -> Value:
    """a where it is above 0, else 0."""
    return call_one('relu', (a,), {})


def remainder(a: ValueLike, b: ValueLike) -> Value:
    """a - b * floor(a / b), with the sign of b."""
    return call_one('remainder', (a, b), {})


def repeat(a: ValueLike, times: int, axis: int = 0) -> Value:
    """every element along axis, `times` times in a row."""
    return call_one('repeat', (a,), {'times': times, 'axis': axis})


def reshape(a: ValueLike, shape: Ints) -> Value:
    """the same elements in the same order under another shape."""
    return call_one('reshape', (a,), {'shape': shape})


def rnn_cell(x: ValueLike, h: ValueLike, w: ValueLike, u: ValueLike, b: ValueLike, relu: bool = False) -> Value:
    """one step of the plain recurrence: h' = tanh(x w + h u + b), or relu of the sum."""
    return call_one('rnn_cell', (x, h, w, u, b), {'relu': relu})


def rnn_recurrence(xw: ValueLike, u: ValueLike, h0: ValueLike, lengths: ValueLike | None = None, bias: ValueLike | None = None, *, reverse: bool = False, relu: bool = False, has_bias: bool = False) -> tuple[Value, ...]:
    """the plain recurrence over time: h' = tanh(xw_t + h u), or relu of the sum."""
    return call_all('rnn_recurrence', (xw, u, h0, lengths, bias), {'reverse': reverse, 'relu': relu, 'bias': has_bias})


def rnn_recurrence_grad(u: ValueLike, states: ValueLike, dstates: ValueLike | None = None, dlast_h: ValueLike | None = None, lengths: ValueLike | None = None, *, has_states: bool = False, last_h: bool = False, reverse: bool = False, relu: bool = False, sums: bool = False, sums_dtype: DType | str = DType.f32) -> tuple[Value, ...]:
    """gradients of rnn_recurrence: for xw and h0, from those of its results that are given."""
    return call_all('rnn_recurrence_grad', (u, states, dstates, dlast_h, lengths), {'states': has_states, 'last_h': last_h, 'reverse': reverse, 'relu': relu, 'sums': sums, 'sums_dtype': sums_dtype})


def roll(a: ValueLike, shift: int, axis: int = 0) -> Value:
    """element i along axis moves to (i + shift) mod extent."""
    return call_one('roll', (a,), {'shift': shift, 'axis': axis})


def rotary_embedding(x: ValueLike, positions: ValueLike, base: float = 10000, interleaved: bool = False) -> Value:
    """pairs of elements of x turned by position base^(-2i / E)."""
    return call_one('rotary_embedding', (x, positions), {'base': base, 'interleaved': interleaved})


def round(a: ValueLike) -> Value:
    """the nearest integer, half to even."""
    return call_one('round', (a,), {})


def rsqrt(a: ValueLike) -> Value:
    """1 / sqrt(a)."""
    return call_one('rsqrt', (a,), {})


def scatter_add_elements(indices: ValueLike, updates: ValueLike, extent: int, axis: int = 0) -> Value:
    """the sum of updates at one index each along axis, 0 elsewhere."""
    return call_one('scatter_add_elements', (indices, updates), {'axis': axis, 'extent': extent})


def scatter_add_sorted(indices: ValueLike, sorted: ValueLike, places: ValueLike, updates: ValueLike, extent: int, axis: int = 0, padding: int = -1) -> Value:
    """scatter_add where the indices are there in ascending order too, each with its place among them."""
    return call_one('scatter_add_sorted', (indices, sorted, places, updates), {'axis': axis, 'extent': extent, 'padding': padding})


def select(condition: ValueLike, a: ValueLike, b: ValueLike) -> Value:
    """condition ? a : b."""
    return call_one('select', (condition, a, b), {})


def sequence_mask(lengths: ValueLike, max_length: int) -> Value:
    """whether a position along a new last axis is before the length."""
    return call_one('sequence_mask', (lengths,), {'max_length': max_length})


def shape(a: ValueLike) -> Value:
    """the extents of a as an i64 vector; a constant, since shapes are static."""
    return call_one('shape', (a,), {})


def sigmoid(a: ValueLike) -> Value:
    """1 / (1 + e^-a)."""
    return call_one('sigmoid', (a,), {})


def sign(a: ValueLike) -> Value:
    """-1, 0 or 1; NaN of NaN."""
    return call_one('sign', (a,), {})


def silu(a: ValueLike) -> Value:
    """a * sigmoid(a)."""
    return call_one('silu', (a,), {})


def sin(a: ValueLike) -> Value:
    """sine of a, in radians."""
    return call_one('sin', (a,), {})


def sinh(a: ValueLike) -> Value:
    """hyperbolic sine of a."""
    return call_one('sinh', (a,), {})


def sinusoidal_positions(positions: ValueLike, width: int, base: float = 10000, dtype: DType | str = DType.f32) -> Value:
    """sin and cos of position / base^(2i / width), in turn along a new axis."""
    return call_one('sinusoidal_positions', (positions,), {'width': width, 'base': base, 'dtype': dtype})


def slice(a: ValueLike, start: Ints, end: Ints, step: Ints | None = None) -> Value:
    """elements start, start + step, .. before end along every axis."""
    return call_one('slice', (a,), {'start': start, 'end': end, 'step': step})


def softmax(a: ValueLike, axis: int = -1) -> Value:
    """e^a over its sum along axis."""
    return call_one('softmax', (a,), {'axis': axis})


def softplus(a: ValueLike) -> Value:
    """log(1 + e^a)."""
    return call_one('softplus', (a,), {})


def softsign(a: ValueLike) -> Value:
    """a / (1 + |a|)."""
    return call_one('softsign', (a,), {})


def sort(a: ValueLike, axis: int = -1, descending: bool = False) -> tuple[Value, ...]:
    """a in order along axis, and where each element came from; stable, NaN counts as greatest."""
    return call_all('sort', (a,), {'axis': axis, 'descending': descending})


def split(a: ValueLike, sizes: Ints | None = None, parts: int = 1, axis: int = 0) -> tuple[Value, ...]:
    """parts along axis, of extents `sizes` or all the same."""
    return call_all('split', (a,), {'sizes': sizes, 'parts': parts, 'axis': axis})


def sqrt(a: ValueLike) -> Value:
    """square root of a."""
    return call_one('sqrt', (a,), {})


def square(a: ValueLike) -> Value:
    """a * a."""
    return call_one('square', (a,), {})


def squeeze(a: ValueLike, axis: Ints | None = None) -> Value:
    """a without axes of extent 1."""
    return call_one('squeeze', (a,), {'axes': axis})


def stack(a: Sequence[ValueLike], axis: int = 0) -> Value:
    """the inputs, of one shape, along a new axis."""
    return call_one('stack', (*a,), {'axis': axis})


def stop_gradient(a: ValueLike) -> Value:
    """a, whose gradient is none."""
    return call_one('stop_gradient', (a,), {})


def store_as(a: ValueLike, dtype: DType | str) -> Value:
    """a, of which memory has dtype: rounded where it is stored, not within a kernel."""
    return call_one('store_as', (a,), {'dtype': dtype})


def sub(a: ValueLike, b: ValueLike) -> Value:
    """a - b."""
    return call_one('sub', (a, b), {})


def sum(a: ValueLike, axis: Ints | None = None, keepdims: bool = False) -> Value:
    """sum over axes."""
    return call_one('sum', (a,), {'axes': axis, 'keepdims': keepdims})


def swap_axes(a: ValueLike, first: int = -2, second: int = -1) -> Value:
    """a with two axes exchanged."""
    return call_one('swap_axes', (a,), {'first': first, 'second': second})


def tan(a: ValueLike) -> Value:
    """tangent of a, in radians."""
    return call_one('tan', (a,), {})


def tanh(a: ValueLike) -> Value:
    """hyperbolic tangent of a."""
    return call_one('tanh', (a,), {})


def tile(a: ValueLike, times: Ints) -> Value:
    """times[i] copies of a one after the other along axis i."""
    return call_one('tile', (a,), {'times': times})


def topk(a: ValueLike, k: int, axis: int = -1, largest: bool = True) -> tuple[Value, ...]:
    """the k greatest (or least) elements along axis in order, and where they came from."""
    return call_all('topk', (a,), {'k': k, 'axis': axis, 'largest': largest})


def trunc(a: ValueLike) -> Value:
    """a without its fraction."""
    return call_one('trunc', (a,), {})


def unsqueeze(a: ValueLike, axis: Ints) -> Value:
    """a with axes of extent 1 at `axes` of the result."""
    return call_one('unsqueeze', (a,), {'axes': axis})


def unstack(a: ValueLike, axis: int = 0) -> tuple[Value, ...]:
    """every element along axis, without the axis."""
    return call_all('unstack', (a,), {'axis': axis})


def var(a: ValueLike, axis: Ints | None = None, keepdims: bool = False, correction: int = 0) -> Value:
    """sum((a - mean(a))^2) / (count - correction) over axes."""
    return call_one('var', (a,), {'axes': axis, 'keepdims': keepdims, 'correction': correction})
