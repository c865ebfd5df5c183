# SPDX-License-Identifier: Apache-2.0
"""Batches of pd.data, and pd.metrics beside loops written out."""

import doctest
import threading
import time

import numpy as np
import pytest

import paoding as pd

RNG = np.random.default_rng(0)


def test_the_examples_of_docstrings_are_true():
    seen = 0
    for module in (pd.data, pd.metrics):
        for name in module.__all__:
            for example in doctest.DocTestFinder(recurse=False).find(getattr(module, name), name, globs={'pd': pd}):
                seen += bool(example.examples)
                assert doctest.DocTestRunner().run(example).failed == 0, name
    assert seen >= 6


@pytest.mark.parametrize('prefetch', [0, 1, 4])
def test_every_example_is_there_once_an_epoch_in_an_order_of_the_seed(prefetch):
    x = RNG.standard_normal((23, 3))
    loader = pd.data.DataLoader({'x': x, 'i': np.arange(23)}, 5, shuffle=True, seed=7, prefetch=prefetch)
    epochs = [list(loader), list(loader)]
    for epoch in epochs:
        assert sorted(len(batch['i']) for batch in epoch) == [3, 5, 5, 5, 5]
        for batch in epoch:
            np.testing.assert_array_equal(batch['x'], x[batch['i']])
    order = [np.concatenate([batch['i'] for batch in epoch]).tolist() for epoch in epochs]
    assert sorted(order[0]) == sorted(order[1]) == list(range(23))
    assert order[0] != order[1] != list(range(23))
    again = pd.data.DataLoader(x, 5, shuffle=True, seed=7)
    np.testing.assert_array_equal(np.concatenate(list(again)), x[order[0]])
    other = pd.data.DataLoader((x, x), 5, shuffle=True, seed=8)
    assert not np.array_equal(np.concatenate([a for a, _ in other]), x[order[0]])


def test_an_epoch_is_gone_on_with_where_it_was_left():
    whole = pd.data.DataLoader(np.arange(20), 3, shuffle=True, seed=1)
    wanted = [batch.tolist() for _ in range(2) for batch in whole]
    first = pd.data.DataLoader(np.arange(20), 3, shuffle=True, seed=1)
    seen = []
    for batch in first:
        seen.append(batch.tolist())
        if len(seen) == 4:
            break
    assert (first.epoch, first.batch) == (0, 4)
    other = pd.data.DataLoader(np.arange(20), 3, shuffle=True, seed=1, prefetch=0)
    other.resume(first.epoch, first.batch)
    seen += [batch.tolist() for batch in other]
    assert (other.epoch, other.batch) == (1, 0)
    other.resume(0, 7)  # an epoch that is over
    seen += [batch.tolist() for batch in other]
    assert seen == wanted
    with pytest.raises(pd.ArgumentError, match='there is no batch 8 of 7 in epoch 0'):
        other.resume(0, 8)


def test_only_examples_of_one_bucket_share_a_batch():
    lengths = RNG.integers(1, 31, 50)
    examples = [np.full(n, i) for i, n in enumerate(lengths)]
    collated = []

    def collate(rows, bound):
        collated.append(bound)
        return pd.data.padded(rows, bound, -1)

    for given in (lengths, len):
        loader = pd.data.DataLoader(
            examples, 4, shuffle=True, lengths=given, buckets=[5, 10, 30], collate=collate, prefetch=0
        )
        seen = []
        for array, counts in loader:
            bound = array.shape[1]
            assert bound == collated[-1] and bound in (5, 10, 30)
            below = {5: 0, 10: 5, 30: 10}[bound]
            assert ((below < counts) & (counts <= bound)).all()
            assert ((array >= 0).sum(1) == counts).all()
            seen += array[:, 0].tolist()
        assert sorted(seen) == list(range(50))
    dropped = pd.data.DataLoader(examples, 4, lengths=len, buckets=[30], drop_last=True, collate=collate)
    assert [len(counts) for _, counts in dropped] == [4] * 12 and len(dropped) == 12


def test_batches_are_made_ahead_while_one_is_trained_on():
    started = []

    class Slow:
        def __len__(self):
            return 6

        def __getitem__(self, i):
            started.append((i, threading.current_thread() is threading.main_thread()))
            return np.float32(i)

    batches = iter(pd.data.DataLoader(Slow(), 1, prefetch=2))
    next(batches)
    until = time.monotonic() + 5
    while len(started) < 3 and time.monotonic() < until:
        time.sleep(0.01)
    assert [i for i, _ in started] >= [0, 1, 2] and len(started) <= 4
    assert not any(is_main for _, is_main in started)
    batches.close()
    assert not [each for each in threading.enumerate() if each.name.endswith('(_work)')]


@pytest.mark.parametrize('prefetch', [0, 3])
def test_errors_of_a_data_set_are_raised_by_the_loop(prefetch):
    class Broken:
        def __len__(self):
            return 9

        def __getitem__(self, i):
            if i == 5:
                raise OSError('example 5 is not there')
            return i

    seen = []
    with pytest.raises(OSError, match='example 5 is not there'):
        for batch in pd.data.DataLoader(Broken(), 2, prefetch=prefetch):
            seen.append(batch.tolist())
    assert seen == [[0, 1], [2, 3]]


