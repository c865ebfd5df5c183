# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of sections S and G: training steps of the attention seq2seq, and the conv net of section B."""
import time

import torch
from torch import nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from protocol import Timing
from torch_kernels import dtype_of


class Seq2Seq(nn.Module):
    """LSTM layers that read, LSTM cells that write, input feeding, multiplicative attention over the projected source."""

    def __init__(self, s):
        super().__init__()
        hidden, layers = s["hidden"], s["layers"]
        self.dropped, self.squashes = s["dropout"], s["squashes_attention"]
        self.read, self.written = nn.Embedding(s["source_words"], hidden), nn.Embedding(s["target_words"], hidden)
        self.encoder = nn.LSTM(hidden, hidden, layers, dropout=self.dropped)
        self.cells = nn.ModuleList([nn.LSTMCell(2 * hidden if i == 0 else hidden, hidden) for i in range(layers)])
        self.project = nn.Linear(hidden, hidden, bias=False)
        self.attend = nn.Linear(2 * hidden, hidden, bias=False)
        self.output = nn.Linear(hidden, s["target_words"], bias=self.squashes)
        self.step = self.cell

    def drop(self, x):
        return F.dropout(x, self.dropped, self.training) if self.dropped > 0 else x

    def cell(self, x, said, hs, cs, memory, mask):
        x, next_h, next_c = torch.cat([x, said], 1), [], []
        for cell, h, c in zip(self.cells, hs, cs):
            h, c = cell(x, (h, c))
            next_h.append(h)
            next_c.append(c)
            x = self.drop(h)
        scores = torch.bmm(memory, x.unsqueeze(2)).squeeze(2)
        share = torch.softmax(scores if mask is None else scores + mask, 1)
        seen = torch.bmm(share.unsqueeze(1), memory).squeeze(1)
        said = self.attend(torch.cat([seen, x], 1))
        return (torch.tanh(said) if self.squashes else said), next_h, next_c

    def forward(self, source, mask, target):
        y, (h, c) = self.encoder(self.drop(self.read(source)))
        memory, words = self.project(y.transpose(0, 1)).contiguous(), self.written(target)
        hs, cs = list(h.unbind(0)), list(c.unbind(0))
        said, all_said = torch.zeros_like(hs[0]), []
        for t in range(target.shape[0]):
            said, hs, cs = self.step(words[t], said, hs, cs, memory, mask)
            all_said.append(said)
        return self.output(torch.stack(all_said))


def seq2seq(case, device):
    s = case["sizes"]
    batch, words = s["batch"], s["target_words"]
    halves = case["dtype"] == "bf16"

    def make(mode):
        def build(_):
            torch.manual_seed(0)
            model = Seq2Seq(s).to(device)
            if mode == "cell":
                model.step = torch.compile(model.cell, dynamic=False)
            run = torch.compile(model, dynamic=False) if mode == "whole" else model
            best = dict(fused=True, capturable=True) if device == "cuda" else dict(fused=mode != "plain")
            optimizer = torch.optim.Adam(model.parameters(), **best)
            source = torch.randint(0, s["source_words"], (s["source_steps"], batch), device=device)
            target = torch.randint(0, words, (s["target_steps"] + 1, batch), device=device)
            mask = torch.zeros(batch, s["source_steps"], device=device) if s["lengths"] else None

            def step():
                optimizer.zero_grad(set_to_none=True)
                with torch.autocast(device, dtype=torch.bfloat16, enabled=halves):
                    logits = run(source, mask, target[:-1]).float().reshape(-1, words)
                    labels = target[1:].reshape(-1)
                    if s["sums_over_time"]:
                        loss = F.cross_entropy(logits, labels, reduction="sum") / batch
                    else:
                        loss = F.cross_entropy(logits, labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0, foreach=True)
                optimizer.step()
            return step
        return build
    found = [{"peer": "PyTorch", "make": make("plain")}]
    found.append({"peer": "PyTorch, compiled cell", "make": make("cell")})
    if device == "cpu":
        found.append({"peer": "PyTorch, fused Adam", "make": make("fused")})
    else:
        found.append({"peer": "PyTorch, compiled whole", "make": make("whole")})
    return found


def conv_net(case, device):
    s = case["sizes"]
    trains = case["kind"].endswith("training")

    def make(last, compiles):
        def build(_):
            layers, inputs, side = [], s["image_channels"], s["size"]
            for channels in s["channels"]:
                layers += [nn.Conv2d(inputs, channels, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
                inputs, side = channels, side // 2
            model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs * side * side, s["classes"]))
            model = model.to(device, dtype_of(case))
            x = torch.randn(s["batch"], s["image_channels"], s["size"], s["size"], device=device, dtype=dtype_of(case))
            labels = torch.randint(0, s["classes"], (s["batch"],), device=device)
            if last:
                model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
            run = torch.compile(model, dynamic=False) if compiles else model
            if not trains:
                def forward():
                    with torch.no_grad():
                        return run(x)
                return forward
            best = dict(fused=True, capturable=True) if device == "cuda" else dict(fused=last or compiles)
            optimizer = torch.optim.Adam(model.parameters(), **best)

            def step():
                optimizer.zero_grad(set_to_none=True)
                F.cross_entropy(run(x), labels).backward()
                optimizer.step()
            return step
        return build
    return [{"peer": "PyTorch", "make": make(False, False)},
            {"peer": "PyTorch, channels last", "make": make(True, False)},
            {"peer": "PyTorch compiled, channels last", "make": make(True, True)},
            {"peer": "PyTorch compiled", "make": make(False, True)}]


def recording(case, device):
    """What torch.profiler adds to an eager step."""
    step = seq2seq(case, device)[0]["make"](0)

    def wall(count=5):
        step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            step()
        torch.cuda.synchronize()
        return (time.perf_counter() - start) * 1e6 / count

    def timed():
        costs = []
        for _ in range(3):
            plain = wall()
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]):
                costs.append(wall() - plain)
        return Timing(costs)
    return [{"peer": "torch.profiler, eager step", "timed": timed}]


WORKS = {"recording": recording, "seq2seq": seq2seq, "conv_net_forward": conv_net, "conv_net_training": conv_net}
