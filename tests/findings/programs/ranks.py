# SPDX-License-Identifier: Apache-2.0
"""Faults between ranks: collectives that nothing hides, and ranks that the others wait for. A process for each GPU.

    python3 ranks.py --out FOLDER [NAME..]    FOLDER gets NAME.fault/rank0.json, rank1.json ... and numbers
Without GPUs two processes talk by gloo, which tests the code.
"""
import argparse
import json
import os
import statistics
import sys
import time
import traceback

import torch
import torch.distributed as distributed
import torch.multiprocessing as processes
from torch.nn.parallel import DistributedDataParallel

import seeded
from seeded import BF16, CUDA, PROGRAMS, Layers, fault, clean, size

# Without shapes the host is well ahead of the GPU.
RANKS = {"mode": "ddp", "shapes": False, "warm": 8}


def model_of(rank, **options):
    torch.manual_seed(1)
    model = Layers(device=torch.device("cuda", rank) if CUDA else "cpu", **options)
    chain = [part for linear in model.linears for part in (linear, torch.nn.ReLU())][:-1]
    return model, torch.nn.Sequential(*chain)


def trained(model, net, x=None):
    def step():
        model.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(net(model.x if x is None else x), model.y[:len(model.x if x is None else x)]).backward()
        model.optimizer.step()
    return step


def parallel(net, rank, bucket_mb):
    return DistributedDataParallel(net, device_ids=[rank] if CUDA else None, bucket_cap_mb=bucket_mb,
                                   gradient_as_bucket_view=True)


# ---- exposed_collectives ----

@fault("exposed_collectives", **RANKS)
def one_bucket(faulty, rank):
    """All gradients in one bucket, which is sent when the last of them is there."""
    model, net = model_of(rank, batch=8192, width=6144, layers=4)
    return trained(model, parallel(net, rank, 4000 if faulty else 80))


@fault("exposed_collectives", **RANKS)
def gradients_reduced_at_the_end(faulty, rank):
    """Gradients are summed by hand behind the backward pass."""
    model, net = model_of(rank, batch=8192, width=6144, layers=4)
    if not faulty:
        return trained(model, parallel(net, rank, 80))

    def step():
        model.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(net(model.x), model.y).backward()
        for one in net.parameters():
            distributed.all_reduce(one.grad, op=distributed.ReduceOp.SUM)
        torch._foreach_div_([one.grad for one in net.parameters()], distributed.get_world_size())
        model.optimizer.step()
    return step


@fault("exposed_collectives", **RANKS)
def weights_gathered_when_needed(faulty, rank):
    """Halves of weights are gathered in front of the layer that needs them; the twin gathers a layer ahead."""
    model, net = model_of(rank, batch=8192, width=4096, layers=6, inputs=4096, outputs=4096)
    world = distributed.get_world_size()
    weights = [linear.weight.detach() for linear in model.linears]
    parts = [weight.chunk(world)[rank].contiguous() for weight in weights]

    def step():
        x = model.x
        coming = None
        for i, weight in enumerate(weights):
            if faulty or coming is None:
                distributed.all_gather_into_tensor(weight, parts[i])
            else:
                coming.wait()
            if not faulty and i + 1 < len(weights):
                coming = distributed.all_gather_into_tensor(weights[i + 1], parts[i + 1], async_op=True)
            x = torch.relu(x @ weight.t())
    return seeded.without_gradients(step)


# ---- straggler_rank ----

@fault("straggler_rank", **RANKS, also=("exposed_collectives",))
def larger_share(faulty, rank):
    """One rank has the larger part of the batch."""
    model, net = model_of(rank, batch=12288, width=4096, layers=4)
    rows = (4096 if rank == 0 else 12288) if faulty else 8192
    return trained(model, parallel(net, rank, 80), model.x[:size(rows)])


@fault("straggler_rank", **RANKS, also=("exposed_collectives", "late_launches", "late_data"))
def slow_host_of_one(faulty, rank):
    """The host of one rank does something else in front of its step."""
    model, net = model_of(rank, batch=8192, width=4096, layers=4)
    train = trained(model, parallel(net, rank, 80))

    def step():
        if faulty and rank == 1:
            with torch.profiler.record_function("write_metrics"):
                time.sleep(0.004)
        train()
    return step


@fault("straggler_rank", **RANKS, also=("exposed_collectives",))
def more_work_for_one(faulty, rank):
    """One rank computes a metric that the others do not."""
    model, net = model_of(rank, batch=8192, width=4096, layers=4)
    train = trained(model, parallel(net, rank, 80))

    def step():
        if faulty and rank == 1:
            with torch.no_grad():
                for _ in range(2):
                    net(model.x)
        train()
    return step


@clean(**RANKS)
def two_ranks(faulty, rank):
    model, net = model_of(rank, batch=8192, width=4096, layers=4)
    return trained(model, parallel(net, rank, 80))


def work(rank, world, names, out, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    if CUDA:
        torch.cuda.set_device(rank)
    distributed.init_process_group("nccl" if CUDA else "gloo", rank=rank, world_size=world)
    for name in names:
        program = PROGRAMS[name]
        begin = time.monotonic()
        try:
            sides = {}
            for which in ("clean", "fault") if program.kind else ("clean",):
                sides[which] = seeded.Side(argparse.Namespace(
                    build=lambda faulty: program.build(faulty, rank)), which == "fault")
            walls = {which: [] for which in sides}
            devices = {which: [] for which in sides}
            for turn in range(6 if CUDA else 1):
                for which in list(sides)[::1 if turn % 2 == 0 else -1]:
                    distributed.barrier()
                    wall, steps = seeded.block(sides[which], 12 if CUDA else 2)
                    if turn > 0 or not CUDA:
                        walls[which].append(wall)
                        devices[which] += steps
            recorded = {}
            for which in sides:
                folder = os.path.join(out, f"{name}.{which}")
                os.makedirs(folder, exist_ok=True)
                distributed.barrier()
                recorded[which] = seeded.record(program, sides[which], os.path.join(folder, f"rank{rank}.json"))
            if rank == 0:
                numbers = {"name": name, "kind": program.kind, "mode": program.mode, "also": list(program.also),
                           "once": False, "framework": "pytorch", "round": 0, "ranks": world, "recorded_ns": recorded,
                           "device": torch.cuda.get_device_name() if CUDA else "cpu"}
                for which in sides:
                    numbers[which] = {"wall_ns": statistics.median(walls[which]),
                                      "walls_ns": [round(one) for one in walls[which]]}
                    if CUDA:
                        numbers[which]["device_ns"] = statistics.median(devices[which])
                with open(os.path.join(out, f"{name}.0.numbers.json"), "w") as file:
                    json.dump(numbers, file)
                told = "  ".join(f"{which} {statistics.median(ns) / 1e3:9.1f}" for which, ns in walls.items())
                print(f"{program.kind or 'clean':20} {name:28} us: {told}   {time.monotonic() - begin:.1f} s", flush=True)
        except Exception:
            print(f"FAILED {name} rank {rank}", flush=True)
            traceback.print_exc()
            os._exit(1)  # the others would wait for it
    distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", required=True)
    asked = parser.parse_args()
    world = min(2, torch.cuda.device_count()) if CUDA else 2
    if world < 2:
        print("ranks: one GPU here, two are needed")
        return 0
    os.makedirs(asked.out, exist_ok=True)
    processes.spawn(work, (world, asked.names or list(PROGRAMS), asked.out, 29500 + os.getpid() % 1000), nprocs=world)
    return 0


if __name__ == "__main__":
    sys.exit(main())
