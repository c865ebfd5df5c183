# SPDX-License-Identifier: Apache-2.0
"""Models that packages bring along, accelerated in one line: their outputs are those of torch.nn's layers, and those of
what the packages compute."""

import importlib.util
import pathlib

import numpy as np
import pytest

from torch_or_skip import torch  # noqa: E402

import paoding.torch as pt

path = pathlib.Path(__file__).parents[2] / 'benchmarks/public_models.py'
spec = importlib.util.spec_from_file_location('public_models', path)
models = importlib.util.module_from_spec(spec)
spec.loader.exec_module(models)


def shipped(name):
    """The model as the package has it, and accelerated."""
    try:
        made = models.MODELS[name].shipped()
    except ModuleNotFoundError as error:
        pytest.skip(f'not run: {error} (pip install --no-deps {name})')
    return made, pt.accelerate(models.MODELS[name].shipped())


@pytest.mark.parametrize('name', models.MODELS)
def test_an_accelerated_model_gives_what_it_gave(name):
    before, after = shipped(name)
    assert any(type(module) in (pt.LSTM, pt.GRU) for module in after.modules())
    with torch.no_grad():
        for given in models.MODELS[name].inputs().values():
            torch.testing.assert_close(after(*given), before(*given), rtol=1e-4, atol=1e-5)


def test_voice_activity_is_what_the_shipped_program_says():
    """Which has weights of its own, other ones than the file of weights."""
    _, after = shipped('silero-vad')
    theirs = torch.jit.load(models.data_of('silero_vad', 'data/silero_vad.jit'))
    weights = {'stft_conv.weight': theirs._model.stft.forward_basis_buffer}
    for name, value in theirs._model.named_parameters():
        for i in range(4):
            name = name.replace(f'encoder.{i}.reparam_conv', f'conv{i + 1}')
        name = name.replace('decoder.decoder.2', 'final_conv')
        weights[f'lstm.{name.split(".")[-1]}_l0' if 'rnn' in name else name] = value
    after.load_state_dict(weights)
    (samples,) = models.VoiceActivity.inputs()['4 x 10 s']
    with torch.no_grad():
        wanted = torch.cat([theirs(part, 16000) for part in samples.split(512, dim=1)], dim=1)
        torch.testing.assert_close(after(samples), wanted, rtol=1e-3, atol=1e-4)


def test_pronunciations_are_those_of_the_equations_in_numpy():
    _, after = shipped('g2p-en')
    arrays = dict(np.load(models.data_of('g2p_en', 'checkpoint20.npz')))
    letters, lengths = models.Pronunciation.inputs()['64 words']
    with torch.no_grad():
        got = after(letters, lengths).T.numpy()

    def cell(x, h, part):
        w_ih, w_hh, b_ih, b_hh = (arrays[f'{part}_{name}'] for name in ('w_ih', 'w_hh', 'b_ih', 'b_hh'))
        sums, products = x @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        r, z = (1 / (1 + np.exp(-(sums[i : i + 256] + products[i : i + 256]))) for i in (0, 256))
        return (1 - z) * np.tanh(sums[512:] + r * products[512:]) + z * h

    for row in range(10):
        h = np.zeros(256)
        for letter in letters[: lengths[row], row]:
            h = cell(arrays['enc_emb'][letter], h, 'enc')
        phoneme = 2
        for i in range(20):
            h = cell(arrays['dec_emb'][phoneme], h, 'dec')
            phoneme = int((arrays['fc_w'] @ h + arrays['fc_b']).argmax())
            assert got[row, i] == phoneme
            if phoneme == 3:
                break
