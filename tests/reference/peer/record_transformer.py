# SPDX-License-Identifier: Apache-2.0
# What PyTorch gives for transformer layers, in float64: tests/reference/transformer_test.cpp reads it.
# record.sh calls it.
import sys

import torch
from safetensors.torch import save_file
from torch import nn

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)
KEPT = {}
B, T, S, W, H = 2, 5, 4, 8, 2


def keep(name, value):
    KEPT[name] = value.detach().clone().contiguous()


def record(name, layer, inputs, **options):
    for p in layer.parameters():  # biases and norms start with numbers that hide mistakes
        nn.init.uniform_(p, -0.7, 0.7)
    dy = torch.randn(B, T, W)
    inputs = [x.requires_grad_() for x in inputs]
    y = layer(*inputs, **options)
    y.backward(dy)
    keep(f'{name}/y', y)
    keep(f'{name}/dy', dy)
    for i, x in enumerate(inputs):
        keep(f'{name}/x{i}', x)
        keep(f'{name}/dx{i}', x.grad)
    for part, p in layer.named_parameters():
        keep(f'{name}/{part}', p)
        keep(f'{name}/grad/{part}', p.grad)


for norm_first in (False, True):
    for activation in ('relu', 'gelu'):
        name = f'{"pre" if norm_first else "post"}_{activation}'
        options = dict(dim_feedforward=12, dropout=0, activation=activation, batch_first=True, norm_first=norm_first)
        causal = nn.Transformer.generate_square_subsequent_mask(T)
        record(f'encoder_{name}', nn.TransformerEncoderLayer(W, H, **options), [torch.randn(B, T, W)])
        record(f'decoder_{name}', nn.TransformerDecoderLayer(W, H, **options),
               [torch.randn(B, T, W), torch.randn(B, S, W)], tgt_mask=causal, tgt_is_causal=True)
save_file(KEPT, sys.argv[1])
