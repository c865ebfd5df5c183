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
_THEIRS = {ours: theirs for theirs, ours in _OURS.items()}
_NAMES = tuple(theirs.__name__ for theirs in _OURS)
_CELLS = (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell)


@dataclasses.dataclass
class Report:
    """The recurrent layers of a model by their names in it: of which class those are that were changed, and why the others
    were left as they are."""

    changed: dict[str, str] = dataclasses.field(default_factory=dict)
    left: dict[str, str] = dataclasses.field(default_factory=dict)
    package: str = 'paoding.torch'  # of the classes of those that were changed

    def __str__(self) -> str:
        lines = [f'{name or "the model itself"}: a {self.package}.{kind} now' for name, kind in self.changed.items()]
        lines += [f'{name or "the model itself"}: left, {why}' for name, why in self.left.items()]
        return '\n'.join(lines)


def _ours(module: torch.nn.Module) -> type[torch.nn.Module] | str | None:
    """The class to be, or why not; None of what is no recurrent layer, or ours already."""
    kind = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, 'original_name', '')
        return f'it was made by torch.jit of a torch.nn.{name}' if name in _NAMES else None
    theirs = kind if kind in _OURS else kind.__bases__[0]
    if isinstance(module, _CELLS):
        cell = next(each.__name__ for each in kind.__mro__ if each in _CELLS)
        return (
            f"a torch.nn.{cell} is one step a call, for which PyTorch's own op is as good; a loop of it over a sequence is a "
            f'torch.nn.{cell.removesuffix("Cell")}'
        )
    if not isinstance(module, (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN)):
        return None
    if 'forward' in vars(module):
        return 'it has a forward of its own'
    if kind in _OURS:
        return _OURS[kind]
    if theirs in _OURS and parametrize.is_parametrized(module):
        # A class that torch.nn.utils.parametrize made for this layer alone, with the parametrized weights as properties.
        return _derived_anew(kind, _OURS[theirs])
    base = next(each for each in kind.__mro__ if each in _OURS)
    return (
        f'{kind.__module__}.{kind.__qualname__} is a class of its own, derived from torch.nn.{base.__name__}; it may be '
        f'derived from paoding.torch.{base.__name__}'
    )


def _derived_anew(kind: type[torch.nn.Module], base: type[torch.nn.Module]) -> type[torch.nn.Module]:
    own = {name: each for name, each in vars(kind).items() if name not in ('__dict__', '__weakref__')}
    return type(kind.__name__, (base,), own)


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
    their own, those that torch.jit made, and cells are left as they are: without a report a warning says which and why, but
    for cells. restore() takes it back."""
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
    cells = {name for name, module in model.named_modules() if isinstance(module, _CELLS)}
    left = Report(left={name: why for name, why in report.left.items() if name not in cells})
    if left.left:
        warnings.warn(f'paoding.torch.accelerate: not every recurrent layer was changed\n{left}', stacklevel=2)
    return model


@overload
def restore(model: torch.nn.Module) -> torch.nn.Module: ...
@overload
def restore(model: torch.nn.Module, *, return_report: Literal[False]) -> torch.nn.Module: ...
@overload
def restore(model: torch.nn.Module, *, return_report: Literal[True]) -> tuple[torch.nn.Module, Report]: ...
def restore(model: torch.nn.Module, *, return_report: bool = False) -> torch.nn.Module | tuple[torch.nn.Module, Report]:
    """`model` itself, whose layers of paoding.torch are torch.nn.LSTM, GRU and RNN from now on, with the parameters that they
    have: accelerate() taken back, and so for layers that were made as paoding.torch's, for a model that is to be saved or
    shipped with PyTorch alone. Layers of classes derived from ours are left as they are, which the report says."""
    report = Report(package='torch.nn')
    for name, module in model.named_modules():
        kind = type(module)
        ours = next((each for each in kind.__mro__ if each in _THEIRS), None)
        if ours is None:
            continue
        theirs = _THEIRS[ours]
        if kind is not ours and not (parametrize.is_parametrized(module) and kind.__bases__[0] is ours):
            report.left[name] = (
                f'{kind.__module__}.{kind.__qualname__} is a class of its own, derived from paoding.torch.{ours.__name__}'
            )
            continue
        module.__class__ = theirs if kind is ours else _derived_anew(kind, theirs)
        report.changed[name] = theirs.__name__
    return (model, report) if return_report else model
