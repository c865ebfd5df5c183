# SPDX-License-Identifier: Apache-2.0
"""Ops of one's own: formulas of single numbers, compositions with a gradient of their own, and CUDA kernels for them. An op
has a name in graph text, plans and reports; a program that reads such a text or model defines its ops first."""

from __future__ import annotations

import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

from ._paoding import (
    DType,
    Scalar,
    Value,
    call_all,
    call_one,
    op_names,
    register_composition,
    register_formula,
    register_kernel,
)
from ._types import ValueLike
from .control import gradients, zeros_for
from .errors import ArgumentError

__all__ = ['CudaKernel', 'Op', 'cuda_op', 'custom_gradient', 'op']

# gradient(inputs, outputs, gradients of outputs, **attributes): a gradient for each input, None where there is none.
Gradient: TypeAlias = Callable[..., Any]
Type: TypeAlias = tuple[DType, tuple[int, ...]]


defined: dict[str, Op] = {}  # in this process, by name


class Op:
    """An op that pd.op, pd.custom_gradient or pd.cuda_op made: called with Values, numbers and arrays for its inputs, and
    its attributes by name, it gives its result, a tuple where there are several."""

    def __init__(self, function: Callable[..., Any], name: str, inputs: Sequence[str], attributes: Mapping[str, Any]) -> None:
        self.__doc__ = function.__doc__
        self.__name__ = getattr(function, '__name__', 'op')
        self.name = name
        self.inputs = tuple(inputs)
        self.attributes = dict(attributes)
        defined[name] = self
        self._signature = inspect.signature(function)

    def __call__(self, *inputs: ValueLike, **others: Any) -> Any:
        bound = self._signature.bind(*inputs, **others).arguments
        values = tuple(bound[name] for name in self.inputs)
        attributes = {name: bound[name] for name in self.attributes if name in bound}
        if any(isinstance(each, Scalar) for each in values):
            return call_one(self.name, values, attributes)  # of a formula that uses another's
        made = call_all(self.name, values, attributes)
        return made[0] if len(made) == 1 else made

    def __repr__(self) -> str:
        return f'Op({self.name}: {", ".join(self.inputs)})'


def _parts(function: Callable[..., Any], what: str) -> tuple[list[str], dict[str, Any]]:
    """The inputs, which are positional, and the attributes, which are named and have defaults."""
    inputs, attributes = [], {}
    for name, each in inspect.signature(function).parameters.items():
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise ArgumentError(f'{what}: the function takes *{name}, needed is a fixed number of inputs')
        if each.kind is not each.KEYWORD_ONLY:
            if each.default is not each.empty:
                raise ArgumentError(f"{what}: '{name}' has a default; write attributes behind a *: f(a, *, {name}=..)")
            inputs.append(name)
        elif each.default is each.empty:
            raise ArgumentError(f"{what}: the attribute '{name}' needs a default, which says of which type it is")
        else:
            attributes[name] = each.default
    if not inputs:
        raise ArgumentError(f'{what}: the function has no input')
    return inputs, attributes


def _free_name(function: Callable[..., Any], given: str | None, what: str) -> str:
    """`name`, or name.2, name.3 .. where an op of it is there: what a notebook defines again is another op."""
    name = given if given is not None else str(getattr(function, '__name__', ''))
    if not name.replace('.', '_').isidentifier():
        raise ArgumentError(f"{what}: the name is '{name}', needed are letters, digits, '_' and '.'\nhint: name='..'")
    taken = set(op_names())
    numbered = (f'{name}.{i}' for i in itertools.count(2))
    return name if name not in taken else next(each for each in numbered if each not in taken)


def _summary(function: Callable[..., Any]) -> str:
    text = (inspect.getdoc(function) or '').strip()
    return text.split('\n')[0] if text else f'{getattr(function, "__name__", "")} of a program in Python'


@overload
def op(function: Callable[..., Any], /) -> Op: ...


@overload
def op(*, name: str | None = None, gradient: Gradient | None = None) -> Callable[[Callable[..., Any]], Op]: ...


