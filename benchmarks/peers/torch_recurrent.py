# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of section R: nn.LSTM, nn.GRU and nn.RNN, which are cuDNN on a GPU, and the LSTM op by op."""
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from torch_kernels import dtype_of

MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}


def layers_of(case, device):
    s = case["sizes"]
    module = MODULES[case["kind"].split("_")[0]](s["hidden"], s["hidden"], s["layers"],
                                                 bidirectional=s.get("directions") == 2).to(device, dtype_of(case))
    if device == "cuda":
        module.flatten_parameters()
    return module


def lengths_of(steps, batch):
    """As the case has them: 5 to T, evenly spread, the longest first as packing wants it."""
    least = min(steps, 5)
    return torch.tensor(sorted((least + max(steps - 5, 0) * (i + 1) ** 2 // batch**2 for i in range(batch)), reverse=True))


def op_by_op(x, w, u, b, h, c):
    ys = []
    for t in range(x.shape[0]):
        i, f, g, o = (x[t] @ w + h @ u + b).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        ys.append(h)
    return torch.stack(ys), h, c


def quietly(call):
    def run():
        with torch.inference_mode():
            return call()
    return run


def forward(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    module = layers_of(case, device).eval()
    x = torch.randn(s["steps"], s["batch"], s["hidden"], device=device, dtype=dtype)
    name = type(module).__name__
    found = [{"peer": f"PyTorch nn.{name}", "make": lambda i: quietly(lambda: module(x)[0])}]
    if s["lengths"]:
        lengths = lengths_of(s["steps"], s["batch"])
        packed = pack_padded_sequence(x, lengths)
        found[0]["peer"] += ", padded"
        found.append({"peer": f"PyTorch nn.{name}, packed", "make": lambda i: quietly(lambda: module(packed)[0].data)})
    elif name == "LSTM" and s["layers"] == 1 and s.get("directions") != 2 and s["steps"] <= 64:
        w, u = (t.detach().t().contiguous() for t in (module.weight_ih_l0, module.weight_hh_l0))
        b = (module.bias_ih_l0 + module.bias_hh_l0).detach()
        h = torch.zeros(s["batch"], s["hidden"], device=device, dtype=dtype)
        found.append({"peer": "PyTorch op by op", "make": lambda i: quietly(lambda: op_by_op(x, w, u, b, h, h))})
    return found


def one_step(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    module = layers_of(case, device).eval()
    x = torch.randn(1, s["batch"], s["hidden"], device=device, dtype=dtype)
    state = [torch.zeros(1, s["batch"], s["hidden"], device=device, dtype=dtype) for _ in range(2)]

    def step():
        y, (h, c) = module(x, tuple(state))
        state[0].copy_(h)
        state[1].copy_(c)
        return y
    return [{"peer": "PyTorch nn.LSTM", "make": lambda i: quietly(step)}]


def training(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    module = layers_of(case, device).train()
    x = torch.randn(s["steps"], s["batch"], s["hidden"], device=device, dtype=dtype, requires_grad=True)
    dy = torch.randn(s["steps"], s["batch"], s.get("directions", 1) * s["hidden"], device=device, dtype=dtype)
    wanted = [x] + list(module.parameters())

    def step():
        return torch.autograd.grad(module(x)[0], wanted, dy)
    return [{"peer": f"PyTorch nn.{type(module).__name__}", "make": lambda i: step}]


WORKS = {"lstm_step": one_step}
for kind in MODULES:
    WORKS[kind + "_forward"], WORKS[kind + "_training"] = forward, training
