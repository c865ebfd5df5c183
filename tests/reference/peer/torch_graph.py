# SPDX-License-Identifier: Apache-2.0
"""Runs paoding graph text (docs/reference/graph_text.md) in PyTorch: what it means there, op by op, gradients by autograd."""
import math

import torch

from graph_text import Parser
from torch_composed import Missing
from torch_ops import TORCH


def run_scan(statement, values):
    attrs = statement.attrs
    carries, sequences, length = attrs['carries'], attrs['sequences'], attrs['length']
    body, fetches = statement.bodies[0]
    inside = [s.left[0] for s in body if s.op == 'input']
    state, outputs = list(values[:carries]), []

    def step(elements):
        env = dict(zip(inside, state + elements + list(values[carries + sequences:])))
        run_block(body, env)
        return [env[name] for _, name in fetches]

    for t in (reversed(range(length)) if attrs.get('reverse') else range(length)):
        made = step([v[t] for v in values[carries:carries + sequences]])
        state = made[:carries]
        outputs.append(made[carries:])
    if attrs.get('reverse'):
        outputs.reverse()
    if not outputs:  # one step says which types would have been stacked
        made = step([torch.zeros(v.shape[1:], dtype=v.dtype) for v in values[carries:carries + sequences]])
        # Results of no steps depend on nothing, but gradients by what is made of them are asked for.
        return [s.clone() for s in state] + [torch.zeros([0, *o.shape], dtype=o.dtype, requires_grad=o.is_floating_point())
                                             for o in made[carries:]]
    # The last carries are values of their own, apart from what was stacked.
    return [s.clone() for s in state] + [torch.stack(column) for column in zip(*outputs)]


def run_block(statements, env):
    known = {id(v) for v in env.values()}
    for s in statements:
        if s.op in ('input', 'parameter'):
            continue
        if s.op == 'gradients':
            outputs = [env[n] for n in s.inputs]
            seeds = [env[n] for n in s.seeds] if s.seeds else [torch.ones_like(o) for o in outputs]
            wanted = [env[n] for n in s.wanted]
            kept = [(o, g) for o, g in zip(outputs, seeds) if o.requires_grad]
            made = [None] * len(wanted)
            used = [i for i, w in enumerate(wanted) if w.requires_grad]
            if kept and used:
                parts = torch.autograd.grad([o for o, _ in kept], [wanted[i] for i in used], [g for _, g in kept],
                                            allow_unused=True, create_graph=True)
                for i, part in zip(used, parts):
                    made[i] = part
            for name, w, d in zip(s.left, wanted, made):
                env[name] = torch.zeros_like(w) if d is None else d
                known.add(id(env[name]))
            continue
        values = [env[n] for n in s.inputs]
        if s.op == 'full':
            value = torch.full(s.attrs.get('shape', []), s.attrs['value'], dtype=s.attrs.get('dtype', torch.float32))
            # Or what is computed from constants alone had no gradient to ask for.
            results = [value.requires_grad_() if value.is_floating_point() else value]
        elif s.op == 'constant':
            dtype = s.attrs.get('dtype', torch.float32)
            value = torch.tensor(s.attrs['values'], dtype=torch.float64).reshape(s.attrs.get('shape', [])).to(dtype)
            results = [value.requires_grad_() if value.is_floating_point() else value]
        elif s.op == 'iota':
            value = torch.full(s.attrs['shape'], s.attrs.get('start', 0), dtype=s.attrs.get('dtype', torch.int64))
            for axis, stride in enumerate(s.attrs['strides']):
                steps = torch.arange(s.attrs['shape'][axis], dtype=value.dtype) * stride
                value = value + steps.reshape([-1 if i == axis else 1 for i in range(value.dim())])
            results = [value]
        elif s.op == 'scan':
            results = run_scan(s, values)
        elif s.op in TORCH:
            results = TORCH[s.op](*values, s.attrs)
            results = list(results) if isinstance(results, (tuple, list)) else [results]
        else:
            raise Missing(s.op)
        for name, result in zip(s.left, results):
            # Here every value is one of its own; what PyTorch hands through would share its gradient.
            env[name] = result.clone() if id(result) in known else result
            known.add(id(env[name]))


def run(text, take):
    """The fetches of a graph text in order; take(count) gives the next numbers of the feeds."""
    statements, fetches = Parser(text).block()
    env = {}
    for s in statements:
        if s.op in ('input', 'parameter'):
            value = torch.tensor(take(math.prod(s.shape)), dtype=torch.float64).reshape(s.shape).to(s.dtype)
            env[s.left[0]] = value.requires_grad_() if value.is_floating_point() else value
    run_block(statements, env)
    return [(name, env[source].detach()) for name, source in fetches]
