# SPDX-License-Identifier: Apache-2.0
"""Loops, branches and gradients. Values may be nested in tuples, lists and dicts; what comes out is nested alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import _paoding
from ._paoding import Value, arange, step_index
from .errors import ArgumentError

__all__ = ['checkpoint', 'cond', 'gradients', 'scan', 'step_index', 'switch', 'while_loop']

T = TypeVar('T')


def _flat(tree: Any, into: list[Value]) -> list[Value]:
    if isinstance(tree, Value):
        into.append(tree)
    elif isinstance(tree, dict):
        for each in tree.values():
            _flat(each, into)
    elif isinstance(tree, (tuple, list)):
        for each in tree:
            _flat(each, into)
    elif tree is not None:
        raise ArgumentError(f'{type(tree).__name__} is no value: values, None, and tuples, lists and dicts of them are')
    return into


def _nested(like: Any, values: Any) -> Any:
    """`like` with its values replaced by the next ones of the iterator."""
    if isinstance(like, Value):
        return next(values)
    if isinstance(like, dict):
        return {name: _nested(each, values) for name, each in like.items()}
    if isinstance(like, tuple) and hasattr(like, '_fields'):
        return type(like)(*(_nested(each, values) for each in like))
    if isinstance(like, (tuple, list)):
        return type(like)(_nested(each, values) for each in like)
    return None


def _form(tree: Any) -> Any:
    """What two trees that are nested alike have in common."""
    if isinstance(tree, dict):
        return {name: _form(each) for name, each in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_form(each) for each in tree]
    return tree is None


def _check_alike(what: str, tree: Any, wanted: Any) -> None:
    if _form(tree) != _form(wanted):
        raise ArgumentError(f'{what} are not nested as those that it begins with')


def scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    initial: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Calls step(carry, x) once, for every element x along the first axis of `xs`; it returns the next carry and what is
    stacked over the steps. Returns the last carry and what was stacked. Without `xs`, `length` steps of the step's
    number. The function may use any value of the graph around it."""
    if xs is None:
        if length is None:
            raise ArgumentError('scan: needs xs or length')
        values = _flat(initial, [])
        sequences: Any = arange(length, graph=values[0].graph if values else None)
    else:
        sequences = xs
    outputs_like: list[Any] = []

    def body(carries: list[Value], elements: list[Value]) -> tuple[list[Value], list[Value]]:
        carry, outputs = step(_nested(initial, iter(carries)), _nested(sequences, iter(elements)))
        _check_alike('scan: the carries of a step', carry, initial)
        outputs_like.append(outputs)
        return _flat(carry, []), _flat(outputs, [])

    carries, stacked = _paoding.scan(_flat(initial, []), _flat(sequences, []), body, reverse)
    return _nested(initial, iter(carries)), _nested(outputs_like[-1], iter(stacked))


def cond(predicate: Value, then: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """then() where `predicate` is true, else otherwise(); chosen when the program runs."""
    return switch(predicate.astype('i32'), [otherwise, then])


def switch(index: Value, branches: Sequence[Callable[[], T]]) -> T:
    """branches[index](), chosen when the program runs; the last one when there is none of that number."""
    results: list[Any] = []

    def flat(branch: Callable[[], T]) -> Callable[[], list[Value]]:
        def call() -> list[Value]:
            made = branch()
            if results:
                _check_alike('switch: the results of a branch', made, results[0])
            results.append(made)
            return _flat(made, [])

        return call

    values = _paoding.switch(index, [flat(branch) for branch in branches])
    made: T = _nested(results[0], iter(values))
    return made


def while_loop(
    condition: Callable[[Any], Value], body: Callable[[Any], Any], initial: T, *, max_iterations: int | None = None
) -> T:
    """body(values) as long as condition(values) is true. Differentiable with `max_iterations`."""

    def goes_on(values: list[Value]) -> list[Value]:
        return [condition(_nested(initial, iter(values)))]

    def turn(values: list[Value]) -> list[Value]:
        made = body(_nested(initial, iter(values)))
        _check_alike('while_loop: the values of the body', made, initial)
        return _flat(made, [])

    last, _ = _paoding.while_loop(_flat(initial, []), goes_on, turn, max_iterations)
    made: T = _nested(initial, iter(last))
    return made


def checkpoint(function: Callable[..., T], *inputs: Any) -> T:
    """function(*inputs), whose values the backward pass computes again instead of keeping them."""
    results: list[Any] = []

    def body(values: list[Value]) -> list[Value]:
        results.append(function(*_nested(inputs, iter(values))))
        return _flat(results[-1], [])

    values = _paoding.checkpoint(body, _flat(inputs, []))
    made: T = _nested(results[-1], iter(values))
    return made


def gradients(outputs: Any, inputs: T, seeds: Any = None) -> T:
    """d(sum of outputs * seeds) / d(inputs), nested as `inputs`. Without seeds every output is a scalar."""
    given = None if seeds is None else _flat(seeds, [])
    made: T = _nested(inputs, iter(_paoding.gradients(_flat(outputs, []), _flat(inputs, []), given)))
    return made
