# SPDX-License-Identifier: Apache-2.0
"""Faults on the GPU: chains, layouts, gradients, grids, precision, dimensions, bandwidth, products."""
import sys

import torch
from torch.nn import functional

from seeded import (BF16, CUDA, DEVICE, Captured, Layers, fault, main, precision, size, without_gradients)

if CUDA:
    import triton_kernels


# ---- pointwise_chain ----

def tanh_gelu(x):
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def between_products(function, batch=8192, width=4096):
    """A step of four products with `function` between them, without gradients."""
    model = Layers(batch=batch, width=width)

    def step():
        x = model.x
        for linear in model.linears[:-1]:
            x = function(linear(x))
        return model.linears[-1](x)
    return without_gradients(step)


@fault("pointwise_chain")
def gelu_by_hand(faulty):
    return between_products(tanh_gelu if faulty else lambda x: functional.gelu(x, approximate="tanh"))


@fault("pointwise_chain")
def norm_by_hand(faulty):
    scale = torch.ones(size(4096), device=DEVICE, dtype=BF16)

    def by_hand(x):
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * scale
    return between_products(by_hand if faulty else lambda x: functional.rms_norm(x, x.shape[-1:], scale, 1e-6))


@fault("pointwise_chain", mode="graph")
def gelu_by_hand_in_a_graph(faulty):
    return Captured(between_products(tanh_gelu if faulty else lambda x: functional.gelu(x, approximate="tanh")))


@fault("pointwise_chain", also=("late_launches",))
def adam_by_hand(faulty):
    """An optimizer's step as a chain of ops a parameter; the twin has it fused."""
    model = Layers(batch=4096, width=8192, layers=3)
    parameters = list(model.linears.parameters())
    if not faulty:
        model.optimizer = torch.optim.Adam(parameters, lr=1e-4, fused=CUDA)
        return model.train
    means = [torch.zeros_like(one) for one in parameters]
    squares = [torch.zeros_like(one) for one in parameters]

    def step():
        for one in parameters:
            one.grad = None
        model.loss().backward()
        with torch.no_grad():
            for one, mean, square in zip(parameters, means, squares):
                mean.mul_(0.9).add_(one.grad, alpha=0.1)
                square.mul_(0.999).addcmul_(one.grad, one.grad, value=0.001)
                one.sub_(1e-4 * mean / (square.sqrt() + 1e-8))
    return step


@fault("pointwise_chain", also=("late_launches",))
def swiglu_by_hand(faulty):
    """x sigmoid(x) y as three ops with casts to f32 around them; the twin is one op less and stays in bf16."""
    a, b = (torch.randn(size(8192), size(8192), device=DEVICE, dtype=BF16) for _ in range(2))
    model = Layers(batch=8192)

    def step():
        model.forward(model.x)
        if faulty:
            gate = a.float()
            return (gate * torch.sigmoid(gate) * b.float()).to(BF16)
        return functional.silu(a) * b
    return without_gradients(step)


# ---- layout_kernels ----

class Convolutions(torch.nn.Module):
    """Convolutions with ReLU between them, without biases and normalization."""

    def __init__(self, channels=128, count=5, dtype=BF16):
        super().__init__()
        channels = size(channels)
        self.layers = torch.nn.ModuleList(
            torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False, device=DEVICE, dtype=dtype)
            for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = functional.relu_(layer(x)) if not x.requires_grad else functional.relu(layer(x))
        return x


def images(channels=128, batch=64, side=56, dtype=BF16):
    return torch.randn(batch if CUDA else 2, size(channels), side if CUDA else 8, side if CUDA else 8,
                       device=DEVICE, dtype=dtype)


def convolved(channels_last, train=False, channels=128, batch=64, dtype=BF16):
    net, x = Convolutions(channels, dtype=dtype), images(channels, batch, dtype=dtype)
    if channels_last:
        net, x = net.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if not train:
        return without_gradients(lambda: net(x))
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, fused=CUDA)

    def step():
        optimizer.zero_grad(set_to_none=True)
        net(x).mean().backward()
        optimizer.step()
    return step


@fault("layout_kernels")
def channels_first(faulty):
    return convolved(channels_last=not faulty)


@fault("layout_kernels", mode="graph")
def channels_first_in_a_graph(faulty):
    return Captured(convolved(channels_last=not faulty))


@fault("layout_kernels")
def channels_first_trained(faulty):
    return convolved(channels_last=not faulty, train=True)


@fault("layout_kernels")
def heads_made_contiguous(faulty):
    """Attention whose heads are copied into an order of their own in front of it and behind it."""
    batch, length, heads, width = 16 if CUDA else 2, size(1024), 16, 64
    project = torch.nn.Linear(heads * width, 3 * heads * width, bias=False, device=DEVICE, dtype=BF16)
    x = torch.randn(batch, length, heads * width, device=DEVICE, dtype=BF16)

    def step():
        for _ in range(3):
            parts = project(x).view(batch, length, 3, heads, width).permute(2, 0, 3, 1, 4)
            query, key, value = (part.contiguous() if faulty else part for part in parts)
            functional.scaled_dot_product_attention(query, key, value)
    return without_gradients(step)


