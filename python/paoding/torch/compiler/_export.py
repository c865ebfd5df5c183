# SPDX-License-Identifier: Apache-2.0
"""A model of PyTorch's as one file, which paoding runs and serves without Python or PyTorch: torch.export traces it, its ops
become a graph of paoding's, and sizes that may vary become extents with names."""

from __future__ import annotations

import dataclasses
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..._paoding import GraphText, Model
from ...errors import ArgumentError, Error, UnsupportedError
from ...serving import save_model
from ._named_sizes import NamedSizes
from ._recurrent import compiling_for_paoding
from ._settings import decompositions
from ._sized_text import NotExpressible, sized_text, without_identities
from ._traced_program import TracedProgram

# By dtype, relative to the largest number of a result: what rounding may do.
TOLERANCES = {torch.float64: 1e-9, torch.float32: 1e-3, torch.float16: 2e-2, torch.bfloat16: 6e-2}


@dataclasses.dataclass(frozen=True)
class Exported:
    """A file that was written. `inputs`: what the entry point takes, with types as in graph text; `results`: the names of what
    it gives; `extents`: sizes that may vary, with their bounds; `nodes`: ops of PyTorch's; `differences`: at which sizes the
    file was run beside the model, with the largest difference of a result, relative to the largest number of that result."""

    path: Path
    entry: str
    inputs: dict[str, str]
    results: list[str]
    extents: dict[str, tuple[int, int]]
    nodes: int
    seconds: float
    differences: list[tuple[dict[str, int], float]]

    def __str__(self) -> str:
        takes = ', '.join(f'{name} {kind}' for name, kind in self.inputs.items())
        lines = [f"{self.path}: {self.entry}({takes}) gives {', '.join(self.results)}; {self.nodes} of PyTorch's ops"]
        lines += [f'  {name} is {low} to {high}' for name, (low, high) in self.extents.items()]
        for sizes, difference in self.differences:
            at = ', '.join(f'{name}={size}' for name, size in sizes.items()) or 'the sizes of the example'
            lines.append(f'  at {at}: {difference:.1e} from PyTorch')
        return '\n'.join(lines)


def export(
    model: torch.nn.Module,
    args: Sequence[Any],
    path: str | os.PathLike[str],
    *,
    kwargs: Mapping[str, Any] | None = None,
    dynamic_shapes: Any = None,
    results: Sequence[str] | None = None,
    entry: str = 'run',
    batch: str = '',
    check: bool = True,
) -> Exported:
    """paoding.torch.export, which says what it does."""
    begin = time.perf_counter()
    check_call('export', model, args)
    given, more = tuple(args), dict(kwargs or {})
    sizes = NamedSizes.of(model, given, more, dynamic_shapes)
    traced = TracedProgram(program_of('export', model, given, more, sizes), sizes, results)
    text, sizes = _text_of(traced, sizes)
    graphs = {entry: GraphText(text)}
    notes = {'made of': f'{type(model).__module__}.{type(model).__qualname__} by PyTorch {torch.__version__}'}
    save_model(path, graphs, traced.parameters, batch=batch, notes=notes)
    return Exported(
        path=Path(path),
        entry=entry,
        inputs=traced.inputs_text(),
        results=traced.results,
        extents=dict(sizes.bounds),
        nodes=traced.ops,
        seconds=time.perf_counter() - begin,
        differences=_differences(model, given, more, path, entry, traced) if check else [],
    )


def check_call(what: str, model: Any, args: Any) -> None:
    """ArgumentError, begun with `what`, where it is no model in evaluation mode with its arguments."""
    if isinstance(args, Tensor):
        raise ArgumentError(f'{what}: args is a tensor, needed is the tuple of what the model is called with: (tensor,)')
    if not isinstance(model, torch.nn.Module):
        raise ArgumentError(f'{what}: model is of type {type(model).__name__}, needed is a torch.nn.Module')
    training = next((name for name, each in model.named_modules() if each.training), None)
    if training is not None:
        raise ArgumentError(
            f"{what}: {repr(training) if training else 'the model'} is in training mode; call model.eval() first, so that "
            'dropout is left out and batch norm uses its statistics'
        )


