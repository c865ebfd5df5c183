# SPDX-License-Identifier: Apache-2.0
"""What the tests of paoding.torch's layers begin with: each kind of layer beside torch.nn's with the same parameters."""

import paoding.torch as pt
import torch

KINDS = [
    ('LSTM', {}),
    ('GRU', {}),
    ('RNN', {}),
    ('LSTM', {'proj_size': 4}),
    ('RNN', {'nonlinearity': 'relu'}),
]


def twins(kind, **options):
    torch.manual_seed(3)
    theirs = getattr(torch.nn, kind)(5, 7, **options)
    ours = getattr(pt, kind)(5, 7, **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def states_of(module, batch, dtype=torch.float32):
    """Initial ones, as its call takes them."""
    count = module.num_layers * (2 if module.bidirectional else 1)
    made = [torch.randn(count, batch, width, dtype=dtype) for width in (module.proj_size or 7, 7)]
    return tuple(made) if module.mode == 'LSTM' else made[0]


def flat(result):
    """Output (of a PackedSequence the data) and last states."""
    output, last = result
    return [output if isinstance(output, torch.Tensor) else output.data, *(last if isinstance(last, tuple) else [last])]
