# SPDX-License-Identifier: Apache-2.0
# What PyTorch gives for recurrent layers, losses, normalisation, optimizers and a small attention seq2seq, in float64:
# tests/reference/nn_peer_test.cpp reads it. record.sh calls it.
import json, struct, sys
import torch
from torch import nn

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
KEPT = {}


def keep(name, value):
    KEPT[name] = value.detach().clone().contiguous()


def keep_all(prefix, module, grads=True):
    for name, p in module.named_parameters():
        keep(f"{prefix}/{name}", p)
        if grads:
            keep(f"{prefix}/grad/{name}", p.grad)


def recurrent(name, module, lengths=None, initial=True):
    T, B = 6, 3
    x = torch.randn(T, B, module.input_size, requires_grad=True)
    sets = module.num_layers * (2 if module.bidirectional else 1)
    width = getattr(module, "proj_size", 0) or module.hidden_size
    h = torch.randn(sets, B, width)
    state = (h, torch.randn(sets, B, module.hidden_size)) if isinstance(module, nn.LSTM) else h
    keep(f"{name}/x", x)
    keep(f"{name}/h0", h)
    if isinstance(state, tuple):
        keep(f"{name}/c0", state[1])
    given = x
    if lengths is not None:
        keep(f"{name}/lengths", torch.tensor(lengths))
        given = nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False)
    y, last = module(given, state)
    if lengths is not None:
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=T)
    dy = torch.randn_like(y)
    (y * dy).sum().backward()
    keep(f"{name}/dy", dy)
    keep(f"{name}/y", y)
    keep(f"{name}/dx", x.grad)
    if isinstance(last, tuple):
        keep(f"{name}/h", last[0])
        keep(f"{name}/c", last[1])
    else:
        keep(f"{name}/h", last)
    keep_all(name, module)


recurrent("lstm", nn.LSTM(4, 3, num_layers=2, bidirectional=True), [6, 2, 4])
recurrent("lstm_projection", nn.LSTM(4, 5, proj_size=3))
recurrent("gru", nn.GRU(4, 3, num_layers=2, bidirectional=True), [1, 6, 3])
recurrent("rnn", nn.RNN(4, 3))
recurrent("relu", nn.RNN(4, 3, nonlinearity="relu"))


def cross_entropy(name, **options):
    logits = torch.randn(7, 5, requires_grad=True)
    labels = torch.tensor([0, 4, 2, -100, 1, 3, -100])
    loss = nn.functional.cross_entropy(logits, labels, **options)
    loss.sum().backward()
    for what, value in dict(logits=logits, labels=labels, loss=loss, grad=logits.grad).items():
        keep(f"{name}/{what}", value)


cross_entropy("cross_entropy_mean")
cross_entropy("cross_entropy_sum", reduction="sum")
cross_entropy("cross_entropy_none", reduction="none")
cross_entropy("cross_entropy_smooth", label_smoothing=0.1)


def pair(name, function):
    a = (2 * torch.randn(4, 6)).requires_grad_()
    b = torch.rand(4, 6)
    loss = function(a, b)
    loss.backward()
    for what, value in dict(a=a, b=b, loss=loss, grad=a.grad).items():
        keep(f"{name}/{what}", value)


pair("mse", nn.functional.mse_loss)
pair("l1", nn.functional.l1_loss)
pair("huber", lambda a, b: nn.functional.huber_loss(a, b, delta=0.7))
pair("bce", nn.functional.binary_cross_entropy_with_logits)
pair("softmax", lambda a, b: (torch.softmax(a, 1) * b).sum())
pair("log_softmax", lambda a, b: (torch.log_softmax(a, 0) * b).sum())


def norm(name, module, x, **more):
    x.requires_grad_()
    y = module(x)
    dy = torch.randn_like(y)
    (y * dy).sum().backward()
    for what, value in dict(x=x, y=y, dy=dy, dx=x.grad).items():
        keep(f"{name}/{what}", value)
    keep_all(name, module)
    for what, value in more.items():
        keep(f"{name}/{what}", value)


def shaken(module):
    for p in module.parameters():
        nn.init.normal_(p)
    return module


norm("layer_norm", shaken(nn.LayerNorm(6)), torch.randn(4, 6))
norm("rms_norm", shaken(nn.RMSNorm(6, eps=1e-6)), torch.randn(4, 6))
batch_norm = shaken(nn.BatchNorm2d(3))
norm("batch_norm", batch_norm, torch.randn(4, 3, 2, 5))
keep("batch_norm/running_mean", batch_norm.running_mean)
keep("batch_norm/running_var", batch_norm.running_var)
batch_norm.eval()
keep("batch_norm/eval", batch_norm(KEPT["batch_norm/x"]))


def layer(name, module, *inputs, **options):
    """A module's result and gradients; `inputs` that are floats get one too."""
    distinct = {id(value): value for value in inputs if value.is_floating_point()}
    for value in distinct.values():
        value.requires_grad_()
    y = module(*inputs, **options)
    y = y[0] if isinstance(y, tuple) else y
    dy = torch.randn_like(y)
    (y * dy).sum().backward()
    keep(f"{name}/y", y)
    keep(f"{name}/dy", dy)
    for i, value in enumerate(distinct.values() if distinct else inputs):
        keep(f"{name}/x{i}", value)
        if value.grad is not None:
            keep(f"{name}/dx{i}", value.grad)
    keep_all(name, module)


