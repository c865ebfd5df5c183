# SPDX-License-Identifier: Apache-2.0
"""Connectionist temporal classification (Graves et al. 2006)."""

from __future__ import annotations

from . import ops
from ._paoding import DType, Value, arange, full
from .control import scan
from .errors import ArgumentError, DtypeError, ShapeError

__all__ = ['ctc_loss']

_NEVER = -1e30  # the logarithm of a probability of 0: finite, so that no gradient is NaN


def ctc_loss(
    log_probabilities: Value,
    targets: Value,
    input_lengths: Value,
    target_lengths: Value,
    blank: int = 0,
    reduction: str = 'mean',
    zero_infinity: bool = False,
) -> Value:
    """-log of the probability of all paths of steps that give a row's target, when repeats are merged and blanks dropped.

    log_probabilities: [T, B, classes], as log_softmax gives them. targets: [B, S], integers; those from target_lengths
    [B] on do not count, nor do steps from input_lengths [B] on. `reduction`: mean (each row's loss over its target's
    length, at least 1, then their mean), sum, or none, [B]. A target that is too long for its steps has an infinite loss,
    or with `zero_infinity` one of 0, and gradients of 0 either way. ShapeError, DtypeError, ArgumentError: what does not
    fit.

    >>> with pd.Graph() as graph:
    ...     logits = graph.input('logits', 'f32', (50, 16, 20))
    ...     targets, lengths = graph.input('targets', 'i64', (16, 30)), graph.input('lengths', 'i64', (2, 16))
    ...     pd.ctc_loss(pd.log_softmax(logits), targets, lengths[0], lengths[1])
    Value(f32[])
    """
    if reduction not in ('mean', 'sum', 'none'):
        raise ArgumentError(f"reduction is '{reduction}', needed is mean, sum or none")
    if log_probabilities.ndim != 3 or targets.ndim != 2:
        raise ShapeError(f'ctc_loss: log_probabilities is {log_probabilities!r}, targets {targets!r}; needed are [T, B, classes] and [B, S]')
    steps, batch, classes = log_probabilities.shape
    longest = targets.shape[1]
    for name, lengths in (('input_lengths', input_lengths), ('target_lengths', target_lengths)):
        if lengths.shape != (batch,) or targets.shape[0] != batch:
            raise ShapeError(f'ctc_loss: {name} is {lengths!r}, targets {targets!r}; needed are [{batch}] and [{batch}, S]')
        if lengths.dtype not in (DType.i64, DType.i32) or targets.dtype not in (DType.i64, DType.i32):
            raise DtypeError(f'ctc_loss: {name} is {lengths!r}, targets {targets!r}; needed are integers')
    if not 0 <= blank < classes:
        raise ArgumentError(f'ctc_loss: blank is {blank}, needed is one of {classes} classes')
    graph, dtype = log_probabilities.graph, log_probabilities.dtype
    input_lengths, target_lengths = input_lengths.astype('i64'), target_lengths.astype('i64')

    # Labels with blanks around them, [B, 2 S + 1], and what each may follow besides itself and the one before.
    states = 2 * longest + 1
    blanks = full((batch, longest), blank, 'i64', graph=graph)
    counts = arange(longest, graph=graph).reshape(1, longest) < target_lengths.reshape(batch, 1)
    known = ops.select(counts, targets.astype('i64'), blanks)
    last_blank = full((batch, 1), blank, 'i64', graph=graph)
    labels = ops.concat([ops.stack([blanks, known], axis=2).reshape(batch, 2 * longest), last_blank], axis=1)
    never = full((batch, states), _NEVER, dtype, graph=graph)
    if longest > 0:
        two_before = ops.concat([full((batch, 2), blank, 'i64', graph=graph), labels[:, :-2]], axis=1)
        may_skip = (labels != blank) & (labels != two_before)
    else:
        may_skip = labels != blank
    emitted = ops.gather_elements(
        log_probabilities, ops.expand(labels.reshape(1, batch, states), (steps, batch, states)), axis=2
    )

    def shifted(alpha: Value, by: int) -> Value:
        if by >= states:
            return never
        return ops.concat([never[:, :by], alpha[:, : states - by]], axis=1)

    place = arange(states, graph=graph).reshape(1, states)
    begins = ops.select(ops.logical_and(place < 1, place >= 0), never * 0, never)  # in front of the first label

    def step(alpha: Value, each: tuple[Value, Value]) -> tuple[Value, None]:
        emission, time = each
        before = ops.stack([alpha, shifted(alpha, 1), ops.select(may_skip, shifted(alpha, 2), never)], axis=0)
        moved = ops.maximum(ops.logsumexp(before, axis=0), _NEVER)
        first = ops.select(place < 2, never * 0, never)
        now = ops.maximum(ops.select(time == 0, first, moved) + emission, _NEVER)
        return ops.select(time < input_lengths.reshape(batch, 1), now, alpha), None

    alpha, _ = scan(step, begins, (emitted, arange(steps, graph=graph)))
    end = target_lengths.reshape(batch, 1) * 2
    is_end = ops.logical_or(place == end, place == end - 1)
    losses = -ops.logsumexp(ops.select(is_end, alpha, never), axis=1)
    is_possible = losses < -_NEVER / 2
    otherwise = 0.0 if zero_infinity else float('inf')
    losses = ops.select(is_possible, losses, otherwise)
    if reduction == 'none':
        return losses
    if reduction == 'sum':
        return losses.sum()
    return (losses / ops.maximum(target_lengths, 1).astype(dtype)).mean()
