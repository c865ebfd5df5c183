# SPDX-License-Identifier: Apache-2.0
"""record.py FOLDER SET...: runs FOLDER/SET.txt on FOLDER/SET.feeds.safetensors, writes FOLDER/SET.results.safetensors."""
import sys

import numpy
import torch
from safetensors.numpy import load_file, save_file

import torch_graph

SAMPLES = 6  # as in tests/reference/peer_test.cpp


def summary(value):
    flat = value.to(torch.float64).reshape(-1)
    count = min(SAMPLES, flat.numel())
    picked = [flat[i * flat.numel() // count].item() for i in range(count)]
    return [float(flat.numel()), flat.sum().item(), flat.abs().sum().item()] + picked


def record(folder, name):
    feeds = load_file(f'{folder}/{name}.feeds.safetensors')['feeds'].astype(numpy.float64).tolist()
    results, missing, at = [], {}, 0
    for part in open(f'{folder}/{name}.txt').read().split('### ')[1:]:
        title, text = part.split('\n', 1)
        taken = []

        def take(count):
            taken.append(count)
            start = at + sum(taken[:-1])
            return feeds[start:start + count]

        try:
            made = torch_graph.run(text, take)
            results.append(1.0)
            for _, value in made:
                results += summary(value)
        except torch_graph.Missing as reason:
            results.append(0.0)
            missing.setdefault(str(reason), []).append(title)
        except Exception as error:  # refused by PyTorch or unknown to torch_graph.py: listed below
            results.append(0.0)
            missing.setdefault(f'{type(error).__name__}: {str(error)[:70]}', []).append(title)
        at += sum(taken)
    assert at == len(feeds), 'feeds are left over'
    save_file({'results': numpy.array(results)}, f'{folder}/{name}.results.safetensors')
    for reason, titles in missing.items():
        print(f'{name}: nothing recorded for {" ".join(titles[:6])} ({len(titles)} in all): {reason}')


if __name__ == '__main__':
    torch.set_num_threads(1)
    print('PyTorch', torch.__version__)
    for each in sys.argv[2:]:
        record(sys.argv[1], each)