def program_of(
    what: str, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: NamedSizes
) -> Any:
    """What torch.export makes of a model, in ops that paoding knows, recurrent layers whole."""
    with compiling_for_paoding(), torch.no_grad(), warnings.catch_warnings():
        warnings.filterwarnings('ignore', message=r'(?s).*were assigned during export')  # nn.LSTM's own lists of its weights
        warnings.filterwarnings('ignore', category=FutureWarning, message='.*treespec')  # PyTorch of itself
        try:
            program = torch.export.export(model, args, kwargs, dynamic_shapes=sizes.for_torch, strict=False)
            return program.run_decompositions(decompositions())
        except Error:
            raise
        except Exception as mistake:
            raise UnsupportedError(f'{what}: torch.export cannot trace the model: {mistake}') from mistake


def _text_of(traced: TracedProgram, sizes: NamedSizes) -> tuple[str, NamedSizes]:
    """The text, checked at sizes that it was not made from. Where an extent has no minimum of the user's and the graph is another
    one for a single element, it begins at 2."""
    for _ in range(len(sizes.bounds) + 1):
        try:
            text = sized_text(traced.text_at, sizes.declarations(), traced.expressions(), sizes.samples())
        except NotExpressible as why:
            raise UnsupportedError(f'export: no graph is right for all sizes of the extents: {why}') from None
        wrong = next((other for other in sizes.others() if not _is_right(traced, text, other)), None)
        if wrong is None:
            return text, sizes
        free = [name for name, size in wrong.items() if size == 1 and name not in sizes.has_minimum and sizes.bounds[name][0] == 1]
        at = ', '.join(f'{name}={size}' for name, size in wrong.items())
        if not free:
            raise UnsupportedError(f'export: the model is another graph at {at} than at the sizes that were tried')
        sizes = sizes.with_least(free[0], 2)
    raise AssertionError('every extent begins at 2')


def _is_right(traced: TracedProgram, text: str, sizes: dict[str, int]) -> bool:
    try:
        ours, theirs = str(GraphText(text).at(**sizes)), traced.text_at(sizes)
    except Error:
        return False
    return ours == theirs or without_identities(ours) == without_identities(theirs)


def _differences(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], path: Any, entry: str, traced: TracedProgram
) -> list[tuple[dict[str, int], float]]:
    """The file beside the model, on what it was traced with. ArgumentError: they differ."""
    file = Model.load(path)
    with torch.no_grad():
        wanted = [each for each in torch.utils._pytree.tree_leaves(model(*args, **kwargs)) if isinstance(each, Tensor)]
    made = file.run(traced.feeds(args, kwargs), entry)
    largest = 0.0
    for name, tensor in zip(traced.results, wanted):
        ours = torch.utils.dlpack.from_dlpack(made[name]).to(tensor.dtype)
        difference = difference_of(ours, tensor.detach().cpu())
        largest = max(largest, difference)
        if not difference <= TOLERANCES.get(tensor.dtype, 0.0):
            raise ArgumentError(
                f"export: {path} was written, but its '{name}' is {difference:.2e} from the model's (relative to the largest "
                'number), which is more than rounding; check=False leaves this out'
            )
    return [(dict(traced.sizes.example), largest)]


def difference_of(ours: Tensor, theirs: Tensor) -> float:
    """The largest difference, relative to the largest finite number of `theirs`; NaN equals NaN."""
    if ours.shape != theirs.shape:
        return float('inf')
    if not theirs.is_floating_point():
        return 0.0 if torch.equal(ours, theirs) else float('inf')
    distances, theirs = distances_of(ours, theirs), theirs.double()
    finite = theirs[theirs.isfinite()]
    scale = max(1e-30, float(finite.abs().max())) if finite.numel() else 1.0
    return float((distances / scale).max()) if distances.numel() else 0.0


def distances_of(ours: Tensor, theirs: Tensor) -> Tensor:
    """|ours - theirs| of each element; 0 where both are NaN, or the same infinity."""
    ours, theirs = ours.double(), theirs.double()
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    return torch.where(same, torch.zeros_like(ours), (ours - theirs).abs())
