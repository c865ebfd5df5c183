# SPDX-License-Identifier: Apache-2.0
# How the g2p model at its real size trains in PyTorch: 20 steps of Adam (1e-3) on batches of 64 of the shapes that g2p's
# buckets have, in float64 and in float32; with gradients clipped to 5, which none of these reaches, and to 0.2, which
# half of them do. Weights and batches come from one formula, which tests/reference/g2p_peer_test.cpp has too, so that only losses
# and norms of gradients are kept.
# record.sh calls it.
import sys
import numpy as np
import torch
from torch import nn

HIDDEN, LETTERS, PHONEMES, ROWS = 256, 30, 42, 64
# Source and target bounds, each with the bound before it.
SHAPES = [(6, 5, 6, 4), (8, 7, 8, 7), (7, 6, 7, 6), (10, 9, 10, 9), (5, 4, 4, 1),
          (9, 8, 9, 8), (12, 10, 12, 10), (6, 5, 7, 6), (14, 12, 14, 12), (36, 18, 18, 14)]


def bits(stream, count):
    """splitmix64 (Steele, Lea, Flood 2014) of stream * 2^32 + 0 .. count - 1."""
    x = np.arange(count, dtype=np.uint64) + np.uint64((stream << 32) + 0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def weights(stream, shape, bound):
    """In +-bound, as float32 holds them."""
    unit = (bits(stream, int(np.prod(shape))) >> np.uint64(40)).astype(np.float64) / (1 << 24)
    return ((2 * unit - 1) * bound).astype(np.float32).reshape(shape)


def batch(step):
    S, S_before, T, T_before = SHAPES[step % len(SHAPES)]
    drawn = bits(100 + step, ROWS * (2 + S)).reshape(ROWS, 2 + S)
    source = np.zeros((S, ROWS), np.int64)
    written, labels = np.full((T, ROWS), 1, np.int64), np.full((T, ROWS), -1, np.int64)
    lengths = np.zeros(ROWS, np.int64)
    for b in range(ROWS):
        length = S_before + 1 + int(drawn[b, 0] % np.uint64(S - S_before))
        words = T_before + int(drawn[b, 1] % np.uint64(T - T_before))  # and the end
        letters = [1 + int(x % np.uint64(27)) for x in drawn[b, 2:2 + length]]
        # What is said depends on the letter there and the one before it.
        said = []
        for t in range(words):
            at = t * length // words
            said.append(2 + (letters[at] * 5 + letters[max(0, at - 1)]) % 40)
        source[:length, b], lengths[b] = letters, length
        written[:words + 1, b] = [0] + said
        labels[:words + 1, b] = said + [1]
    return [torch.from_numpy(x) for x in (source, lengths, written, labels)]


class G2p(nn.Module):
    def __init__(s):
        super().__init__()
        H = HIDDEN
        s.read, s.write = nn.Embedding(LETTERS, H), nn.Embedding(PHONEMES, H)
        s.encoder = nn.LSTM(H, H, 2)
        s.cells = nn.ModuleList([nn.LSTMCell(2 * H, H), nn.LSTMCell(H, H)])
        s.memory, s.attention = nn.Linear(H, H, bias=False), nn.Linear(2 * H, H, bias=False)
        s.output = nn.Linear(H, PHONEMES)
        lstm = H**-0.5
        stream = 0
        cell = [("weight_ih", lstm), ("weight_hh", lstm), ("bias_ih", lstm)]
        for module, suffix, parts in [(s.read, "", [("weight", 3**0.5)]), (s.write, "", [("weight", 3**0.5)]),
                                      (s.encoder, "_l0", cell), (s.encoder, "_l1", cell),
                                      (s.cells[0], "", cell), (s.cells[1], "", cell),
                                      (s.memory, "", [("weight", H**-0.5)]),
                                      (s.attention, "", [("weight", (2 * H)**-0.5)]),
                                      (s.output, "", [("weight", H**-0.5), ("bias", H**-0.5)])]:
            for part, bound in parts:
                p = getattr(module, part + suffix)
                stream += 1
                p.data = torch.from_numpy(weights(stream, tuple(p.shape), bound))
        # One bias per gate: the second of PyTorch's two stays 0.
        for name, p in s.named_parameters():
            if "bias_hh" in name:
                nn.init.zeros_(p).requires_grad_(False)

    def forward(s, source, lengths, written, labels):
        packed = nn.utils.rnn.pack_padded_sequence(s.read(source), lengths, enforce_sorted=False)
        y, (h, c) = s.encoder(packed)
        y, _ = nn.utils.rnn.pad_packed_sequence(y, total_length=source.shape[0])
        memory = s.memory(y).transpose(0, 1)
        behind = torch.arange(source.shape[0]) >= lengths[:, None]
        hs, cs, said = list(h), list(c), torch.zeros_like(h[0])
        outputs = []
        for word in s.write(written):
            x = torch.cat([word, said], 1)
            for i, cell in enumerate(s.cells):
                hs[i], cs[i] = cell(x, (hs[i], cs[i]))
                x = hs[i]
            scores = (memory @ x[:, :, None])[:, :, 0].masked_fill(behind, -torch.inf)
            seen = (torch.softmax(scores, 1)[:, None] @ memory)[:, 0]
            said = torch.tanh(s.attention(torch.cat([seen, x], 1)))
            outputs.append(said)
        scores = s.output(torch.stack(outputs))
        return nn.functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), ignore_index=-1)


def train(dtype, clip, steps):
    model = G2p().to(dtype)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(trained, lr=1e-3)
    for step in range(steps):
        loss = model(*batch(step))
        optimizer.zero_grad()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(trained, clip)
        optimizer.step()
        yield loss.item(), norm.item()


torch.set_num_threads(2)
with open(sys.argv[1], "w") as file:
    print("# record_g2p.py, PyTorch", torch.__version__, file=file)
    print("# clip, step, then loss and norm of the gradients in float64, and the same in float32", file=file)
    for clip, steps in [(5, 20), (0.2, 12)]:
        both = zip(train(torch.float64, clip, steps), train(torch.float32, clip, steps))
        for step, (exact, single) in enumerate(both):
            print(clip, step, " ".join(f"{x:.9g}" for x in (*exact, *single)), file=file, flush=True)
