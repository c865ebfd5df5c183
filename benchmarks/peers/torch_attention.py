# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of attention alone: its back ends cuDNN and flash, called as operators, so that a backward pass is one too."""
import torch

from torch_kernels import dtype_of

ATEN = torch.ops.aten


def forward_of(backend, causal):
    """(result, everything that the backward pass wants)."""
    def cudnn(q, k, v):
        made = ATEN._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, causal)
        return made[0], made

    def flash(q, k, v):
        made = ATEN._scaled_dot_product_flash_attention(q, k, v, 0.0, causal)
        return made[0], made
    return {"cudnn": cudnn, "flash": flash}[backend]


def backward_of(backend, causal):
    def cudnn(grad, q, k, v, made):
        out, logs, cum_q, cum_k, max_q, max_k, seed, offset, _ = made
        return ATEN._scaled_dot_product_cudnn_attention_backward(grad, q, k, v, out, logs, seed, offset, None, cum_q, cum_k,
                                                                 max_q, max_k, 0.0, causal)

    def flash(grad, q, k, v, made):
        out, logs, cum_q, cum_k, max_q, max_k, seed, offset, _ = made
        return ATEN._scaled_dot_product_flash_attention_backward(grad, q, k, v, out, logs, cum_q, cum_k, max_q, max_k, 0.0,
                                                                 causal, seed, offset)
    return {"cudnn": cudnn, "flash": flash}[backend]


def attention(case, device):
    s, dtype, part = case["sizes"], dtype_of(case), case["kind"].removeprefix("attention_")
    shape = (s["batch"], s["heads"], s["rows"], s["width"])

    def way(backend):
        forward, backward = forward_of(backend, s["causal"]), backward_of(backend, s["causal"])

        def make(_):
            q, k, v, grad = (torch.randn(shape, device=device, dtype=dtype) for _ in range(4))
            made = forward(q, k, v)[1]
            if part == "forward":
                return lambda: forward(q, k, v)
            if part == "backward":
                return lambda: backward(grad, q, k, v, made)
            return lambda: backward(grad, q, k, v, forward(q, k, v)[1])
        return make
    return [{"peer": f"PyTorch, {name}", "make": way(backend)} for name, backend in (("cuDNN", "cudnn"), ("flash", "flash"))]


WORKS = {f"attention_{part}": attention for part in ("forward", "backward", "both")}
