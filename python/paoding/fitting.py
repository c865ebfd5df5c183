# SPDX-License-Identifier: Apache-2.0
"""A training loop with evaluation, early stopping and checkpoints, for those who want no loop of their own."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ._paoding import CheckpointFolder, Manifest, Parameters, load_checkpoint, restore, values_of
from .errors import ArgumentError
from .metrics import Mean
from .programs import TracedFunction

__all__ = ['History', 'Progress', 'fit']


@dataclass(frozen=True)
class Progress:
    """The state of a training at the end of an epoch; str() is a line for a person."""

    epoch: int  # counted from 1
    step: int  # batches in all
    loss: float  # the mean over the epoch
    score: float | None  # of evaluate()
    is_best: bool
    seconds: float  # of the epoch

    def __str__(self) -> str:
        score = '' if self.score is None else f', score {self.score:.4g}' + (' (best)' if self.is_best else '')
        return f'epoch {self.epoch}, step {self.step}: loss {self.loss:.4g}{score}, {self.seconds:.1f} s'


@dataclass
class History:
    """What a training went through."""

    losses: list[float] = field(default_factory=list)  # the mean of each epoch
    scores: list[float] = field(default_factory=list)
    best_epoch: int = 0  # counted from 1; 0: none
    steps: int = 0
    stopped_early: bool = False

    @property
    def best_score(self) -> float:
        return self.scores[self.best_epoch - 1] if self.scores else self.losses[self.best_epoch - 1]


def fit(
    step: Callable[..., Any],
    batches: Iterable[Any],
    *,
    epochs: int,
    evaluate: Callable[[], float] | None = None,
    higher_is_better: bool = False,
    patience: int | None = None,
    restore_best: bool = False,
    checkpoints: CheckpointFolder | str | os.PathLike[str] | None = None,
    parameters: Parameters | None = None,
    model: str = '',
    progress: Callable[[Progress], Any] | None = None,
) -> History:
    """Calls step for every batch of `batches`, `epochs` times.

    step: a pd.function, a Program, or any function: called with step(**batch) where a batch is a dict, step(*batch) where
    it is a tuple. It gives the loss, or a dict with "loss", or a tuple that begins with it. evaluate(): a score after
    every epoch, of which the lowest is the best (`higher_is_better`: the highest); without it the epoch's mean loss is
    the score. patience: training ends when so many epochs in a row had no better score. restore_best: the parameters of
    the best epoch are put back at the end. progress: called after every epoch, as `progress=print`.
    checkpoints: a folder; a checkpoint is written after every epoch, and the latest one there is gone on with, by the
    bits where batches are a pd.data.DataLoader (which goes on at its next epoch). parameters: the store, where step has
    none. A loss that is non-finite is an ArgumentError after the epoch, with a hint at pd.find_nonfinite.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((64, 3)).astype(np.float32)
    >>> @pd.function(seed=1)
    ... def step(x, y):
    ...     loss = ((pd.nn.Linear('out', 3, 1)(x)[:, 0] - y) ** 2).mean()
    ...     pd.minimize(loss, pd.Adam(0.05))
    ...     return loss
    >>> history = pd.fit(step, pd.data.DataLoader((x, x.sum(1)), 16, shuffle=True), epochs=50)
    >>> history.losses[-1] < 0.01 < history.losses[0], history.steps
    (True, 200)
    """
    training = _Training(step, parameters, higher_is_better, model, needs_store=restore_best or checkpoints is not None)
    folder = CheckpointFolder(checkpoints) if isinstance(checkpoints, (str, os.PathLike)) else checkpoints
    if folder is not None:
        training.go_on(folder, batches)
    history = training.history
    while len(history.losses) < epochs:
        began = time.perf_counter()
        loss = training.epoch(batches)
        score = None if evaluate is None else float(evaluate())
        is_best = training.scored(loss, score)
        if restore_best and is_best:
            training.keep()
        if folder is not None:
            training.save(folder, batches)
        if progress is not None:
            seconds = time.perf_counter() - began
            progress(Progress(len(history.losses), history.steps, loss, score, is_best, seconds))
        if patience is not None and len(history.losses) - history.best_epoch >= patience:
            history.stopped_early = len(history.losses) < epochs
            break
    if restore_best:
        training.put_back()
    return history


class _Training:
    def __init__(
        self, step: Callable[..., Any], parameters: Parameters | None, higher_is_better: bool, model: str, needs_store: bool
    ) -> None:
        self.history = History()
        self._step = step
        self._given = parameters
        self._sign = -1 if higher_is_better else 1
        self._model = model
        self._kept: dict[str, Any] | None = None
        if needs_store and parameters is None and not hasattr(type(step), 'parameters'):
            raise ArgumentError('fit: checkpoints and restore_best need parameters=, as the step has none')

    def _store(self) -> Parameters:
        store = self._step.parameters if self._given is None else self._given  # type: ignore[attr-defined]
        assert isinstance(store, Parameters)
        return store

    @staticmethod
    def _called_with(function: Callable[..., Any], batch: Any) -> Any:
        if isinstance(batch, dict):
            return function(**batch)
        return function(*batch) if isinstance(batch, tuple) else function(batch)

    def epoch(self, batches: Iterable[Any]) -> float:
        mean = Mean()
        for batch in batches:
            mean.add(_loss_of(self._called_with(self._step, batch)))
            self.history.steps += 1
        if mean.weight == 0:
            raise ArgumentError('fit: there are no batches\nhint: an iterator ends with its first epoch; a DataLoader does not')
        if not math.isfinite(mean.value):
            raise ArgumentError(
                f'fit: the loss of epoch {len(self.history.losses) + 1} is {mean.value}\n'
                'hint: pd.find_nonfinite(program, feeds) says where it came from'
            )
        self.history.losses.append(mean.value)
        return mean.value

    def scored(self, loss: float, score: float | None) -> bool:
        history = self.history
        if score is not None:
            history.scores.append(score)
        values = history.losses if score is None else history.scores
        is_best = history.best_epoch == 0 or self._sign * values[-1] < self._sign * values[history.best_epoch - 1]
        if is_best:
            history.best_epoch = len(history.losses)
        return is_best

    def keep(self) -> None:
        self._kept = {name: tensor.copy() for name, tensor in self._store().items()}

    def put_back(self) -> None:
        if self._kept is not None:
            restore(self._store(), self._kept)

    def save(self, folder: CheckpointFolder, batches: Iterable[Any]) -> None:
        history, manifest = self.history, Manifest()
        manifest.model = self._model
        manifest.step, manifest.epoch = history.steps, len(history.losses)
        manifest.losses = list(enumerate(history.losses, 1))
        manifest.scores = list(enumerate(history.scores, 1))
        manifest.score = self._sign * (history.scores or history.losses)[-1]
        manifest.notes = {'best_epoch': str(history.best_epoch), 'loader_epoch': str(getattr(batches, 'epoch', 0))}
        folder.save(manifest, values_of(self._store()))

    def go_on(self, folder: CheckpointFolder, batches: Iterable[Any]) -> None:
        if not folder.checkpoints():
            return
        checkpoint = load_checkpoint(folder.path, latest=True)
        manifest = checkpoint.manifest
        if manifest.model != self._model:
            raise ArgumentError(f"fit: the folder has checkpoints of '{manifest.model}', not of '{self._model}'")
        self.history = History(
            [value for _, value in manifest.losses],
            [value for _, value in manifest.scores],
            int(manifest.notes.get('best_epoch', 0)),
            manifest.step,
        )
        if isinstance(self._step, TracedFunction) and self._given is None:
            self._called_with(self._step.graph, next(iter(batches)))  # which has parameters once it is traced
        restore(self._store(), checkpoint.tensors)
        resume = getattr(batches, 'resume', None)
        if resume is not None:
            resume(int(manifest.notes.get('loader_epoch', manifest.epoch)), 0)


def _loss_of(made: Any) -> Any:
    if isinstance(made, dict):
        if 'loss' not in made:
            raise ArgumentError(f"fit: the step gives {', '.join(map(str, made))}, and no 'loss'")
        return made['loss'].item()
    if isinstance(made, (tuple, list)):
        made = made[0]
    return made.item() if hasattr(made, 'item') else made
