# SPDX-License-Identifier: Apache-2.0
"""PyTorch on the LSTM of `paoding bench lstm_steps`: op by op (eager and as a CUDA graph) and nn.LSTM, forward and
forward + backward, wall time from call to synchronised.

Usage: python3 benchmarks/peers/lstm_steps.py OUT.json [--time 64] [--hidden 512]
"""
import argparse

import torch

from timing import event_us, graphed, row, save, wall_us


def op_by_op(x, wi, wh, b, h, c):
    ys = []
    for t in range(x.shape[0]):
        i, f, g, o = (x[t] @ wi + h @ wh + b).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        ys.append(h)
    return torch.stack(ys), h, c


def bench(batch, args, dtype, tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    steps, hidden = args.time, args.hidden
    tag = dict(T=steps, B=batch, H=hidden, dtype=str(dtype)[6:], tf32=tf32)
    module = torch.nn.LSTM(hidden, hidden).to("cuda", dtype)
    module.flatten_parameters()
    x = torch.randn(steps, batch, hidden, device="cuda", dtype=dtype)
    h = torch.zeros(batch, hidden, device="cuda", dtype=dtype)
    c = torch.zeros_like(h)
    gy = torch.randn_like(x)
    wi, wh = module.weight_ih_l0.detach().t().contiguous(), module.weight_hh_l0.detach().t().contiguous()
    b = (module.bias_ih_l0 + module.bias_hh_l0).detach()

    def record(name, function):
        us = wall_us(function, warm=3, reps=30)
        row(name, wall=us[0], min=us[1], max=us[2], **tag)

    with torch.inference_mode():
        forward = lambda: op_by_op(x, wi, wh, b, h, c)
        record("forward_op_by_op", forward)
        record("forward_op_by_op_graph", graphed(forward))
        layer = lambda: module(x, (h[None], c[None]))
        record("forward_nn_lstm", layer)
        replay = graphed(layer)
        record("forward_nn_lstm_graph", replay)
        us = event_us(replay, reps=50)
        row("forward_nn_lstm_graph_gpu", wall=us[0], min=us[1], max=us[2], **tag)

    leaves = [t.clone().requires_grad_() for t in (x, wi, wh, b)]

    def train():
        y, _, _ = op_by_op(*leaves[:1], leaves[1], leaves[2], leaves[3], h, c)
        return torch.autograd.grad(y, leaves, gy)

    record("train_op_by_op", train)
    record("train_op_by_op_graph", graphed(train))
    xl = x.clone().requires_grad_()

    def train_layer():
        module.zero_grad(set_to_none=True)
        y, _ = module(xl)
        return torch.autograd.grad(y, [xl] + list(module.parameters()), gy)

    record("train_nn_lstm", train_layer)
    try:
        record("train_nn_lstm_graph", graphed(train_layer))
    except RuntimeError as error:
        torch.cuda.synchronize()
        row("train_nn_lstm_graph", why=str(error)[:80], **tag)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--time", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=512)
    args = parser.parse_args()
    torch.manual_seed(0)
    for batch in (1, 32):
        for dtype, tf32 in ((torch.float32, False), (torch.float32, True), (torch.bfloat16, False)):
            bench(batch, args, dtype, tf32)
    save(args.out)


if __name__ == "__main__":
    main()
