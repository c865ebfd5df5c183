# SPDX-License-Identifier: Apache-2.0
"""PYTHONPATH=build/python python3 benchmarks/python_models.py: training steps of four models, each written twice as a user would,
with pd.function and pd.nn.from_torch, and with PyTorch's modules in eager mode. Both begin with the same weights. In turns
in one process, NumPy arrays in and the loss out; the least of 40 steps in milliseconds. The first step's losses agree; later
ones differ where there are recurrent layers, whose two biases of PyTorch's Adam both moves."""

import os
import platform
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import paoding as pd

RANDOM = np.random.default_rng(0)
STEPS = 40


def trained(loss_of, modules):
    """PyTorch's step: loss_of(*tensors), and an update of the modules' parameters."""
    optimizer = torch.optim.Adam([parameter for module in modules for parameter in module.parameters()], lr=1e-3)

    def step(*arrays):
        optimizer.zero_grad()
        loss = loss_of(*map(torch.from_numpy, arrays))
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def compiled(loss_of):
    """Ours: the same of Values."""

    @pd.function
    def step(*arrays):
        loss = loss_of(*arrays)
        pd.minimize(loss, pd.Adam(1e-3))
        return loss

    return lambda *arrays: step(*arrays).item()


def lstm_classifier():
    lstm, out = nn.LSTM(16, 64), nn.Linear(64, 4)

    def ours(x, y):
        last = pd.nn.from_torch(lstm, 'lstm')(x).last_h[0]
        return pd.cross_entropy(pd.nn.from_torch(out, 'out')(last), y)

    def theirs(x, y):
        return functional.cross_entropy(out(lstm(x)[0][-1]), y)

    feeds = RANDOM.standard_normal((40, 32, 16)).astype(np.float32), RANDOM.integers(0, 4, 32)
    return ours, theirs, [lstm, out], feeds


def convnet():
    net = nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * 49, 10)),
    )

    def ours(x, y):
        return pd.cross_entropy(pd.nn.from_torch(net, 'net')(x), y)

    def theirs(x, y):
        return functional.cross_entropy(net(x), y)

    feeds = RANDOM.standard_normal((32, 1, 28, 28)).astype(np.float32), RANDOM.integers(0, 10, 32)
    return ours, theirs, [net], feeds


def small_gpt():
    letters, out = nn.Embedding(64, 64), nn.Linear(64, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 256, 0.0, batch_first=True, norm_first=True, activation='gelu')
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(64)

    def ours(text):
        x = pd.nn.from_torch(layers, 'layers')(pd.nn.from_torch(letters, 'letters')(text[:, :-1]), causal=True)
        return pd.cross_entropy(pd.nn.from_torch(out, 'out')(x), text[:, 1:])

    def theirs(text):
        x = layers(letters(text[:, :-1]), mask=mask, is_causal=True)
        return functional.cross_entropy(out(x).flatten(0, 1), text[:, 1:].flatten())

    return ours, theirs, [letters, layers, out], (RANDOM.integers(0, 64, (16, 65)),)


def seq2seq_with_attention():
    reader, writer, words, out = nn.GRU(64, 64), nn.GRU(64, 64), nn.Embedding(32, 64), nn.Linear(128, 32)

    def ours(source, target):
        embed = pd.nn.from_torch(words, 'words')
        read = pd.nn.from_torch(reader, 'reader')(embed(source))
        states = pd.nn.from_torch(writer, 'writer')(embed(target[:-1]), initial_h=read.last_h).outputs
        weights = pd.softmax(pd.einsum('tbh,sbh->bts', states, read.outputs))
        context = pd.einsum('bts,sbh->tbh', weights, read.outputs)
        return pd.cross_entropy(pd.nn.from_torch(out, 'out')(pd.concat([states, context], -1)), target[1:])

    def theirs(source, target):
        memory, last = reader(words(source))
        states, _ = writer(words(target[:-1]), last)
        weights = torch.softmax(torch.einsum('tbh,sbh->bts', states, memory), -1)
        context = torch.einsum('bts,sbh->tbh', weights, memory)
        logits = out(torch.cat([states, context], -1))
        return functional.cross_entropy(logits.flatten(0, 1), target[1:].flatten())

    return ours, theirs, [reader, writer, words, out], (RANDOM.integers(0, 32, (20, 16)), RANDOM.integers(0, 32, (13, 16)))


def main():
    threads = torch.get_num_threads()
    print(f'{platform.machine()}, {os.cpu_count()} cores, {threads} threads, torch {torch.__version__}, paoding {pd.__version__}')
    print(f'{"training step, ms":26}{"paoding":>9}{"torch":>9}{"torch / paoding":>17}{"first losses":>22}')
    for make in (lstm_classifier, convnet, small_gpt, seq2seq_with_attention):
        torch.manual_seed(0)
        ours, theirs, modules, feeds = make()
        steps = [compiled(ours), trained(theirs, modules)]
        least, losses = [float('inf')] * 2, [0.0, 0.0]
        for turn in range(STEPS + 3):
            for i, step in enumerate(steps):
                began = time.perf_counter()
                loss = step(*feeds)
                if turn == 0:
                    losses[i] = loss
                if turn >= 3:
                    least[i] = min(least[i], 1e3 * (time.perf_counter() - began))
        first = ' '.join(f'{each:.6f}' for each in losses)
        print(f'{make.__name__:26}{least[0]:>9.2f}{least[1]:>9.2f}{least[1] / least[0]:>17.2f}{first:>22}', flush=True)


if __name__ == '__main__':
    main()
