# SPDX-License-Identifier: Apache-2.0
"""Loops, branches and gradients. Values may be nested in tuples, lists and dicts; what comes out is nested alike. Numbers
and arrays may stand for values: those of floats have the dtype of the first value of floats beside them, else f32."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from . import _paoding
from ._paoding import DType, Tensor, Value, arange, constant, step_index
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


_FLOATS = (DType.f64, DType.f32, DType.f16, DType.bf16)


def _constant(given: Any, near: Sequence[Value], dtype: DType | None = None) -> Value:
    graph = near[0].graph if near else None
    float_dtype = next((value.dtype for value in near if value.dtype in _FLOATS), DType.f32)
    if isinstance(given, (bool, int, float)):
        default = DType.bool if isinstance(given, bool) else DType.i64 if isinstance(given, int) else float_dtype
        return constant(given, dtype or default, graph=graph)
    is_numpys_default = not isinstance(given, Tensor) and str(getattr(given, 'dtype', '')) == 'float64'
    return constant(given, dtype or (float_dtype if is_numpys_default else None), graph=graph)


def _is_array(given: Any) -> bool:
    return isinstance(given, (bool, int, float)) or hasattr(given, '__array__') or hasattr(given, '__dlpack__')


def _found(tree: Any) -> list[Value]:
    """The values of a tree that may have numbers and arrays in it."""
    if isinstance(tree, Value):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [value for each in tree for value in _found(each)] if isinstance(tree, (tuple, list)) else []


def _mapped(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """`tree` with `leaf` of each of its leaves."""
    if isinstance(tree, dict):
        return {name: _mapped(each, leaf) for name, each in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, '_fields'):
        return type(tree)(*(_mapped(each, leaf) for each in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(_mapped(each, leaf) for each in tree)
    return leaf(tree)


def _values(tree: Any, near: Sequence[Value]) -> Any:
    """`tree` with constants for its numbers and arrays."""
    return _mapped(tree, lambda each: _constant(each, near) if not isinstance(each, Value) and _is_array(each) else each)


def _flat_as(tree: Any, dtypes: Sequence[DType], near: Sequence[Value]) -> list[Value]:
    """The values of a tree, whose numbers and arrays get these dtypes."""
    flat: list[Any] = []

    def visit(each: Any) -> None:
        if isinstance(each, dict):
            each = tuple(each.values())
        if isinstance(each, (tuple, list)):
            for part in each:
                visit(part)
        elif isinstance(each, Value) or _is_array(each):
            flat.append(each)
        else:
            _flat(each, [])  # None, or an error

    visit(tree)
    return [
        each if isinstance(each, Value) else _constant(each, near, dtype)
        for each, dtype in zip(flat, dtypes, strict=True)
    ]


def zeros_for(value: Value) -> Value:
    """The gradient of a result that nobody reads."""
    return _paoding.zeros(value.shape, value.dtype, graph=value.graph)


def _dtypes(values: Sequence[Value]) -> list[DType]:
    return [value.dtype for value in values]


def _nested(like: Any, values: Any) -> Any:
    """`like` with its values replaced by the next ones of the iterator."""
    return _mapped(like, lambda each: next(values) if isinstance(each, Value) else None)


def _form(tree: Any) -> Any:
    """What two trees that are nested alike have in common."""
    if isinstance(tree, dict):
        return {name: _form(each) for name, each in tree.items()}
    if isinstance(tree, (tuple, list)):
        return [_form(each) for each in tree]
    return tree is None


def _check_alike(what: str, tree: Any, wanted: Any, hint: str = '') -> None:
    if _form(tree) != _form(wanted):
        raise ArgumentError(f'{what} are not nested as those that it begins with{hint}')


def scan(
    step: Callable[[Any, Any], Any],
    initial: Any,
    xs: Any = None,
    *,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Calls step(carry, x) once, for every element x along the first axis of `xs`; it returns a tuple of the next carry
    and what is stacked over the steps, or the next carry alone. Returns the last carry and what was stacked, or None.
    Without `xs`, `length` steps of the step's number. The function may use any value of the graph around it."""
    near = _found([initial, xs])
    initial = _values(initial, near)
    if xs is None:
        if length is None:
            raise ArgumentError('scan: needs xs or length')
        values = _flat(initial, [])
        sequences: Any = arange(length, graph=values[0].graph if values else None)
    else:
        sequences = _values(xs, near)
    outputs_like: list[Any] = []

    def body(carries: list[Value], elements: list[Value]) -> tuple[list[Value], list[Value]]:
        made = step(_nested(initial, iter(carries)), _nested(sequences, iter(elements)))
        is_pair = isinstance(made, tuple) and len(made) == 2 and not hasattr(made, '_fields')
        carry, outputs = made if is_pair else (made, None)
        hint = '\nhint: a step returns (carry, outputs), and (carry, None) where the carry is a tuple and nothing is stacked'
        _check_alike('scan: the carries of a step', carry, initial, hint)
        inside = [*carries, *elements]
        outputs_like.append(_values(outputs, inside))
        return _flat_as(carry, _dtypes(carries), inside), _flat(outputs_like[-1], [])

    carries, stacked = _paoding.scan(_flat(initial, []), _flat(sequences, []), body, reverse)
    return _nested(initial, iter(carries)), _nested(outputs_like[-1], iter(stacked))


def cond(predicate: Value, then: Callable[[], T], otherwise: Callable[[], T]) -> T:
    """then() where `predicate` is true, else otherwise(); chosen when the program runs."""
    return switch(predicate.astype('i32'), [otherwise, then])


def switch(index: Value, branches: Sequence[Callable[[], T]]) -> T:
    """branches[index](), chosen when the program runs; the last one when there is none of that number."""
    results: list[Any] = []
    dtypes: list[DType] = []  # of the first branch's results, which others' numbers get

    def flat(branch: Callable[[], T]) -> Callable[[], list[Value]]:
        def call() -> list[Value]:
            made = branch()
            near = [*_found(made), index]
            if results:
                _check_alike('switch: the results of a branch', made, results[0])
                return _flat_as(made, dtypes, near)
            results.append(_values(made, near))
            values = _flat(results[0], [])
            dtypes.extend(_dtypes(values))
            return values

        return call

    values = _paoding.switch(index, [flat(branch) for branch in branches])
    made: T = _nested(results[0], iter(values))
    return made


def while_loop(
    condition: Callable[[Any], Value], body: Callable[[Any], Any], initial: T, *, max_iterations: int | None = None
) -> T:
    """body(values) as long as condition(values) is true. Differentiable with `max_iterations`."""

    begins = _values(initial, _found(initial))

    def goes_on(values: list[Value]) -> list[Value]:
        return [condition(_nested(begins, iter(values)))]

    def turn(values: list[Value]) -> list[Value]:
        made = body(_nested(begins, iter(values)))
        _check_alike('while_loop: the values of the body', made, begins)
        return _flat_as(made, _dtypes(values), values)

    last, _ = _paoding.while_loop(_flat(begins, []), goes_on, turn, max_iterations)
    made: T = _nested(begins, iter(last))
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
    given = None if seeds is None else _flat_as(seeds, _dtypes(_flat(outputs, [])), _flat(outputs, []))
    made: T = _nested(inputs, iter(_paoding.gradients(_flat(outputs, []), _flat(inputs, []), given)))
    return made
