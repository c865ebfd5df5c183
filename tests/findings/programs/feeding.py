# SPDX-License-Identifier: Apache-2.0
"""Faults between the host and the GPU: data that comes late, waits in steps, copies that are pageable or exposed."""
import sys
import zlib

import numpy
import torch
from torch.nn import functional

from seeded import (BF16, CUDA, DEVICE, Captured, Layers, fault, main, on_stream, pinned, side_stream, size, synchronize)


# ---- late_data ----

class Packed(torch.utils.data.IterableDataset):
    """Batches that are unpacked when they are asked for, as images are decoded."""

    def __init__(self, batch, width, outputs, megabytes):
        self.shape, self.outputs = (batch, width), outputs
        noise = numpy.random.default_rng(1).integers(0, 16, int(megabytes * (1 << 20) if CUDA else 1 << 12), numpy.uint8)
        self.packed = zlib.compress(noise.tobytes(), 1)

    def __iter__(self):
        while True:
            unpacked = numpy.frombuffer(zlib.decompress(self.packed), numpy.uint8)
            wanted = self.shape[0] * self.shape[1]
            values = numpy.resize(unpacked[:wanted], wanted).reshape(self.shape).astype(numpy.float32)
            yield (torch.from_numpy(values).to(BF16), torch.zeros(self.shape[0], self.outputs, dtype=BF16))


def loaded(megabytes, workers, batch=4096, width=4096, outputs=64):
    model = Layers(batch=batch, width=width, outputs=outputs)
    data = Packed(model.batch, size(64), size(outputs), megabytes)
    options = {"num_workers": workers, "prefetch_factor": 4, "persistent_workers": True} if workers else {}
    loader = iter(torch.utils.data.DataLoader(data, batch_size=None, pin_memory=CUDA, **options))
    return model, loader


def fed_step(model, loader):
    def step():
        x, y = next(loader)
        model.train(x.to(DEVICE, non_blocking=True), y.to(DEVICE, non_blocking=True))
    return step


@fault("late_data")
def loader_in_the_loop(faulty):
    return fed_step(*loaded(1, 0 if faulty else 4))


@fault("late_data")
def too_few_workers(faulty):
    return fed_step(*loaded(3, 1 if faulty else 8))


@fault("late_data", mode="graph")
def loader_in_front_of_a_graph(faulty):
    model, loader = loaded(1, 0 if faulty else 4)
    model.optimizer.zero_grad(set_to_none=True)
    replay = Captured(model.train)

    def step():
        x, y = next(loader)
        model.x.copy_(x, non_blocking=True)
        model.y.copy_(y, non_blocking=True)
        replay()
    return step


@fault("late_data", stack=True)
def augmented_by_numpy(faulty):
    """Noise that numpy draws on the launching thread; the twin draws it on the GPU."""
    model = Layers(batch=4096)
    generator = numpy.random.default_rng(1)
    shape = tuple(model.x.shape)

    def load_batch():
        with torch.profiler.record_function("load_batch"):
            for _ in range(4 if CUDA else 1):
                noise = generator.standard_normal(shape, numpy.float32)
            return pinned(torch.from_numpy(noise)).to(DEVICE, BF16, non_blocking=True)

    def step():
        model.train(load_batch() if faulty else torch.randn(shape, device=DEVICE, dtype=BF16))
    return step


# ---- sync_in_step ----

@fault("sync_in_step", also=("late_launches",), shapes=False)
def metrics_before_backward(faulty):
    """Four metrics are fetched between the two passes of a step; the twin keeps them on the GPU."""
    model = Layers(batch=8192, width=2048, layers=8, outputs=1024)
    kept = []

    def step():
        model.optimizer.zero_grad(set_to_none=True)
        out = model.forward(model.x)
        loss = torch.nn.functional.mse_loss(out, model.y)
        metrics = [loss.detach(), out.detach().max(), out.detach().mean(), out.detach().min()]
        kept[:] = [one.item() for one in metrics] if faulty else metrics
        loss.backward()
        model.optimizer.step()
    return step


@fault("sync_in_step", also=("late_launches",))
def checks_every_layer(faulty):
    """Whether a layer's result is finite is asked on the host in every layer; the twin keeps the answers on the GPU."""
    model = Layers(batch=8192, width=2048, layers=8)

    def step():
        x, bad = model.x, []
        with torch.no_grad():
            for linear in model.linears:
                x = torch.relu(linear(x))
                largest = x.max()
                if faulty:
                    if not largest < 1e30:
                        raise ValueError("non-finite")
                else:
                    bad.append(largest)
    return step


@fault("sync_in_step", also=("late_launches",), stack=True)
def synchronizes_every_layer(faulty):
    model = Layers(batch=4096, width=2048, layers=6)

    def step():
        x = model.x
        with torch.no_grad():
            for linear in model.linears:
                x = torch.relu(linear(x))
                if faulty:
                    synchronize()
    return step


@fault("sync_in_step", also=("late_launches",), shapes=False)
def norms_on_the_host(faulty):
    """The norm of every gradient is fetched to be looked at; the twin keeps them on the GPU."""
    model = Layers(batch=8192, width=2048, layers=8)
    parameters = list(model.linears.parameters())

    def step():
        model.optimizer.zero_grad(set_to_none=True)
        model.loss().backward()
        for one in parameters:
            norm = one.grad.norm()
            if faulty and norm.item() > 1e9:
                raise ValueError("gradients exploded")
        model.optimizer.step()
    return step