def test_examples_are_stacked_as_they_are_nested():
    made = pd.data.stacked([{'x': np.ones(2) * i, 'y': i} for i in range(3)])
    np.testing.assert_array_equal(made['x'], np.arange(3)[:, None] * np.ones(2))
    np.testing.assert_array_equal(made['y'], np.arange(3))
    xs, ys = pd.data.stacked([(np.zeros((2, 1)), i) for i in range(4)])
    assert xs.shape == (4, 2, 1) and ys.tolist() == [0, 1, 2, 3]
    with pytest.raises(pd.ShapeError, match=r"a batch of 'x' has examples of the shapes \[\(1,\), \(2,\)\]"):
        pd.data.stacked([{'x': [1]}, {'x': [1, 2]}])
    array, lengths = pd.data.padded([np.ones((2, 3), np.float32), np.ones((0, 3), np.float32)], value=5)
    assert array.dtype == np.float32 and lengths.tolist() == [2, 0]
    np.testing.assert_array_equal(array, np.stack([np.ones((2, 3)), np.full((2, 3), 5)]))
    with pytest.raises(pd.ShapeError, match='a sequence has the length 3, more than 2'):
        pd.data.padded([[1, 2, 3]], 2)


def test_what_does_not_fit_is_refused():
    for make, problem in (
        (lambda: pd.data.DataLoader(np.arange(3), 0), 'batch_size is 0'),
        (lambda: pd.data.DataLoader({'a': np.arange(3), 'b': np.arange(4)}, 1), r'columns have the shapes \[\(3,\), \(4,\)\]'),
        (lambda: pd.data.DataLoader([1], 1, buckets=[3]), 'buckets are ascending bounds of lengths'),
        (lambda: pd.data.DataLoader([1], 1, buckets=[3], lengths=[1, 2]), 'there are 2 lengths for 1 examples'),
        (lambda: pd.data.DataLoader([1], 1, buckets=[3], lengths=[4]), 'example 0 has the length 4, more than the last bound, 3'),
        (lambda: pd.data.DataLoader((np.arange(3),), 1, collate=list), 'collate is of examples'),
    ):
        with pytest.raises(pd.ArgumentError, match=problem):
            make()
    assert list(pd.data.DataLoader([], 3)) == []


def test_parts_of_a_data_set_are_drawn_by_the_seed():
    parts = pd.data.split(100, [0.8, 0.1], 3)
    assert [len(part) for part in parts] == [80, 10, 10]
    assert sorted(sum(parts, [])) == list(range(100))
    assert parts == pd.data.split(100, [0.8, 0.1], 3) != pd.data.split(100, [0.8, 0.1], 4)


def test_metrics_of_classes():
    logits, labels = RNG.standard_normal((40, 5)), RNG.integers(-1, 5, 40)
    best, kept = logits.argmax(1), labels >= 0
    assert pd.metrics.accuracy(pd.Tensor(logits), labels) == (best == labels)[kept].mean()
    assert pd.metrics.accuracy(best, labels) == (best == labels)[kept].mean()
    for k in (1, 3, 5):
        wanted = np.mean([label in np.argsort(-row)[:k] for row, label in zip(logits, labels) if label >= 0])
        assert pd.metrics.top_k_accuracy(logits, labels, k) == wanted
    matrix = pd.metrics.confusion_matrix(logits, labels, 5)
    precision, recall, f1 = pd.metrics.precision_recall_f1(logits, labels, 5)
    for c in range(5):
        for d in range(5):
            assert matrix[c, d] == sum(1 for a, b in zip(best, labels) if b == c and a == d)
        hits = int(((best == c) & (labels == c)).sum())
        predicted, there = int(((best == c) & kept).sum()), int((labels == c).sum())
        assert precision[c] == (hits / predicted if predicted else 0)
        assert recall[c] == (hits / there if there else 0)
        np.testing.assert_allclose(f1[c], 2 * hits / (predicted + there) if predicted + there else 0)
    with pytest.raises(pd.ShapeError, match=r'predictions have the shape \(3,\), labels \(2,\)'):
        pd.metrics.accuracy([1, 2, 3], [1, 2])
    with pytest.raises(pd.ArgumentError, match='needed are 0 to 1'):
        pd.metrics.confusion_matrix([1, 2], [1, 1], 2)


def test_area_under_curve_is_the_chance_of_the_right_order():
    scores, labels = RNG.integers(0, 6, 40) / 6, RNG.integers(0, 2, 40)
    pairs = [(p > n) + 0.5 * (p == n) for p in scores[labels == 1] for n in scores[labels == 0]]
    np.testing.assert_allclose(pd.metrics.area_under_curve(scores, labels), np.mean(pairs))
    assert np.isnan(pd.metrics.area_under_curve([0.5], [1]))


def test_metrics_of_sequences():
    assert pd.metrics.edit_distance([1, 2, 3], [2, 3, 4]) == 2
    assert pd.metrics.error_rate([[1], []], [[1, 2], [3]]) == 2 / 3
    assert pd.metrics.bleu(['the cat sat on the mat'], ['the cat sat on the mat']) == pytest.approx(100)
    mean = pd.metrics.Mean()
    assert np.isnan(mean.value)
    for value, weight in ((1, 2), (4, 1)):
        mean.add(value, weight)
    assert mean.value == 2
