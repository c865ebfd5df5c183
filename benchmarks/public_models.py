# SPDX-License-Identifier: Apache-2.0
"""benchmarks/public_models.py [FOLDER]: models with a recurrent core whose packages (silero-vad, g2p-en, Resemblyzer) bring
their weights along, rebuilt as PyTorch modules, and the same after paoding.torch.accelerate(), of the package in FOLDER
(build/python), on the CPU, in turns. Largest difference of the outputs; medians; ms; with one thread its time on the
processor, as others may be using the machine. Nothing of the packages is imported."""

import importlib.util
import pathlib
import statistics
import sys
import time

import numpy as np
import torch
from torch import nn

ROUNDS = 15


def data_of(package, name):
    """A file that the package brings along; ModuleNotFoundError where the package is not installed."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f'{package} is not installed')
    return pathlib.Path(spec.origin).parent / name


class VoiceActivity(nn.Module):
    """Silero VAD for 16 kHz: how likely each stretch of 512 samples is speech. An LSTM over what a few convolutions make of
    the stretches. Takes [B, 512 N], gives [B, N]."""

    def __init__(self):
        super().__init__()
        self.stft_conv = nn.Conv1d(1, 258, 256, 128, bias=False)
        self.conv1, self.conv2 = nn.Conv1d(129, 128, 3, padding=1), nn.Conv1d(128, 64, 3, 2, 1)
        self.conv3, self.conv4 = nn.Conv1d(64, 64, 3, 2, 1), nn.Conv1d(64, 128, 3, padding=1)
        self.lstm = nn.LSTM(128, 128, batch_first=True)
        self.final_conv = nn.Conv1d(128, 1, 1)

    @classmethod
    def shipped(cls):
        from safetensors.torch import load_file

        weights = load_file(data_of('silero_vad', 'data/silero_vad_16k.safetensors'))
        made = cls()
        made.load_state_dict(
            {f'lstm.{key[10:]}_l0' if key.startswith('lstm_cell') else key: value for key, value in weights.items()}
        )
        return made.eval()

    def forward(self, samples):
        stretches = nn.functional.pad(samples, (64, 0)).unfold(1, 576, 512)
        batch, count, length = stretches.shape
        x = nn.functional.pad(stretches.reshape(batch * count, 1, length), (0, 64), 'reflect')
        parts = self.stft_conv(x)
        x = (parts[:, :129] ** 2 + parts[:, 129:] ** 2).sqrt()
        for convolution in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = convolution(x).relu()
        x = self.lstm(x.reshape(batch, count, 128))[0].relu()
        return self.final_conv(x.transpose(1, 2)).sigmoid().squeeze(1)

    @staticmethod
    def inputs():
        time_of = torch.arange(512 * 300) / 16000
        generator = torch.Generator().manual_seed(1)
        noise = torch.randn(4, time_of.numel(), generator=generator)
        pitches = torch.tensor([110.0, 140.0, 180.0, 220.0])[:, None]
        voice = sum(torch.sin(2 * torch.pi * k * pitches * time_of) / k for k in range(1, 12))
        loudness = (torch.sin(2 * torch.pi * 0.7 * time_of) > 0).float()
        return {'10 s': (0.2 * (voice * loudness)[:1] + 0.01 * noise[:1],), '4 x 10 s': (0.2 * voice * loudness + 0.01 * noise,)}


class Pronunciation(nn.Module):
    """g2p-en's: from letters to phonemes, greedily. Takes letters [T, B] and their lengths [B], gives phonemes [20, B]."""

    def __init__(self):
        super().__init__()
        self.enc_emb, self.dec_emb = nn.Embedding(29, 256), nn.Embedding(74, 256)
        self.encoder, self.decoder = nn.GRU(256, 256), nn.GRU(256, 256)
        self.fc = nn.Linear(256, 74)

    @classmethod
    def shipped(cls):
        with np.load(data_of('g2p_en', 'checkpoint20.npz')) as arrays:
            names = {'enc_emb': 'enc_emb.weight', 'dec_emb': 'dec_emb.weight', 'fc_w': 'fc.weight', 'fc_b': 'fc.bias'}
            for ours, theirs in (('encoder', 'enc'), ('decoder', 'dec')):
                for kind, letter in (('weight', 'w'), ('bias', 'b')):
                    for of in ('ih', 'hh'):
                        names[f'{theirs}_{letter}_{of}'] = f'{ours}.{kind}_{of}_l0'
            weights = {names[key]: torch.from_numpy(arrays[key]) for key in arrays}
        made = cls()
        made.load_state_dict(weights)
        return made.eval()

    def forward(self, letters, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(self.enc_emb(letters), lengths, enforce_sorted=False)
        _, state = self.encoder(packed)
        before = torch.full((1, letters.shape[1]), 2)
        made = []
        for _ in range(20):
            output, state = self.decoder(self.dec_emb(before), state)
            before = self.fc(output).argmax(-1)
            made.append(before)
        return torch.cat(made)

    @staticmethod
    def inputs():
        words = 'phoneme recurrent library pronounce graphics accelerate sequence memory vowel threshold'.split() * 7

        def of(words):
            rows = [torch.tensor([ord(letter) - ord('a') + 3 for letter in word] + [2]) for word in words]
            return nn.utils.rnn.pad_sequence(rows), torch.tensor([len(row) for row in rows])

        return {'1 word': of(words[:1]), '64 words': of(words[:64])}


class Voice(nn.Module):
    """Resemblyzer's: whose voice it is, as a vector of 256. Takes mel spectrograms [B, T, 40]."""

    def __init__(self):
        super().__init__()
        self.lstm, self.linear = nn.LSTM(40, 256, 3, batch_first=True), nn.Linear(256, 256)

    @classmethod
    def shipped(cls):
        weights = torch.load(data_of('resemblyzer', 'pretrained.pt'), map_location='cpu', weights_only=True)
        made = cls()
        made.load_state_dict({key: value for key, value in weights['model_state'].items() if 'similarity' not in key})
        return made.eval()

    def forward(self, mels):
        _, (hidden, _) = self.lstm(mels)
        raw = self.linear(hidden[-1]).relu()
        return raw / raw.norm(dim=1, keepdim=True)

    @staticmethod
    def inputs():
        mels = torch.rand(16, 160, 40, generator=torch.Generator().manual_seed(2)) ** 4
        return {'1.6 s': (mels[:1],), '16 x 1.6 s': (mels,)}


MODELS = {'silero-vad': VoiceActivity, 'g2p-en': Pronunciation, 'Resemblyzer': Voice}


def seconds(call, clock):
    start = clock()
    call()
    return clock() - start


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else 'build/python').resolve()))
    import paoding.torch

    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    print(f'PyTorch {torch.__version__}, {torch.get_num_threads()} threads')
    print(f'{"":24}{"torch.nn":>10}{"paoding":>10}{"apart by":>10}')
    for name, model in MODELS.items():
        try:
            before, after = model.shipped(), paoding.torch.accelerate(model.shipped())
        except ModuleNotFoundError as error:
            print(f'not run: {error}')
            continue
        with torch.no_grad():
            for title, given in model.inputs().items():
                apart = (before(*given).double() - after(*given).double()).abs().max().item()
                times = {before: [], after: []}
                for _ in range(ROUNDS):
                    for each, taken in times.items():
                        taken.append(seconds(lambda: each(*given), clock))
                medians = [1e3 * statistics.median(taken) for taken in times.values()]
                print(f'{name + ", " + title:<24}{medians[0]:>10.2f}{medians[1]:>10.2f}{apart:>10.1e}', flush=True)


if __name__ == '__main__':
    main()
