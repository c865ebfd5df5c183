# SPDX-License-Identifier: Apache-2.0
"""Programs without a fault, of real shapes: compiled or captured, in bf16, dimensions that tensor cores like."""
import sys

import torch
from torch.nn import functional

from seeded import (BF16, CUDA, DEVICE, Captured, Layers, clean, main, size, without_gradients)
from feeding import fed_step, loaded
from kernels import convolved


def compiled(function, **options):
    return torch.compile(function, **options) if CUDA else function


class Block(torch.nn.Module):
    """A transformer block whose attention is one kernel."""

    def __init__(self, width, heads, causal):
        super().__init__()
        like = {"device": DEVICE, "dtype": BF16}
        self.heads, self.causal = heads, causal
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(width, **like) for _ in range(2))
        self.qkv = torch.nn.Linear(width, 3 * width, **like)
        self.out = torch.nn.Linear(width, width, **like)
        self.up = torch.nn.Linear(width, 4 * width, **like)
        self.down = torch.nn.Linear(4 * width, width, **like)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*parts, is_causal=self.causal)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))


def transformer(layers=3, width=1024, heads=16, batch=32, length=512, causal=False):
    net = torch.nn.Sequential(*(Block(width if CUDA else 64, heads if CUDA else 4, causal) for _ in range(layers)))
    x = torch.randn(batch if CUDA else 2, size(length), width if CUDA else 64, device=DEVICE, dtype=BF16)
    return net, x


def trained(net, x, loss=lambda y: y.float().square().mean(), compile_too=True):
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=CUDA)
    run = compiled(lambda x: loss(net(x))) if compile_too else (lambda x: loss(net(x)))

    def step():
        optimizer.zero_grad(set_to_none=True)
        run(x).backward()
        optimizer.step()
    return step


def resnet(name, batch):
    import torchvision
    net = getattr(torchvision.models, name)().to(DEVICE, BF16, memory_format=torch.channels_last)
    pixels = 224 if CUDA else 64
    x = torch.randn(batch if CUDA else 2, 3, pixels, pixels, device=DEVICE, dtype=BF16)
    return net, x.to(memory_format=torch.channels_last)


@clean(mode="graph")
def resnet18_inference(faulty):
    net, x = resnet("resnet18", 64)
    run = compiled(net.eval(), mode="reduce-overhead")
    return without_gradients(lambda: run(x))


@clean(mode="graph")
def resnet50_inference(faulty):
    net, x = resnet("resnet50", 32)
    run = compiled(net.eval(), mode="reduce-overhead")
    return without_gradients(lambda: run(x))


@clean(mode="compile", shapes=False, active=6)
def resnet18_training(faulty):
    net, x = resnet("resnet18", 128)
    return trained(net, x)


@clean(mode="compile", shapes=False, active=6)
def resnet50_training(faulty):
    net, x = resnet("resnet50", 64)
    return trained(net, x)


@clean(mode="graph")
def bert_inference(faulty):
    net, x = transformer()
    run = compiled(net, mode="reduce-overhead")
    return without_gradients(lambda: run(x))


@clean(mode="compile")
def bert_training(faulty):
    return trained(*transformer())


@clean(mode="compile")
def gpt_training(faulty):
    return trained(*transformer(layers=2, width=2048, heads=32, batch=8, length=1024, causal=True))


@clean(mode="compile")
def bert_inference_compiled(faulty):
    net, x = transformer(layers=2, width=2048, heads=16, batch=32, length=512)
    run = compiled(net)
    return without_gradients(lambda: run(x))


@clean()
def layers_training(faulty):
    return Layers().train


@clean(mode="compile")
def layers_training_compiled(faulty):
    model = Layers(layers=6)
    loss = compiled(lambda x, y: functional.mse_loss(model.forward(x), y))
    model.loss = lambda x=None, y=None: loss(model.x, model.y)
    return model.train


@clean(mode="graph")
def layers_training_captured(faulty):
    return Captured(Layers().train)


@clean()
def layers_with_workers(faulty):
    return fed_step(*loaded(1, 4, batch=8192))


@clean()
def wide_layers_inference(faulty):
    model = Layers(batch=16384, width=8192, layers=2)
    return without_gradients(lambda: model.forward(model.x))


@clean()
def convolutions_training(faulty):
    return convolved(True, train=True, channels=256)


@clean(mode="graph")
def convolutions_inference(faulty):
    return Captured(convolved(True, channels=256))


@clean()
def lstm_training(faulty):
    net = torch.nn.LSTM(size(1024), size(1024), 2, device=DEVICE, dtype=BF16)
    x = torch.randn(24 if CUDA else 3, size(1024), size(1024), device=DEVICE, dtype=BF16)
    return trained(net, x, loss=lambda y: y[0].sum(), compile_too=False)


@clean(mode="graph")
def lstm_inference(faulty):
    net = torch.nn.LSTM(size(1024), size(1024), 2, device=DEVICE, dtype=BF16)
    x = torch.randn(24 if CUDA else 3, size(1024), size(1024), device=DEVICE, dtype=BF16)
    return Captured(without_gradients(lambda: net(x)))


@clean()
def attention_inference(faulty):
    parts = [torch.randn(16 if CUDA else 1, 16, size(2048), 64, device=DEVICE, dtype=BF16) for _ in range(3)]

    def step():
        for _ in range(4):
            functional.scaled_dot_product_attention(*parts, is_causal=True)
    return without_gradients(step)


if __name__ == "__main__":
    sys.exit(main())
