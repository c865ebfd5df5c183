# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of decoder-only transformers: GPT-2's blocks with its own fused attention, as nanoGPT writes them."""
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        rows, steps, width = x.shape
        parts = self.qkv(self.norm1(x)).split(width, 2)
        q, k, v = (part.view(rows, steps, self.heads, width // self.heads).transpose(1, 2) for part in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, steps, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, s):
        super().__init__()
        width = s["hidden"]
        self.tokens, self.positions = nn.Embedding(s["vocabulary"], width), nn.Embedding(s["context"], width)
        self.blocks = nn.ModuleList([Block(width, s["heads"]) for _ in range(s["layers"])])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, s["vocabulary"], bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, ids, labels=None):
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        scores = self.head(self.norm(x))
        return scores if labels is None else F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


def gpt(case, device):
    s = case["sizes"]
    trains, halves = case["kind"] == "gpt_training", case["dtype"] == "bf16"

    def make(compiles):
        def build(_):
            torch.manual_seed(0)
            model = Gpt(s).to(device)
            run = torch.compile(model, dynamic=False) if compiles else model
            shape = (s["batch"], s["context"])
            ids = torch.randint(0, s["vocabulary"], shape, device=device)
            if not trains:
                model.eval()

                def forward():
                    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                        return run(ids)
                return forward
            labels = torch.randint(0, s["vocabulary"], shape, device=device)
            best = dict(fused=True, capturable=True) if device == "cuda" else dict(fused=True)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **best)

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                    loss = run(ids, labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
                optimizer.step()
            return step
        return build
    return [{"peer": "PyTorch", "make": make(False)}, {"peer": "PyTorch compiled", "make": make(True)}]


WORKS = {"gpt_training": gpt, "gpt_scores": gpt}
