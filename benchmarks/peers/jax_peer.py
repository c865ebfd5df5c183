# SPDX-License-Identifier: Apache-2.0
"""JAX on the cases of `paoding bench`, compiled by jax.jit, as a caller waits for it. Usage: jax_peer.py cuda|cpu, then
see protocol.py."""
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if len(sys.argv) > 1 and sys.argv[1] == "cpu":
    os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp

from protocol import serve, time_calls

jax.config.update("jax_enable_x64", True)  # for the f64 rows; everything names its dtype
DTYPES = {"f32": jnp.float32, "tf32": jnp.float32, "f64": jnp.float64, "bf16": jnp.bfloat16, "f16": jnp.float16}


def random(seed, shape, dtype, scale=1.0):
    return (jax.random.normal(jax.random.PRNGKey(seed), tuple(shape), jnp.float32) * scale).astype(dtype)


def work_of(case):
    """A compiled function and its arguments; None where JAX has no row."""
    s, dtype, kind = case["sizes"], DTYPES[case["dtype"]], case["kind"]
    if kind in ("lerp", "lerp_grad"):
        x, y, w, g = (random(i, s[n], dtype) for i, n in enumerate(("x", "y", "w", "out")))
        if kind == "lerp":
            return jax.jit(lambda x, y, w: x + w * (y - x)), (x, y, w)
        return jax.jit(lambda x, y, w, g: jax.vjp(lambda x, y: x + w * (y - x), x, y)[1](g)), (x, y, w, g)
    if kind == "sum":
        return jax.jit(lambda a: a.sum(tuple(s["axes"]))), (random(0, s["shape"], dtype),)
    if kind == "cross_entropy":
        logits, labels = random(0, (s["tokens"], s["words"]), dtype), jnp.arange(s["tokens"]) % s["words"]

        def loss(logits, labels):
            wide = logits.astype(jnp.float32)
            picked = jnp.take_along_axis(wide, labels[:, None], 1)[:, 0]
            return (jax.nn.logsumexp(wide, 1) - picked).mean()
        return jax.jit(jax.value_and_grad(loss)), (logits, labels)
    if kind in ("layer_norm_forward", "layer_norm_both"):
        x, dy = random(0, (s["rows"], s["columns"]), dtype), random(1, (s["rows"], s["columns"]), dtype)
        gamma, beta = jnp.ones(s["columns"], dtype), jnp.zeros(s["columns"], dtype)

        def norm(x, gamma, beta):
            wide = x.astype(jnp.float32)
            mean = wide.mean(1, keepdims=True)
            scale = jax.lax.rsqrt(((wide - mean) ** 2).mean(1, keepdims=True) + 1e-5)
            return ((wide - mean) * scale).astype(x.dtype) * gamma + beta
        if kind == "layer_norm_forward":
            return jax.jit(norm), (x, gamma, beta)

        def both(x, gamma, beta, dy):
            y, back = jax.vjp(norm, x, gamma, beta)
            return y, back(dy)
        return jax.jit(both), (x, gamma, beta, dy)
    if kind in ("lstm_forward", "lstm_training") and not s["lengths"] and s.get("directions") != 2:
        hidden = s["hidden"]
        shapes = ((hidden, 4 * hidden), (hidden, 4 * hidden), (4 * hidden,))
        layers = tuple(tuple(random(i, shape, dtype, hidden**-0.5) for i, shape in enumerate(shapes))
                       for _ in range(s["layers"]))
        xs = random(9, (s["steps"], s["batch"], hidden), dtype)

        def lstm(layers, xs):
            for w, u, b in layers:
                def cell(state, gates, u=u):
                    h, c = state
                    i, f, g, o = jnp.split(gates + h @ u, 4, 1)
                    c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                    h = jax.nn.sigmoid(o) * jnp.tanh(c)
                    return (h, c), h
                zeros = jnp.zeros((s["batch"], hidden), dtype)
                xs = jax.lax.scan(cell, (zeros, zeros), xs @ w + b)[1]
            return xs
        if kind == "lstm_forward":
            return jax.jit(lstm), (layers, xs)
        dys = random(10, xs.shape, dtype)
        return jax.jit(lambda layers, xs, dys: (lambda y, back: (y, back(dys)))(*jax.vjp(lstm, layers, xs))), (
            layers, xs, dys)
    return None


def prepare(case, states, quick):
    precision = "default" if case["tf32"] or case["dtype"] != "f32" else "highest"
    with jax.default_matmul_precision(precision):
        work = work_of(case)
        if work is None:
            return []
        run, arguments = work
        jax.block_until_ready(run(*arguments))
    limits = dict(least=10, most=50, seconds=0.1) if quick else dict(least=50, most=200, seconds=0.3)

    def timed():
        with jax.default_matmul_precision(precision):
            return time_calls(lambda: jax.block_until_ready(run(*arguments)), **limits)
    return [({"peer": "JAX", "cache": state["cache"], "clock": "wall"}, timed)
            for state in states if state["clock"] == "wall" and state["sets"] == 1 and not state.get("swept")]


if __name__ == "__main__":
    serve(prepare)
