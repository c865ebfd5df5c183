# SPDX-License-Identifier: Apache-2.0
"""One graph text with extents out of texts of the same graph at several sizes: integers that differ become expressions of the
extents. What an expression is taken from is known (the symbolic sizes of the traced program); that it is right is checked
against sizes that it was not made from, text by text."""

from __future__ import annotations

import bisect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import sympy  # type: ignore[import-untyped]

Sizes = Mapping[str, int]

_QUOTED = r'"(?:[^"\\]|\\.)*"'
# Integers that stand alone: not digits of a word (f32), of a value (%12), or of a fraction. A float may be one: 4.0.
_TOKEN = re.compile(_QUOTED + r'|(?<![\w.%+-])-?\d+(?:\.0)?(?![\w.])')


class NotExpressible(Exception):
    """Why no text is that of the graph at every size."""


def split_text(text: str) -> tuple[list[str], list[str]]:
    """The text between its integers, and these."""
    between, numbers, at = [], [], 0
    for found in _TOKEN.finditer(text):
        if found.group().startswith('"'):
            continue
        between.append(text[at : found.start()])
        numbers.append(found.group())
        at = found.end()
    return [*between, text[at:]], numbers


_EXPAND = re.compile(r'%(\d+) = expand\(([^(),]+)\) \{[^{}]*\} : (\S+)')
_DEFINED = re.compile(r'(%\d+(?:\.\d+)?|\S+) = (?:(?:input|parameter) |[^ ]+\(.*?\) (?:\{[^{}]*\} )?: )(\w+\[[\d,]*\])')


def without_identities(text: str) -> str:
    """The text without expands to the shape that is there, which graphs of a size 1 do without."""
    types: dict[str, str] = {}
    names: dict[int, str] = {}  # of nodes that are left out: what they are
    gone: list[int] = []
    made = []

    def renamed(found: re.Match[str]) -> str:
        if found.group().startswith('"'):
            return found.group()
        number = int(found.group(1))
        return names.get(number) or f'%{number - bisect.bisect_left(gone, number)}'

    for line in text.splitlines():
        if line.startswith(' '):  # of a body, which has names of its own
            made.append(line)
            continue
        expand = _EXPAND.match(line)
        if expand is not None and types.get(expand.group(2)) == expand.group(3):
            number, source = int(expand.group(1)), expand.group(2)
            names[number] = re.sub(r'^%(\d+)', renamed, source)
            types[f'%{number}'] = expand.group(3)
            gone.append(number)
            continue
        defined = _DEFINED.match(line)
        if defined is not None:
            types[defined.group(1)] = defined.group(2)
        made.append(re.sub(_QUOTED + r'|%(\d+)', renamed, line))
    return '\n'.join(made)


def written(expression: Any) -> str:
    """An expression of symbols in graph text. NotExpressible: it has other functions than + - * / //."""
    if expression.is_Symbol:
        return str(expression.name)
    if expression.is_Integer:
        return str(int(expression)) if expression >= 0 else f'(0-{-int(expression)})'
    if expression.is_Add:
        return f'({_sum(expression)})'
    if expression.is_Mul:
        above, below = expression.as_numer_denom()
        if below != 1:
            return f'({written(above)}/{written(below)})'
        return '*'.join(written(each) for each in expression.args)
    if expression.is_Pow and expression.exp.is_Integer and expression.exp > 0:
        return '*'.join([written(expression.base)] * int(expression.exp))
    if type(expression).__name__ in ('FloorDiv', 'CleanDiv', 'IntTrueDiv'):
        above, below = expression.args
        return f'({written(above)}//({written(below)}))'
    raise NotExpressible(f'{expression} is no sum, product or quotient')


def _sum(expression: Any) -> str:
    """Numbers last: time+1, time-1."""
    made = ''
    for each in sorted(expression.args, key=lambda each: (each.is_Integer, str(each))):
        is_less = each.could_extract_minus_sign()
        made += ('-' if is_less else '+' if made else '') + written(-each if is_less else each)
    return made if not made.startswith('-') else f'0{made}'


def _value(expression: Any, sizes: Sizes) -> int | None:
    made = expression.xreplace({symbol: sympy.Integer(sizes[symbol.name]) for symbol in expression.free_symbols})
    return int(made) if made.is_Integer else None