@fault("layout_kernels", also=("pointwise_chain",))
def casts_between_layers(faulty):
    """Results go to f32 and back between products, as code from before bf16 does."""
    return between_products((lambda x: torch.relu(x.float()).to(BF16)) if faulty else torch.relu)


@fault("layout_kernels")
def weights_cast_every_time(faulty):
    """Weights are kept in f32 and cast for each of four parts of a batch; the twin casts them once a step."""
    width = size(4096)
    weights = [torch.randn(width, width, device=DEVICE) for _ in range(4)]
    parts = [torch.randn(size(1024), width, device=DEVICE, dtype=BF16) for _ in range(4)]

    def step():
        cast = None if faulty else [weight.to(BF16) for weight in weights]
        for x in parts:
            for i, weight in enumerate(weights):
                x = torch.relu(x @ (weight.to(BF16) if faulty else cast[i]))
    return without_gradients(step)


# ---- gradient_fills ----

@fault("gradient_fills")
def gradients_set_to_zero(faulty):
    model = Layers(batch=2048, width=16384, layers=2)
    return lambda: model.train(set_to_none=not faulty)


@fault("gradient_fills", mode="graph")
def gradients_set_to_zero_in_a_graph(faulty):
    model = Layers(batch=2048, width=16384, layers=2)
    return Captured(lambda: model.train(set_to_none=not faulty))


@fault("gradient_fills")
def gradients_summed_by_hand(faulty):
    """Gradients of two halves of a batch are added to zeros; the twin lets the second half add to the first."""
    model = Layers(batch=2048, width=12288, layers=2)
    parameters = list(model.linears.parameters())

    def step():
        model.optimizer.zero_grad(set_to_none=True)
        sums = [torch.zeros_like(one) for one in parameters] if faulty else []
        for _ in range(2):
            model.loss().backward()
            if faulty:
                for total, one in zip(sums, parameters):
                    total += one.grad
                    one.grad = None
        if faulty:
            for total, one in zip(sums, parameters):
                one.grad = total
        model.optimizer.step()
    return step


# ---- small_grid ----

@fault("small_grid")
def softmax_of_few_rows(faulty):
    """Softmax of a batch in parts of 16 rows, one CTA each; the twin takes all rows at once."""
    x = torch.randn(16 if CUDA else 1, 16, size(1 << 17), device=DEVICE)
    if not faulty:
        x = x.view(1, -1, x.shape[-1])

    def step():
        for part in x:
            torch.softmax(part, -1)
    return without_gradients(step)


@fault("small_grid")
def triton_of_few_programs(faulty):
    """A kernel that is launched with 24 programs however large its tensor is; the twin has one for every 4 K elements."""
    x = torch.randn(size(4096), size(8192), device=DEVICE)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        if CUDA:
            torch.ops.seeded.scaled(x, 2.0, 24 if faulty else 0)
    return without_gradients(step)


@fault("small_grid", also=("late_launches", "layout_kernels"))
def heads_in_a_loop(faulty):
    """Sixteen heads are projected one after the other in a Python loop; the twin projects them at once."""
    heads, width = 16, size(128)
    x = torch.randn(size(8192), heads * width, device=DEVICE, dtype=BF16)
    weights = [torch.randn(heads * width, width, device=DEVICE, dtype=BF16) for _ in range(heads)]
    together = torch.cat(weights, 1)

    def step():
        if not faulty:
            return x @ together
        return torch.cat([x @ weight for weight in weights], 1)
    return without_gradients(step)


@fault("small_grid", mode="graph", also=("late_launches",))
def micro_batches_in_a_graph(faulty):
    """A batch in 16 parts that fill a tenth of the GPU each; the twin computes it at once."""
    rows, width = (128 if faulty else 2048), 2048
    weights = [torch.randn(size(width), size(width), device=DEVICE, dtype=BF16) for _ in range(4)]
    x = torch.randn(size(rows), size(width), device=DEVICE, dtype=BF16)

    def step():
        for _ in range(16 if faulty else 1):
            hidden = x
            for weight in weights:
                hidden = torch.relu(hidden @ weight)
    return Captured(without_gradients(step))


# ---- exact_f32_product ----

def exact(step, faulty):
    return step, precision("highest" if faulty else "high"), precision("highest")


@fault("exact_f32_product")
def exact_products(faulty):
    model = Layers(batch=2048, width=2048, dtype=torch.float32)
    return exact(model.train, faulty)


@fault("exact_f32_product")
def exact_convolutions(faulty):
    return exact(convolved(True, channels=64, batch=32, dtype=torch.float32), faulty)


