# SPDX-License-Identifier: Apache-2.0
"""How good predictions are: functions of arrays, Tensors among them. Labels below 0 do not count, as in cross_entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ._paoding import bleu, edit_distance
from .errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    'Mean',
    'accuracy',
    'area_under_curve',
    'bleu',
    'confusion_matrix',
    'edit_distance',
    'error_rate',
    'precision_recall_f1',
    'top_k_accuracy',
]


class Mean:
    """A mean over batches: each value counts as `weight`, the size of its batch as an example.

    >>> mean = pd.metrics.Mean()
    >>> mean.add(1.0, 30), mean.add(2.0, 10)
    (None, None)
    >>> mean.value, mean.weight
    (1.25, 40.0)
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.total = self.weight = 0.0

    def add(self, value: Any, weight: float = 1) -> None:
        self.total += float(value) * weight
        self.weight += weight

    @property
    def value(self) -> float:
        """NaN where nothing was added."""
        return self.total / self.weight if self.weight else float('nan')


def _classes_and_labels(predicted: Any, labels: Any) -> tuple[NDArray[Any], NDArray[Any]]:
    """Classes, of logits [.., classes] the best, and labels, of those that count."""
    import numpy

    predicted, labels = numpy.asarray(predicted), numpy.asarray(labels)
    if predicted.ndim == labels.ndim + 1:
        predicted = predicted.argmax(-1)
    if predicted.shape != labels.shape:
        raise ShapeError(f'predictions have the shape {predicted.shape}, labels {labels.shape}')
    return predicted[labels >= 0], labels[labels >= 0]


def accuracy(predicted: Any, labels: Any) -> float:
    """The share of labels [..] that are predicted: classes [..], or logits [.., classes].

    >>> pd.metrics.accuracy([[0.1, 0.9], [0.8, 0.2], [0.3, 0.7]], [1, 1, -1])
    0.5
    """
    classes, kept = _classes_and_labels(predicted, labels)
    return float((classes == kept).mean()) if kept.size else float('nan')


def top_k_accuracy(logits: Any, labels: Any, k: int) -> float:
    """The share of labels [..] among the k largest of logits [.., classes]; equal ones in the order of classes."""
    import numpy

    logits, labels = numpy.asarray(logits), numpy.asarray(labels)
    if logits.shape[:-1] != labels.shape or not 1 <= k <= logits.shape[-1]:
        raise ShapeError(f'top_k_accuracy: logits are {logits.shape}, labels {labels.shape}, k {k}')
    kept = labels >= 0
    best = numpy.argsort(-logits[kept], axis=-1, kind='stable')[:, :k]
    return float((best == labels[kept][:, None]).any(-1).mean()) if kept.any() else float('nan')


def confusion_matrix(predicted: Any, labels: Any, classes: int) -> NDArray[Any]:
    """How often each label (row) was predicted as each class (column), i64 [classes, classes]."""
    import numpy

    given, kept = _classes_and_labels(predicted, labels)
    for each in (given, kept):
        if each.size and not (0 <= each.min() and each.max() < classes):
            raise ArgumentError(f'confusion_matrix: there is a class {each.max()} or {each.min()}, needed are 0 to {classes - 1}')
    made = numpy.zeros((classes, classes), numpy.int64)
    numpy.add.at(made, (kept, given), 1)
    return made


def precision_recall_f1(predicted: Any, labels: Any, classes: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Of each class: the share of its predictions that are right, the share of its labels that were found, and their
    harmonic mean; 0 where there are none. [classes] each; a mean of them is a macro average."""
    import numpy

    matrix = confusion_matrix(predicted, labels, classes)
    right = numpy.diag(matrix).astype(numpy.float64)
    precision = right / numpy.maximum(matrix.sum(0), 1)
    recall = right / numpy.maximum(matrix.sum(1), 1)
    both = precision + recall
    return precision, recall, numpy.where(both > 0, 2 * precision * recall / numpy.where(both > 0, both, 1), 0.0)


def area_under_curve(scores: Any, labels: Any) -> float:
    """The area under the receiver operating characteristic: the chance that a positive (label 1) has a higher score than
    a negative (label 0); equal ones count half. NaN without both."""
    import numpy

    scores, labels = numpy.asarray(scores).ravel(), numpy.asarray(labels).ravel()
    if scores.shape != labels.shape:
        raise ShapeError(f'area_under_curve: {scores.size} scores for {labels.size} labels')
    values, places, counts = numpy.unique(scores, return_inverse=True, return_counts=True)
    ranks = (numpy.cumsum(counts) - (counts - 1) / 2)[places]
    positives = labels == 1
    count = int(positives.sum())
    others = int((labels == 0).sum())
    if count == 0 or others == 0 or values.size == 0:
        return float('nan')
    return float((ranks[positives].sum() - count * (count + 1) / 2) / (count * others))


def error_rate(predicted: Sequence[Sequence[int]], references: Sequence[Sequence[int]]) -> float:
    """Edits that make predictions references, over the references' elements: the phoneme, word or character error rate.

    >>> pd.metrics.error_rate([[1, 2, 3], [4]], [[1, 3], [4, 5]])
    0.5
    """
    if len(predicted) != len(references):
        raise ArgumentError(f'error_rate: {len(predicted)} predictions for {len(references)} references')
    edits = sum(edit_distance(list(a), list(b)) for a, b in zip(predicted, references, strict=True))
    elements = sum(len(each) for each in references)
    return edits / elements if elements else float('nan')