def floats(mask):
    return mask.to(torch.int64)


attention = dict(batch_first=True)
causal = torch.triu(torch.ones(4, 4, dtype=torch.bool), 1)  # true: not seen
lengths = torch.tensor([3, 5])
behind = torch.arange(5) >= lengths[:, None]
x = torch.randn(2, 4, 6)
layer("attention_self", shaken(nn.MultiheadAttention(6, 3, **attention)), x, x, x, attn_mask=causal)
x, memory = torch.randn(2, 4, 6), torch.randn(2, 5, 6)
layer("attention_memory", shaken(nn.MultiheadAttention(6, 2, **attention)), x, memory, memory, key_padding_mask=behind)
hidden = torch.rand(2, 4, 5) < 0.4
hidden[:, :, 0] = False
keep("attention_widths/seen", floats(~hidden))
x, keys, values = torch.randn(2, 4, 6), torch.randn(2, 5, 3), torch.randn(2, 5, 7)
layer("attention_widths", shaken(nn.MultiheadAttention(6, 2, kdim=3, vdim=7, **attention)), x, keys, values,
      attn_mask=hidden.repeat_interleave(2, 0))
x, keys, values = torch.randn(2, 4, 6), torch.randn(2, 5, 6), torch.randn(2, 5, 6)
layer("attention_plain", shaken(nn.MultiheadAttention(6, 6, bias=False, **attention)), x, keys, values)
keep("attention_memory/lengths", lengths)
layer("conv2d_layer", nn.Conv2d(4, 6, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
      torch.randn(2, 4, 6, 7))
layer("embedding_layer", nn.Embedding(7, 4, padding_idx=2), torch.tensor([[0, 2, 6], [2, 1, 0]]))


def optimizer(name, make):
    p = torch.randn(9, requires_grad=True)
    keep(f"optimizer/{name}/start", p)
    o = make([p])
    for step in range(5):
        p.grad = torch.sin(p.detach() * 3 + step)
        o.step()
    keep(f"optimizer/{name}/end", p)


optimizer("sgd", lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.01))
optimizer("momentum", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
optimizer("nesterov", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01))
optimizer("adam", lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.05))
optimizer("adamw", lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.05))


class G2P(nn.Module):
    """The model of the g2p benchmark, small: 2 + 2 LSTM layers, input feeding, attention."""

    def __init__(s, vs=7, vt=9, H=6, L=2):
        super().__init__()
        s.L = L
        s.es, s.et = nn.Embedding(vs, H), nn.Embedding(vt, H)
        s.enc = nn.LSTM(H, H, L)
        s.cells = nn.ModuleList([nn.LSTMCell(2 * H if i == 0 else H, H) for i in range(L)])
        s.mem, s.att, s.out = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H, bias=False), nn.Linear(H, vt)

    def step(s, x, feed, hs, cs, memory):
        x = torch.cat([x, feed], 1)
        nh, nc = [], []
        for i in range(s.L):
            h, c = s.cells[i](x, (hs[i], cs[i]))
            nh.append(h)
            nc.append(c)
            x = h
        w = torch.softmax(torch.bmm(memory, x.unsqueeze(2)).squeeze(2), 1)
        ctx = torch.bmm(w.unsqueeze(1), memory).squeeze(1)
        return torch.tanh(s.att(torch.cat([ctx, x], 1))), nh, nc

    def forward(s, src, trg):
        y, (h, c) = s.enc(s.es(src))
        memory, emb = s.mem(y.transpose(0, 1)), s.et(trg)
        hs, cs = list(h.unbind(0)), list(c.unbind(0))
        feed, outs = torch.zeros_like(hs[0]), []
        for k in range(trg.shape[0]):
            feed, hs, cs = s.step(emb[k], feed, hs, cs, memory)
            outs.append(feed)
        return s.out(torch.stack(outs))


model = G2P()
source, target = torch.randint(0, 7, (5, 3)), torch.randint(0, 9, (5, 3))
loss = nn.functional.cross_entropy(model(source, target[:-1]).reshape(-1, 9), target[1:].reshape(-1))
loss.backward()
keep("g2p/source", source)
keep("g2p/target", target)
keep("g2p/loss", loss)
keep_all("g2p", model)

names = {torch.float64: "F64", torch.int64: "I64"}
header, offset = {}, 0
for name, value in KEPT.items():
    size = value.numel() * 8
    header[name] = {"dtype": names[value.dtype], "shape": list(value.shape), "data_offsets": [offset, offset + size]}
    offset += size
header["__metadata__"] = {"made by": "record_nn.py", "torch": torch.__version__}
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text)
    for value in KEPT.values():
        file.write(value.numpy().tobytes())
print(len(KEPT), "tensors,", 8 + len(text) + offset, "bytes")
