# SPDX-License-Identifier: Apache-2.0
"""The program of docs/guide/python/3_training.md: schedules, groups, held-out scores, checkpoints that a run goes on from.

    python training.py FOLDER
"""

from __future__ import annotations

import sys
import tempfile

import numpy as np

import paoding as pd

TRAIN, HELD_OUT, BATCH, EPOCHS = 1600, 400, 64, 20
STEPS = EPOCHS * (TRAIN // BATCH)

random = np.random.default_rng(1)
labels = np.arange(TRAIN + HELD_OUT) % 2
radius = random.uniform(0.25, 1, TRAIN + HELD_OUT)
angle = 9 * radius + np.pi * labels
places = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + random.uniform(-0.12, 0.12, (len(radius), 2))


def classify(points: pd.Value, training: bool) -> pd.Value:
    dropout = pd.nn.Dropout(0.05, training=training)
    hidden = dropout(pd.relu(pd.nn.Linear('first', 2, 64)(4.0 * points)))
    hidden = dropout(pd.relu(pd.nn.Linear('second', 64, 64)(hidden)))
    return pd.nn.Linear('last', 64, 2)(hidden)


with pd.Graph() as training:
    x = training.input('places', pd.f32, (BATCH, 2))
    y = training.input('labels', pd.i64, BATCH)
    loss = pd.cross_entropy(classify(x, training=True), y, label_smoothing=0.02)
    pd.minimize(
        loss,
        pd.AdamW(pd.cosine_decay(0.01, STEPS, last=1e-4, warmup=20), weight_decay=0.01),
        groups=[
            pd.ParameterGroup(['*/bias'], weight_decay=0.0),
            pd.ParameterGroup(['last/*'], rate_factor=0.5),
        ],
        clip_norm=1,
        skip_nonfinite=True,
        average_decay=0.98,
    )
    training.fetch('loss', loss)

with pd.Graph() as evaluating:
    x = evaluating.input('places', pd.f32, (HELD_OUT, 2))
    y = evaluating.input('labels', pd.i64, HELD_OUT)
    scores = classify(x, training=False)
    evaluating.fetch('loss', pd.cross_entropy(scores, y))
    evaluating.fetch('right', (scores.argmax(axis=1) == y).mean())

parameters = pd.Parameters(training, device='best', seed=3)
trainer = pd.Program(training, parameters)
evaluator = pd.Program(evaluating, parameters)

folder = pd.CheckpointFolder(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
manifest = pd.Manifest()
manifest.model, manifest.score_name = 'spirals', 'loss'
if folder.checkpoints():
    checkpoint = pd.load_checkpoint(folder.latest())
    pd.restore(parameters, checkpoint.tensors)
    manifest = checkpoint.manifest
    print('goes on after epoch', manifest.epoch)

for epoch in range(manifest.epoch, EPOCHS):
    order = np.random.default_rng((7, epoch)).permutation(TRAIN)  # by a seed and the epoch: a run that goes on sees the same
    for batch in order.reshape(-1, BATCH):
        trainer(places=places[batch], labels=labels[batch])
        manifest.step += 1
    if (epoch + 1) % 5 == 0:
        held_out = evaluator(places=places[TRAIN:], labels=labels[TRAIN:])
        print(f'epoch {epoch + 1}: held-out loss {held_out["loss"]:.4f}, right {held_out["right"]:.1%}')
        manifest.epoch, manifest.score = epoch + 1, held_out['loss'].item()
        folder.save(manifest, parameters)

averaged = pd.Parameters(evaluating)
pd.restore(averaged, pd.averages_of(parameters))
held_out = pd.Program(evaluating, averaged)(places=places[TRAIN:], labels=labels[TRAIN:])
print(f'the averaged weights: right {held_out["right"]:.1%}')
print(f'{manifest.step} steps, {parameters["optimizer/skipped"].item()} skipped')