@fault("exact_f32_product", mode="graph")
def exact_products_in_a_graph(faulty):
    precision("highest" if faulty else "high")()
    model = Layers(batch=2048, width=2048, dtype=torch.float32)
    replay = Captured(model.train)
    precision("highest")()
    return replay


@fault("exact_f32_product")
def exact_batched_products(faulty):
    a, b = (torch.randn(8 if CUDA else 2, size(2048), size(1024), device=DEVICE) for _ in range(2))

    def step():
        for _ in range(4):
            torch.bmm(a, b.transpose(1, 2))
    return exact(without_gradients(step), faulty)


# ---- odd_dimensions ----

@fault("odd_dimensions")
def odd_width(faulty):
    return Layers(batch=8192, width=4095 if faulty else 4096).train


@fault("odd_dimensions")
def odd_vocabulary(faulty):
    words = 50257 if faulty else 50304
    out = torch.nn.Linear(size(1024), size(words), bias=False, device=DEVICE, dtype=BF16)
    x = torch.randn(size(8192), size(1024), device=DEVICE, dtype=BF16)
    return without_gradients(lambda: out(x))


@fault("odd_dimensions", mode="graph")
def odd_width_in_a_graph(faulty):
    model = Layers(batch=8192, width=4095 if faulty else 4096)
    return Captured(without_gradients(lambda: model.forward(model.x)))


@fault("odd_dimensions", also=("layout_kernels",))
def odd_channels(faulty):
    return convolved(True, channels=125 if faulty else 128)


# ---- far_from_bandwidth ----

@fault("far_from_bandwidth", also=("layout_kernels",))
def sum_with_transposed(faulty):
    """A tensor is added to one that lies the other way round."""
    a = torch.randn(size(8192), size(8192), device=DEVICE)
    b = torch.randn(size(8192), size(8192), device=DEVICE)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        torch.add(a, b.t() if faulty else b)
    return without_gradients(step)


@fault("far_from_bandwidth")
def columns_gathered(faulty):
    """Columns are gathered in a random order, two bytes at a time; the twin gathers rows."""
    x = torch.randn(size(8192), size(8192), device=DEVICE, dtype=BF16)
    order = torch.randperm(x.shape[0]).to(DEVICE)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        torch.index_select(x, 1 if faulty else 0, order)
    return without_gradients(step)


@fault("far_from_bandwidth")
def strided_triton(faulty):
    """A kernel whose neighbouring lanes read 4 KB apart."""
    x = torch.randn(size(8192), size(8192), device=DEVICE)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        if CUDA:
            torch.ops.seeded.strided(x, 2.0, faulty)
    return without_gradients(step)


@fault("far_from_bandwidth", mode="graph")
def tiny_rows_normalized(faulty):
    """Layer norm of rows of 16, a CTA each; the twin has a kernel for small rows."""
    x = torch.randn(size(1 << 20), 16, device=DEVICE)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        if faulty or not CUDA:
            return functional.layer_norm(x, (16,))
        return torch.ops.seeded.small_rows_norm(x)
    return Captured(without_gradients(step))


# ---- slow_product ----

@fault("slow_product")
def products_by_hand(faulty):
    """Products by a kernel of somebody's own, of small tiles."""
    a, b = (torch.randn(size(2048), size(2048), device=DEVICE, dtype=BF16) for _ in range(2))
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        if faulty and CUDA:
            torch.ops.seeded.product(a, b)
        else:
            torch.mm(a, b)
    return without_gradients(step)


@fault("slow_product", mode="graph")
def products_by_hand_in_a_graph(faulty):
    return Captured(products_by_hand(faulty))


@fault("slow_product", also=("odd_dimensions", "far_from_bandwidth", "layout_kernels"))
def product_as_many(faulty):
    """einsum with a weight that was expanded along the batch: a product with one row for each of its rows."""
    x = torch.randn(size(2048), size(2048), device=DEVICE, dtype=BF16)
    weight = torch.randn(size(2048), size(2048), device=DEVICE, dtype=BF16)
    model = Layers(batch=4096)

    def step():
        model.forward(model.x)
        if faulty:
            torch.bmm(x.unsqueeze(1), weight.expand(x.shape[0], *weight.shape))
        else:
            torch.mm(x, weight)
    return without_gradients(step)


@fault("slow_product")
def rows_one_product_each(faulty):
    """A product of many rows as a batch of products of 64 rows by a kernel of small tiles; the twin is the library's."""
    a, b = (torch.randn(size(4096), size(4096), device=DEVICE, dtype=BF16) for _ in range(2))
    model = Layers(batch=8192)

    def step():
        model.forward(model.x)
        if faulty and CUDA:
            for part in a.split(1024):
                torch.ops.seeded.product(part, b)
        else:
            torch.mm(a, b)
    return without_gradients(step)


if __name__ == "__main__":
    sys.exit(main())
