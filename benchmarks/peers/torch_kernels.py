# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of sections L, B (sums), C and O. Each work gives its ways: {"peer", "make"}; make(set) returns a call on
buffers of its own."""
import torch
import torch.nn.functional as F

DTYPES = {"f32": torch.float32, "tf32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16,
          "f16": torch.float16}


def dtype_of(case):
    return DTYPES[case["dtype"]]


def ways(make_inputs, eager, compiled=None, given=None, device="cuda"):
    """Eager, compiled, and on the CPU with outputs given: `given(*inputs)` allocates them and returns the call."""
    sets = {}

    def inputs(i):
        if i not in sets:
            sets[i] = make_inputs()
        return sets[i]

    def calls(function):
        def make(i):
            buffers = inputs(i)
            return lambda: function(*buffers)
        return make

    found = [{"peer": "PyTorch", "make": calls(eager)}]
    if compiled is not None:
        fused = torch.compile(compiled, dynamic=False)

        def make(i):
            buffers = inputs(i)
            fused(*buffers)
            return lambda: fused(*buffers)
        found.append({"peer": "PyTorch compiled", "make": make})
    if given is not None and device == "cpu":
        found.append({"peer": "PyTorch, outputs given", "make": lambda i: given(*inputs(i))})
    return found


def lerp(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    make = lambda: [torch.randn(s[n], device=device, dtype=dtype) for n in ("x", "y", "w")]

    def given(x, y, w):
        out = torch.empty(s["out"], device=device, dtype=dtype)
        return lambda: torch.lerp(x, y, w, out=out)
    return ways(make, torch.lerp, lambda x, y, w: x + w * (y - x), given, device)


def lerp_grad(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    xs, ys = s["x"], s["y"]
    # Gradients read only w and the outer gradient; x and y decide nothing but shapes.
    make = lambda: [torch.rand(s["w"], device=device, dtype=dtype), torch.randn(s["out"], device=device, dtype=dtype)]

    def grad(w, g):
        return (g * (1 - w)).sum_to_size(xs), (g * w).sum_to_size(ys)

    def given(w, g):
        if xs != s["out"] or ys != s["out"]:
            raise NotImplementedError("outputs cannot be given where they are sums")
        dx, dy, rest = torch.empty_like(g), torch.empty_like(g), torch.empty_like(w)
        return lambda: (torch.sub(1, w, out=rest), torch.mul(g, rest, out=dx), torch.mul(g, w, out=dy))
    found = ways(make, grad, grad, given if xs == ys == s["out"] else None, device)
    if torch.Size(s["out"]).numel() < 1 << 28:
        def autograd(i):  # as users run it
            w, g = make()
            x = torch.randn(xs, device=device, dtype=dtype, requires_grad=True)
            y = torch.randn(ys, device=device, dtype=dtype, requires_grad=True)
            out = torch.lerp(x, y, w)
            return lambda: torch.autograd.grad(out, (x, y), g, retain_graph=True)
        found.append({"peer": "PyTorch autograd", "make": autograd, "clock": "wall", "graphs": False})
    return found


def sums(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    axes = tuple(s["axes"])
    make = lambda: [torch.randn(s["shape"], device=device, dtype=dtype)]

    def given(a):
        out = torch.empty(a.sum(axes).shape, device=device, dtype=dtype)
        return lambda: torch.sum(a, axes, out=out)
    return ways(make, lambda a: a.sum(axes), lambda a: a.sum(axes), given, device)


def relu_grad(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    axes = tuple(s["axes"])
    make = lambda: [torch.randn(s["shape"], device=device, dtype=dtype) for _ in range(2)]
    if case["kind"] == "relu_grad":
        return ways(make, lambda y, dy: torch.ops.aten.threshold_backward(dy, y, 0),
                    lambda y, dy: torch.where(y > 0, dy, 0), None, device)

    def eager(y, dy):
        dx = torch.ops.aten.threshold_backward(dy, y, 0)
        return dx, dx.sum(axes)

    def compiled(y, dy):
        dx = torch.where(y > 0, dy, 0)
        return dx, dx.sum(axes)
    return ways(make, eager, compiled, None, device)


def layer_norm(case, device):
    s, dtype = case["sizes"], dtype_of(case)
    rows, columns = s["rows"], s["columns"]
    gamma, beta = torch.ones(columns, device=device, dtype=dtype), torch.zeros(columns, device=device, dtype=dtype)
    aten = torch.ops.aten
    if case["kind"] == "layer_norm_forward":
        make = lambda: [torch.randn(rows, columns, device=device, dtype=dtype)]
        forward = lambda x: F.layer_norm(x, (columns,), gamma, beta)

        def given(x):
            outs = [torch.empty_like(t) for t in aten.native_layer_norm(x, [columns], gamma, beta, 1e-5)]
            return lambda: aten.native_layer_norm.out(x, [columns], gamma, beta, 1e-5, out0=outs[0], out1=outs[1],
                                                      out2=outs[2])
        return ways(make, forward, forward, given, device)

    def pair():
        return [torch.randn(rows, columns, device=device, dtype=dtype) for _ in range(2)]
    if case["kind"] == "layer_norm_both":
        def both(x, g):
            y, mean, scale = aten.native_layer_norm(x, [columns], gamma, beta, 1e-5)
            return y, aten.native_layer_norm_backward(g, x, [columns], mean, scale, gamma, beta, [True, True, True])
        return ways(pair, both, both, None, device)

    def make_backward():
        x, g = pair()
        _, mean, scale = aten.native_layer_norm(x, [columns], gamma, beta, 1e-5)
        return [x, g, mean, scale]

    def backward(x, g, mean, scale):
        return aten.native_layer_norm_backward(g, x, [columns], mean, scale, gamma, beta, [True, True, True])

    def given_backward(x, g, mean, scale):
        outs = [torch.empty_like(t) for t in backward(x, g, mean, scale)]
        return lambda: aten.native_layer_norm_backward.out(g, x, [columns], mean, scale, gamma, beta,
                                                           [True, True, True], out0=outs[0], out1=outs[1],
                                                           out2=outs[2])
    return ways(make_backward, backward, backward, given_backward, device)


def cross_entropy(case, device):
    s, dtype = case["sizes"], dtype_of(case)

    def make():
        return [torch.randn(s["tokens"], s["words"], device=device, dtype=dtype),
                torch.randint(0, s["words"], (s["tokens"],), device=device)]

    def eager(logits, labels):
        leaf = logits.detach().requires_grad_()
        loss = F.cross_entropy(leaf, labels)
        return loss.detach(), torch.autograd.grad(loss, leaf)[0]

    def compiled(logits, labels):
        wide = logits.float()
        share = torch.softmax(wide, 1)
        loss = F.cross_entropy(wide, labels)
        ones = torch.ones_like(labels[:, None], dtype=share.dtype)
        return loss, (share.scatter_add(1, labels[:, None], -ones) / logits.shape[0]).to(logits.dtype)
    return ways(make, eager, compiled, None, device)


def embedding_grad(case, device):
    s, dtype = case["sizes"], dtype_of(case)

    def make():
        share = torch.rand(s["tokens"], device=device)
        ids = (float(s["rows"]) ** share).long().clamp(max=s["rows"] - 1)
        ids[1::2] = 0
        return [torch.randn(s["tokens"], s["width"], device=device, dtype=dtype), ids]

    def backward(grad, ids):
        return torch.ops.aten.embedding_dense_backward(grad, ids, s["rows"], 0, False)
    return ways(make, backward, backward, None, device)


def adam(case, device):
    s, dtype = case["sizes"], dtype_of(case)

    def optimizer(**options):
        def make(_):
            parameters = [torch.randn(s["elements"], device=device, dtype=dtype) for _ in range(s["tensors"])]
            for p in parameters:
                p.grad = torch.randn_like(p)
            if device == "cuda":
                options["capturable"] = True
            return torch.optim.Adam(parameters, **options).step
        return make
    found = [{"peer": "PyTorch, fused Adam", "make": optimizer(fused=True)},
             {"peer": "PyTorch, foreach Adam", "make": optimizer(foreach=True)}]
    if device == "cpu":
        found.append({"peer": "PyTorch, fused Adam compiled", "make": lambda i: torch.compile(optimizer(fused=True)(i))})
    return found


def control(case, device):
    x, y, z = (torch.tensor([v], device=device) for v in (0.3, 0.1, 0.2))

    def run():
        full = lambda shape, number: torch.full(shape, number, device=device)
        second = (x < y).item()
        one = full((1, 2), 1.0) if (z < x).item() else full((2, 2), 2) if second else full((3,), 3)
        two = full((2, 2), 2) if second else full((3,), 3)
        return one.cpu(), two.cpu()
    return [{"peer": "PyTorch", "make": lambda i: run, "graphs": False, "clock": "wall"}]


WORKS = {"lerp": lerp, "lerp_grad": lerp_grad, "sum": sums, "relu_grad": relu_grad, "relu_grad_sum": relu_grad,
         "layer_norm_forward": layer_norm, "layer_norm_backward": layer_norm, "layer_norm_both": layer_norm,
         "cross_entropy": cross_entropy, "embedding_grad": embedding_grad, "adam": adam, "control/cases": control}
