# SPDX-License-Identifier: Apache-2.0
"""CPU baselines in PyTorch: g2p training step, conv net step, element-wise ops, layer_norm, Adam. THREADS=2 python3 cpu.py OUT.json"""
import json, os, sys, time, torch
from torch import nn
N = int(os.environ.get("THREADS", "2")); torch.set_num_threads(N)
ROWS = []
def t(fn, reps=20, warm=3, budget=6.0):
    for _ in range(warm): fn()
    o, s0 = [], time.perf_counter()
    while len(o) < reps and time.perf_counter() - s0 < budget:
        s = time.perf_counter(); fn(); o.append(time.perf_counter() - s)
    o.sort(); return o[len(o) // 2] * 1e6
def row(name, us, **kw):
    ROWS.append(dict(name=name, us=us, threads=N, **kw)); print(json.dumps(ROWS[-1]), flush=True)

class G2P(nn.Module):
    """attention seq2seq, 2+2 layers, hidden 256, 30 letters -> 42 phonemes, input feeding"""
    def __init__(s, vs=30, vt=42, H=256, L=2):
        super().__init__()
        s.H, s.L = H, L
        s.es, s.et = nn.Embedding(vs, H), nn.Embedding(vt, H)
        s.enc = nn.LSTM(H, H, L)
        s.cells = nn.ModuleList([nn.LSTMCell(2 * H if i == 0 else H, H) for i in range(L)])
        s.mem, s.att, s.out = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H, bias=False), nn.Linear(H, vt)
    def cell(s, x, feed, hs, cs, memory):
        x = torch.cat([x, feed], 1); nh, nc = [], []
        for i in range(s.L):
            h, c = s.cells[i](x, (hs[i], cs[i])); nh.append(h); nc.append(c); x = h
        w = torch.softmax(torch.bmm(memory, x.unsqueeze(2)).squeeze(2), 1)
        ctx = torch.bmm(w.unsqueeze(1), memory).squeeze(1)
        return torch.tanh(s.att(torch.cat([ctx, x], 1))), nh, nc
    def forward(s, src, trg):
        y, (h, c) = s.enc(s.es(src)); memory = s.mem(y.transpose(0, 1)).contiguous(); emb = s.et(trg)
        hs, cs = list(h.unbind(0)), list(c.unbind(0)); feed = torch.zeros_like(hs[0]); outs = []
        for k in range(trg.shape[0]):
            feed, hs, cs = s.step(emb[k], feed, hs, cs, memory); outs.append(feed)
        return s.out(torch.stack(outs))

def g2p(mode, B=64, S=10, T=10):
    torch.manual_seed(0); m = G2P(); m.step = torch.compile(m.cell) if mode == "compile" else m.cell
    o = torch.optim.Adam(m.parameters()); src = torch.randint(0, 30, (S, B)); trg = torch.randint(0, 42, (T + 1, B))
    def step():
        o.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(m(src, trg[:-1]).reshape(-1, 42), trg[1:].reshape(-1)).backward()
        nn.utils.clip_grad_norm_(m.parameters(), 5.0); o.step()
    row("g2p_step", t(step), mode=mode, B=B, S=S, T=T, H=256)

def conv(mode, B=128):
    m = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(288, 10))
    f = torch.compile(m) if mode == "compile" else m
    o = torch.optim.Adam(m.parameters()); x = torch.randn(B, 1, 28, 28); y = torch.randint(0, 10, (B,))
    def step():
        o.zero_grad(set_to_none=True); nn.functional.cross_entropy(f(x), y).backward(); o.step()
    row("convnet_step", t(step), mode=mode, B=B)

def lstm(T, B, H, train):
    m = nn.LSTM(H, H); x = torch.randn(T, B, H)
    if train:
        def step(): m.zero_grad(set_to_none=True); m(x)[0].sum().backward()
    else:
        m.eval()
        def step():
            with torch.inference_mode(): m(x)
    row("lstm_train" if train else "lstm_fwd", t(step), T=T, B=B, H=H)

def elementwise():
    x, y, g = torch.randn(16, 102400), torch.randn(16, 102400), torch.randn(16, 102400); w = torch.tensor([0.3])
    xx, yy = x.clone().requires_grad_(), y.clone().requires_grad_(); out = torch.lerp(xx, yy, w)
    row("copy", t(lambda: y.copy_(x)), MB=2 * x.numel() * 4 / 1e6)
    row("lerp", t(lambda: torch.lerp(x, y, w)))
    row("lerp_grad", t(lambda: torch.autograd.grad(out, (xx, yy), g, retain_graph=True)))
    a = torch.randn(8192, 1024, requires_grad=True); ln = nn.LayerNorm(1024); o = ln(a); go = torch.randn_like(o)
    row("layer_norm", t(lambda: ln(a.detach()))); row("layer_norm_grad", t(lambda: torch.autograd.grad(o, (a, ln.weight, ln.bias), go, retain_graph=True)))
    p = [torch.randn(1_000_000) for _ in range(10)]
    for q in p: q.grad = torch.randn_like(q)
    for kw in (dict(fused=True), dict(foreach=True)):
        o2 = torch.optim.Adam(p, **kw); row("adam10M", t(o2.step), **kw)

if __name__ == "__main__":
    print(torch.__version__, torch.__config__.parallel_info().splitlines()[0:3])
    g2p("eager"); conv("eager"); elementwise()
    json.dump(ROWS, open(sys.argv[1], "w"), indent=1)
