# SPDX-License-Identifier: Apache-2.0
"""Faults in programs that torch.compile made, and programs with one that it mends."""
import sys

import torch
from torch.nn import functional

from seeded import BF16, CUDA, DEVICE, Captured, Layers, fault, main, precision, size, without_gradients
from feeding import fed_step, loaded


def compiled(function, **options):
    return torch.compile(function, **options) if CUDA else function


# ---- late_launches ----

@fault("late_launches", mode="compile")
def compiled_without_graphs(faulty):
    """A compiled step of many small layers whose kernels are launched one by one; the twin is "reduce-overhead"."""
    model = Layers(batch=2048, width=1024, layers=24)
    forward = compiled(model.forward, mode=None if faulty else "reduce-overhead")
    return without_gradients(lambda: forward(model.x))


# ---- pointwise_chain ----

@fault("pointwise_chain", mode="compile")
def graph_break_in_a_chain(faulty):
    """A chain of pointwise ops that is left out of what is compiled; the twin compiles it with the rest."""
    a, b = (torch.randn(size(8192), size(8192), device=DEVICE, dtype=BF16) for _ in range(2))
    model = Layers(batch=8192)

    def chain(x, y):
        return torch.sigmoid(x) * y + torch.tanh(y) * x

    if faulty and CUDA:
        chain = torch.compiler.disable(chain)

    def forward(x):
        return model.forward(x), chain(a, b)
    run = compiled(forward)
    return without_gradients(lambda: run(model.x))


@fault("pointwise_chain", mode="graph")
def residuals_in_a_graph(faulty):
    """Scale, bias, residual and activation as ops of their own in a captured graph; the twin compiled them."""
    model = Layers(batch=8192)
    scale, bias = (torch.randn(size(4096), device=DEVICE, dtype=BF16) for _ in range(2))

    def around(x, y):
        return functional.silu(x * scale + bias) + y
    around = around if faulty else compiled(around)

    def step():
        x = model.linears[0](model.x)
        for linear in model.linears[1:-1]:
            x = around(linear(x), x)
        return x
    return Captured(without_gradients(step))


# ---- sync_in_step ----

@fault("sync_in_step", mode="compile", also=("late_launches",))
def scores_fetched_one_by_one(faulty):
    """The score of each of eight small batches is fetched before the next one is begun; the twin keeps them."""
    model = Layers(batch=4096, width=2048, layers=4)
    score = compiled(lambda x: model.forward(x).float().square().mean())
    kept = []

    def step():
        for _ in range(8):
            value = score(model.x)
            kept[:] = [value.item() if faulty else value]
    return without_gradients(step)


# ---- late_data ----

@fault("late_data", mode="compile")
def loader_in_front_of_compiled(faulty):
    model, loader = loaded(1, 0 if faulty else 4)
    loss_of = compiled(lambda x, y: functional.mse_loss(model.forward(x), y))
    model.loss = lambda x, y: loss_of(x, y)
    return fed_step(model, loader)


# ---- exact_f32_product ----

@fault("exact_f32_product", mode="compile")
def exact_products_compiled(faulty):
    precision("highest" if faulty else "high")()
    model = Layers(batch=2048, width=2048, dtype=torch.float32)
    forward = compiled(model.forward)
    step = without_gradients(lambda: forward(model.x))
    return step, precision("highest" if faulty else "high"), precision("highest")


# ---- gradient_fills ----

@fault("gradient_fills", mode="compile")
def gradients_set_to_zero_compiled(faulty):
    model = Layers(batch=2048, width=16384, layers=2)
    loss_of = compiled(lambda x, y: functional.mse_loss(model.forward(x), y))

    def step():
        model.optimizer.zero_grad(set_to_none=not faulty)
        loss_of(model.x, model.y).backward()
        model.optimizer.step()
    return step


# ---- far_from_bandwidth ----

@fault("far_from_bandwidth")
def tiny_rows_not_compiled(faulty):
    """Layer norm of rows of 16, by the kernel that has a CTA a row; the twin's is compiled."""
    x = torch.randn(size(1 << 20), 16, device=DEVICE, dtype=BF16)
    model = Layers(batch=4096)
    norm = (lambda x: functional.layer_norm(x, (16,)))
    norm = norm if faulty else compiled(norm)

    def step():
        model.forward(model.x)
        return norm(x)
    return without_gradients(step)


# ---- late_compile ----

@fault("late_compile", mode="compile", once=True, also=("late_launches", "rare_slow_steps"), active=7, warm=2)
def compiled_for_every_length(faulty):
    """Batches of new lengths, each of which compiles the function anew; the twin pads them."""
    torch._dynamo.config.recompile_limit = 64
    model = Layers(batch=4096)
    scaled = compiled(lambda x: x * 2, dynamic=False)
    turn = [0]

    def step():
        turn[0] += 1
        scaled(model.forward(model.x[:model.batch - 8 * turn[0]] if faulty else model.x))
    return without_gradients(step)


# ---- rebuilt_graph ----

@fault("rebuilt_graph", mode="compile", once=True, active=8,
       also=("late_launches", "late_compile", "rare_slow_steps", "sync_in_step", "allocation_in_step"))
def graph_for_every_length(faulty):
    """"reduce-overhead" with lengths that come twice and no more: the second time a graph is captured. The twin pads them."""
    model = Layers(batch=4096, width=2048, layers=8)
    torch._inductor.config.triton.cudagraph_dynamic_shape_warn_limit = None
    forward = compiled(model.forward, mode="reduce-overhead", dynamic=True)
    turn = [0]

    def step():
        turn[0] += 1
        rows = model.batch - 8 * (turn[0] // 2) if faulty else model.batch
        forward(model.x[:rows])
    return without_gradients(step)


if __name__ == "__main__":
    sys.exit(main())