class Candidates:
    """Expressions that a number may be, with their values at the sizes of the samples."""

    def __init__(self, expressions: Iterable[Any], samples: Sequence[Sizes]) -> None:
        self.samples = samples
        self._known: dict[tuple[int, ...], Any] = {}
        self._found: dict[tuple[int, ...], str | None] = {}
        for expression in sorted(set(expressions), key=lambda each: (each.count_ops(), str(each))):
            values = [_value(expression, each) for each in samples]
            if None not in values:
                self._known.setdefault(tuple(values), expression)  # type: ignore[arg-type]

    def of(self, numbers: tuple[int, ...]) -> str | None:
        """An expression that has these values at the samples' sizes, as text."""
        if numbers not in self._found:
            self._found[numbers] = self._search(numbers)
        return self._found[numbers]

    def _search(self, numbers: tuple[int, ...]) -> str | None:
        for make in (self._itself, self._scaled, self._product):
            found = make(numbers)
            if found is not None:
                try:
                    return _sum(found) if found.is_Add else written(found)
                except NotExpressible:
                    continue
        return None

    def _itself(self, numbers: tuple[int, ...]) -> Any | None:
        return self._known.get(numbers)

    def _scaled(self, numbers: tuple[int, ...]) -> Any | None:
        """a * e + b with integers a and b."""
        for values, expression in self._known.items():
            line = _line(values, numbers)
            if line is not None:
                return line[0] * expression + line[1]
        return None

    def _product(self, numbers: tuple[int, ...]) -> Any | None:
        """a * e * f with an integer a."""
        for values, expression in self._known.items():
            if all(each and number % each == 0 for each, number in zip(values, numbers)):
                rest = tuple(number // each for each, number in zip(values, numbers))
                line = None
                for others, other in self._known.items():
                    line = _line(others, rest)
                    if line is not None and line[1] == 0:
                        return line[0] * other * expression
        return None


def _line(values: Sequence[int], numbers: Sequence[int]) -> tuple[int, int] | None:
    """Integers a and b with numbers = a * values + b."""
    first = next((i for i in range(1, len(values)) if values[i] != values[0]), None)
    if first is None:
        return None
    slope = Fraction(numbers[first] - numbers[0], values[first] - values[0])
    if slope.denominator != 1 or slope == 0:
        return None
    a = int(slope)
    b = numbers[0] - a * values[0]
    return (a, b) if all(a * value + b == number for value, number in zip(values, numbers)) else None


def sized_text(
    text_at: Callable[[Sizes], str], declarations: Sequence[str], expressions: Iterable[Any], samples: Sequence[Sizes]
) -> str:
    """The text of a graph at every size. `text_at(sizes)`: the text at these; `declarations`: the lines that declare the
    extents; `samples`: sizes to learn from. NotExpressible: the graph has other nodes at other sizes, or a number that
    follows from them in no way that graph text can write."""
    texts = [split_text(text_at(sizes)) for sizes in samples]
    between, _ = texts[0]
    for (other, _), sizes in zip(texts[1:], samples[1:]):
        if other != between:
            raise NotExpressible(_difference(text_at(samples[0]), text_at(sizes), samples[0], sizes))
    candidates = Candidates(expressions, samples)
    made = [between[0]]
    for position, numbers in enumerate(zip(*(numbers for _, numbers in texts))):
        if len(set(numbers)) == 1:
            made.append(numbers[0])
        else:
            found = candidates.of(tuple(int(each.removesuffix('.0')) for each in numbers))
            if found is None:
                line = ''.join(made).rsplit('\n', 1)[-1] + '..'
                raise NotExpressible(f'a number is {", ".join(numbers)} at {_listed(samples)}, in the line: {line}')
            made.append(found)
        made.append(between[position + 1])
    version, rest = ''.join(made).split('\n', 1)
    return '\n'.join([version, *declarations, rest])


def _listed(samples: Sequence[Sizes]) -> str:
    return '; '.join(', '.join(f'{name}={size}' for name, size in sizes.items()) for sizes in samples)


def _difference(text: str, other: str, sizes: Sizes, others: Sizes) -> str:
    pairs = zip(text.splitlines(), other.splitlines())
    line, changed = next(
        ((a, b) for a, b in pairs if split_text(a)[0] != split_text(b)[0]), ('fewer nodes', 'more nodes')
    )
    return f'the graph is another one at {_listed([others])} than at {_listed([sizes])}: {changed.strip()}; {line.strip()}'