def op(function: Callable[..., Any] | None = None, /, *, name: str | None = None, gradient: Gradient | None = None) -> Any:
    """An op whose elements follow from those of its inputs, which are broadcast: the function is its formula.

    The function is called with a Scalar for each input and computes with operators and functions of single numbers:
    pd.exp, pd.where, pd.maximum .. It is traced, once for every combination of dtypes, so `if` is pd.where. SIMD code and
    CUDA source are made of the trace, fused with what stands beside it, and so is the derivative, unless
    `gradient(inputs, outputs, gradients, **attributes)` gives one of Values: one for each input, or None. Arguments
    behind a * are attributes: numbers, bools, strs or lists, with defaults.

    >>> import numpy as np
    >>> @pd.op
    ... def softclip(a, low, *, sharpness=1.0):
    ...     return low + pd.log(1 + pd.exp(sharpness * (a - low))) / sharpness
    >>> with pd.Graph() as graph:
    ...     x = graph.input('x', 'f32', 3)
    ...     y = softclip(x, 0.0, sharpness=2.0)
    ...     graph.fetch('y', y)
    ...     graph.fetch('dx', pd.gradients(y.sum(), x))
    >>> made = pd.Program(graph)(x=np.array([-1, 0, 1]))
    >>> np.round(made['y'], 3).tolist(), np.round(made['dx'], 3).tolist()
    ([0.06300000101327896, 0.34700000286102295, 1.062999963760376], [0.11900000274181366, 0.5, 0.8809999823570251])
    """

    def made(formula: Callable[..., Any]) -> Op:
        inputs, attributes = _parts(formula, 'op')
        own = _free_name(formula, name, 'op')
        register_formula(own, _summary(formula), inputs, attributes, formula, _rule(gradient) if gradient else None)
        return Op(formula, own, inputs, attributes)

    return made if function is None else made(function)


def _rule(gradient: Gradient) -> Callable[..., Any]:
    def rule(inputs: list[Value], outputs: list[Value], grads: list[Any], attributes: dict[str, Any]) -> Any:
        filled = [zeros_for(output) if grad is None else grad for grad, output in zip(grads, outputs, strict=True)]
        return gradient(tuple(inputs), tuple(outputs), tuple(filled), **attributes)

    return rule


@overload
def custom_gradient(function: Callable[..., Any], /) -> Op: ...


@overload
def custom_gradient(*, name: str | None = None) -> Callable[[Callable[..., Any]], Op]: ...


def custom_gradient(function: Callable[..., Any] | None = None, /, *, name: str | None = None) -> Any:
    """An op that is made of others, with a gradient of its own.

    The function takes Values and returns its results (a Value or a tuple) and a function of their gradients, which gives
    a gradient for each input, None where there is none. It is called anew when the op is differentiated and compiled, so
    it depends on its arguments alone: Values from outside, parameters and random numbers are arguments too. Arguments
    behind a * are attributes, as of pd.op.

    >>> import numpy as np
    >>> @pd.custom_gradient
    ... def reversed_gradient(x, *, scale=1.0):
    ...     return x * 1, lambda dy: -scale * dy
    >>> with pd.Graph() as graph:
    ...     x = graph.input('x', 'f32', 2)
    ...     graph.fetch('dx', pd.gradients((reversed_gradient(x, scale=0.5) * 3).sum(), x))
    >>> pd.Program(graph)(x=np.ones(2))['dx'].tolist()
    [-1.5, -1.5]
    """

    def made(both: Callable[..., Any]) -> Op:
        inputs, attributes = _parts(both, 'custom_gradient')
        own = _free_name(both, name, 'custom_gradient')

        def pair(*values: Value, **others: Any) -> tuple[Any, Callable[..., Any]]:
            result = both(*values, **others)
            if not (isinstance(result, tuple) and len(result) == 2 and callable(result[1])):
                raise ArgumentError(f'{own}: the function gave {result!r}, needed are its results and their gradient')
            return result

        def compose(*values: Value, **others: Any) -> Any:
            return pair(*values, **others)[0]

        def rule(values: list[Value], outputs: list[Value], grads: list[Any], others: dict[str, Any]) -> Any:
            filled = [zeros_for(output) if grad is None else grad for grad, output in zip(grads, outputs, strict=True)]
            return pair(*values, **others)[1](*filled)

        register_composition(own, _summary(both), inputs, attributes, compose, rule)
        return Op(both, own, inputs, attributes)

    return made if function is None else made(function)


