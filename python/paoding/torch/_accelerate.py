# SPDX-License-Identifier: Apache-2.0
"""A model's own recurrent layers as ours, and what was done with each of them."""

from __future__ import annotations

import dataclasses
import warnings
from typing import Literal, overload

import torch
from torch.nn.utils import parametrize

from ._modules import GRU, LSTM, RNN

_OURS: dict[type[torch.nn.Module], type[torch.nn.Module]] = {torch.nn.LSTM: LSTM, torch.nn.GRU: GRU, torch.nn.RNN: RNN}
_NAMES = tuple(theirs.__name__ for theirs in _OURS)


@dataclasses.dataclass
class Report:
    """The recurrent layers of a model by their names in it: of which class those are that were changed, and why the others
    were left as they are."""

    changed: dict[str, str] = dataclasses.field(default_factory=dict)
    left: dict[str, str] = dataclasses.field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f'{name or "the model itself"}: a paoding.torch.{kind} now' for name, kind in self.changed.items()]
        lines += [f'{name or "the model itself"}: left, {why}' for name, why in self.left.items()]
        return '\n'.join(lines)


def _ours(module: torch.nn.Module) -> type[torch.nn.Module] | str | None:
    """The class to be, or why not; None of what is no recurrent layer, or ours already."""
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, 'original_name', '')
        return f'it was made by torch.jit of a torch.nn.{name}' if name in _NAMES else None
    theirs = kind if kind in _OURS else kind.__bases__[0]
    if not isinstance(module, (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)):
        return None
    if 'forward' in vars(module):
        return 'it has a forward of its own'
    if kind in _OURS:
        return _OURS[kind]
    if theirs in _OURS and parametrize.is_parametrized(module):
        # A class that torch.nn.utils.parametrize made for this layer alone, with the parametrized weights as properties.
        own = {name: each for name, each in vars(kind).items() if name not in ('__dict__', '__weakref__')}
        return type(kind.__name__, (_OURS[theirs],), own)
    base = next(each for each in kind.__mro__ if each in _OURS)
    return (
        f'{kind.__module__}.{kind.__qualname__} is a class of its own, derived from torch.nn.{base.__name__}; it may be '
        f'derived from paoding.torch.{base.__name__}'
    )


@overload
def accelerate(model: torch.nn.Module) -> torch.nn.Module: ...
@overload
def accelerate(model: torch.nn.Module, *, return_report: Literal[False]) -> torch.nn.Module: ...
@overload
def accelerate(model: torch.nn.Module, *, return_report: Literal[True]) -> tuple[torch.nn.Module, Report]: ...
def accelerate(
    model: torch.nn.Module, *, return_report: bool = False
) -> torch.nn.Module | tuple[torch.nn.Module, Report]:
    """`model` itself, whose torch.nn.LSTM, GRU and RNN are ours from now on, with the parameters that they have; with
    `return_report` also what was done with each of them. Layers of classes derived from these, those with a forward of
    their own and those that torch.jit made are left as they are: without a report a warning says which and why."""
    report = Report()
    for name, module in model.named_modules():
        ours = _ours(module)
        if isinstance(ours, str):
            report.left[name] = ours
        elif ours is not None:
            report.changed[name] = next(each for each in ours.__mro__ if each in _OURS.values()).__name__
            module.__class__ = ours
    if return_report:
        return model, report
    if report.left:
        left = Report(left=report.left)
        warnings.warn(f'paoding.torch.accelerate: not every recurrent layer was changed\n{left}', stacklevel=2)
    return model
