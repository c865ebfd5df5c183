# SPDX-License-Identifier: Apache-2.0
"""paoding inside PyTorch: the recurrent layers of a model in one line, and a graph as a differentiable function."""

import torch

import paoding as pd
import paoding.torch


class Tagger(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 32)
        self.lstm = torch.nn.LSTM(32, 64, num_layers=2, bidirectional=True, batch_first=True)
        self.out = torch.nn.Linear(128, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.out(self.lstm(self.embedding(words))[0])
        return scores


torch.manual_seed(0)
model, words, tags = Tagger(), torch.randint(100, (8, 20)), torch.randint(5, (8, 20))
before = model(words)
paoding.torch.accelerate(model)
print(f'largest difference {(model(words) - before).abs().max().item():.1e}, {type(model.lstm).__module__}')

optimizer = torch.optim.Adam(model.parameters(), 0.01)
for _ in range(30):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())
    loss.backward()
    optimizer.step()
print(f'loss {loss.item():.3f}')

with pd.Graph() as graph:
    a, b, t = (graph.input(name, pd.f32, shape) for name, shape in (('a', (16, 1)), ('b', (16, 64)), ('t', (64,))))
    graph.fetch('y', pd.lerp(a, b, t))
lerp = paoding.torch.function(graph)
x, y, w = torch.randn(16, 1, requires_grad=True), torch.randn(16, 64), torch.rand(64, requires_grad=True)
lerp(x, y, w).sum().backward()
assert x.grad is not None and w.grad is not None
print(f'gradients {tuple(x.grad.shape)} and {tuple(w.grad.shape)}')
assert model(words).shape == (8, 20, 5) and loss.item() < 1