@dataclass(frozen=True)
class CudaKernel:
    """A CUDA kernel for an op: source, and the launch that runs one call.

    source: C++ with functions, PD_DEVICE in front of each, or templates. In it `load_one<false>(pointer)` is an element in
    the type of its arithmetic (float for F16 and BF16, Compute<T>), `store_one(pointer, value)` rounds one and writes
    it, Index is an integer that all sizes fit. It gives the same bits in every run: no atomics on floats.
    launch(inputs, outputs, **attributes): types as (dtype, shape), to a dict of `call`, what every thread runs, as
    "rotate(x, angle, out, size)", where operands are pointers by the names of inputs, and `out`, or `out0`, `out1` ..;
    `sizes`, integers that are size.NAME there; `ctas`, how many there are, 0 where there is nothing to do; `threads` of
    each (256 without; kThreads in the source); and `shared_bytes`, which PD_DYNAMIC_SHARED(float, name) points to.
    """

    source: str
    launch: Callable[..., dict[str, Any]]


def cuda_op(
    kernel: CudaKernel, *, gradient: Gradient | None = None, name: str | None = None
) -> Callable[[Callable[..., Any]], Op]:
    """An op that is made of others, which a CUDA kernel of one's own runs on a GPU.

    The function that is decorated takes Values and returns the result, or a tuple: it says what the op means, it runs on
    CPUs, and tests compare the kernel with it. The gradient is derived of it, unless
    `gradient(inputs, outputs, gradients, **attributes)` gives one, of ops that may have kernels too. Mistakes in the
    source are found when a program for a GPU is made: DeviceError with NVRTC's message, which names the line.

    >>> import numpy as np
    >>> source = '''
    ... template <class T>
    ... PD_DEVICE void twice(const T* x, T* out, const Sizes& size) {
    ...   const Index i = (Index)blockIdx.x * kThreads + threadIdx.x;
    ...   if (i < size.count) store_one(out + i, 2 * load_one<false>(x + i));
    ... }
    ... '''
    >>> def launch(inputs, outputs):
    ...     count = int(np.prod(inputs[0][1]))
    ...     return {'call': 'twice(x, out, size)', 'sizes': {'count': count}, 'ctas': (count + 255) // 256}
    >>> @pd.cuda_op(pd.CudaKernel(source, launch))
    ... def twice(x):
    ...     return x * 2
    >>> with pd.Graph() as graph:
    ...     graph.fetch('y', twice(graph.input('x', 'f32', 3)))
    >>> pd.Program(graph)(x=np.arange(3))['y'].tolist()
    [0.0, 2.0, 4.0]
    """
    caller = sys._getframe(1)
    file, line = caller.f_code.co_filename, caller.f_lineno

    def made(composition: Callable[..., Any]) -> Op:
        inputs, attributes = _parts(composition, 'cuda_op')
        own = _free_name(composition, name, 'cuda_op')

        def derived(values: tuple[Value, ...], outputs: tuple[Value, ...], grads: tuple[Value, ...], **others: Any) -> Any:
            results = composition(*values, **others)
            return gradients(results if isinstance(results, tuple) else (results,), list(values), list(grads))

        def launch(types: list[Type], results: list[Type], others: dict[str, Any]) -> dict[str, Any]:
            return kernel.launch(types, results, **others)

        register_composition(own, _summary(composition), inputs, attributes, composition, _rule(gradient or derived))
        register_kernel(own, file, line, textwrap.dedent(kernel.source), launch)
        return Op(composition, own, inputs, attributes)

    return made