@fault("sync_in_step", mode="graph", also=("late_launches",))
def waits_between_graphs(faulty):
    """Two captured halves of a step with a wait for the first between them."""
    first, second = (Layers(batch=4096, width=2048, layers=6) for _ in range(2))
    halves = Captured(first.train), Captured(second.train)

    def step():
        loss = halves[0]()
        if faulty:
            loss.item()
        halves[1]()
    return step


# ---- pageable_copies ----

def copied_in(source, megabytes):
    """A step that begins by a copy of `source` in, as wide as it takes."""
    model = Layers(batch=4096)
    extra = source(torch.randn(size(megabytes * 256), 1024))

    def step():
        moved = extra.to(DEVICE, non_blocking=True)
        model.train(model.x + moved[0, 0].to(BF16))
    return step


@fault("pageable_copies", also=("exposed_copies", "sync_in_step"))
def pageable_batch(faulty):
    return copied_in((lambda x: x) if faulty else pinned, 16)


@fault("pageable_copies", also=("exposed_copies", "sync_in_step"))
def pageable_parts(faulty):
    """A batch in eight parts, none of them pinned."""
    model = Layers(batch=4096)
    parts = [torch.randn(size(512), 1024) for _ in range(8)]
    if not faulty:
        parts = [pinned(part) for part in parts]

    def step():
        moved = [part.to(DEVICE, non_blocking=True) for part in parts]
        model.train(model.x + moved[0][0, 0].to(BF16))
    return step


@fault("pageable_copies", also=("exposed_copies", "sync_in_step"))
def pageable_results(faulty):
    """Results go into memory that is not pinned; the twin's is, and both wait for them."""
    model = Layers(batch=8192, outputs=1024)
    kept = torch.empty(model.batch, size(1024), dtype=BF16)
    if not faulty:
        kept = pinned(kept)

    def step():
        with torch.no_grad():
            kept.copy_(model.forward(model.x), non_blocking=not faulty)
            synchronize()
    return step


# ---- exposed_copies ----

@fault("exposed_copies", shapes=False)
def copies_before_computing(faulty):
    """A pinned batch is copied by the stream that computes; the twin copies the next one beside it."""
    model = Layers(batch=8192)
    host = pinned(torch.randn(size(8192), 2048))
    beside = side_stream()
    buffers = [torch.empty(host.shape, device=DEVICE) for _ in range(2)]
    free = [torch.cuda.Event() if CUDA else None for _ in range(2)]
    turn = [0]

    def step():
        now = turn[0] % 2
        turn[0] += 1
        if faulty:
            buffers[now].copy_(host, non_blocking=True)
        elif CUDA:
            torch.cuda.current_stream().wait_stream(beside)
            beside.wait_event(free[1 - now])
            with on_stream(beside):
                buffers[1 - now].copy_(host, non_blocking=True)
        model.train(model.x + buffers[now][0, 0].to(BF16))
        if CUDA:
            free[now].record()
    return step


@fault("exposed_copies", mode="graph")
def copies_into_a_graph(faulty):
    """The same in front of a captured step, which reads one of two inputs."""
    model = Layers(batch=4096)
    host = pinned(torch.randn(size(4096), 2048))
    beside = side_stream()
    buffers = [torch.zeros(host.shape, device=DEVICE) for _ in range(2)]
    replays = [Captured(lambda own=own: model.train(model.x + own[0, 0].to(BF16))) for own in buffers]
    free = [torch.cuda.Event() if CUDA else None for _ in range(2)]
    turn = [0]

    def step():
        now = turn[0] % 2
        turn[0] += 1
        if faulty:
            buffers[now].copy_(host, non_blocking=True)
        elif CUDA:
            torch.cuda.current_stream().wait_stream(beside)
            beside.wait_event(free[1 - now])
            with on_stream(beside):
                buffers[1 - now].copy_(host, non_blocking=True)
        replays[now]()
        if CUDA:
            free[now].record()
    return step


@fault("exposed_copies")
def activations_to_the_host(faulty):
    """Activations are kept in pinned memory of the host for later; the twin copies them beside what follows."""
    model = Layers(batch=8192)
    kept = [pinned(torch.empty(model.batch, size(1024), dtype=BF16)) for _ in range(4)]
    beside = side_stream()

    def step():
        x = model.x
        with torch.no_grad():
            for i, linear in enumerate(model.linears[:-1]):
                x = torch.relu(linear(x))
                part = x[:, :size(1024)].contiguous() if i == 0 else part
                if faulty or not CUDA:
                    kept[i].copy_(part, non_blocking=True)
                else:
                    beside.wait_stream(torch.cuda.current_stream())
                    with on_stream(beside):
                        kept[i].copy_(part, non_blocking=True)
            functional.relu(model.linears[-1](x))
            if CUDA:
                torch.cuda.current_stream().wait_stream(beside)
    return step


if __name__ == "__main__":
    sys.exit(main())
