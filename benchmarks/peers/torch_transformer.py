# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of the transformer that translates: torch.nn.Transformer, norms first, with learned positions and scores by
the table of the target's words."""
import torch
from torch import nn
from torch.nn import functional as F


class Translator(nn.Module):
    def __init__(self, s):
        super().__init__()
        width, steps = s["hidden"], s["steps"]
        self.source, self.target = nn.Embedding(s["source_words"], width), nn.Embedding(s["target_words"], width)
        self.source_places, self.target_places = nn.Embedding(steps, width), nn.Embedding(steps, width)
        self.drop = nn.Dropout(s["dropout"])
        self.layers = nn.Transformer(width, s["heads"], s["layers"], s["layers"], 4 * width, s["dropout"], batch_first=True,
                                     norm_first=True)

    def forward(self, source, written, labels, mask):
        x = self.drop(self.source(source) + self.source_places.weight)
        y = self.drop(self.target(written) + self.target_places.weight)
        said = self.layers(x, y, tgt_mask=mask, tgt_is_causal=True)
        scores = F.linear(said, self.target.weight)
        return F.cross_entropy(scores.view(-1, scores.shape[-1]), labels.view(-1))


def transformer(case, device):
    s = case["sizes"]
    halves = case["dtype"] == "bf16"

    def make(compiles):
        def build(_):
            torch.manual_seed(0)
            model = Translator(s).to(device)
            run = torch.compile(model, dynamic=False) if compiles else model
            best = dict(fused=True, capturable=True) if device == "cuda" else dict(fused=True)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, **best)
            shape = (s["batch"], s["steps"])
            source = torch.randint(0, s["source_words"], shape, device=device)
            written, labels = (torch.randint(0, s["target_words"], shape, device=device) for _ in range(2))
            mask = nn.Transformer.generate_square_subsequent_mask(s["steps"], device=device)

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                    loss = run(source, written, labels, mask)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
                optimizer.step()
            return step
        return build
    return [{"peer": "PyTorch", "make": make(False)}, {"peer": "PyTorch compiled", "make": make(True)}]


WORKS = {"transformer_training": transformer}
