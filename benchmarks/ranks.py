#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training on several GPUs of one machine: weak scaling, losses beside one GPU with the whole batch, all-reduce alone, and
how fast the others end when a rank is killed.

Usage: python3 benchmarks/ranks.py BUNDLE OUT [--gpus 2] [--parts losses,seq2seq,resnet50,all_reduce,kill,peers]
  BUNDLE  folder of tools/bundle.sh, with `paoding` in it (sh BUNDLE/unpack.sh first, where that is there)
  OUT     OUT/ranks.json is written after every part, OUT/ranks.log has all output
  peers   PyTorch by --peer FILE (a data_parallel.py that keeps OUT/data_parallel.json), in the same call

NVLink's multicast stays off (NCCL_NVLS_ENABLE=0). SECONDS_MOST (280): no part is begun after so many seconds.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import time

START = time.monotonic()
MOST = float(os.environ.get('SECONDS_MOST', '280'))


def left():
    return MOST - (time.monotonic() - START)


class Session:
    def __init__(self, arguments):
        self.program = os.path.join(arguments.bundle, 'paoding')
        self.gpus, self.out, self.device = arguments.gpus, arguments.out, arguments.device
        self.environment = dict(os.environ, NCCL_NVLS_ENABLE='0', NCCL_DEBUG=os.environ.get('NCCL_DEBUG', 'WARN'))
        os.makedirs(self.out, exist_ok=True)
        self.log = open(os.path.join(self.out, 'ranks.log'), 'w')
        self.rows = {}

    def keep(self, name, row):
        self.rows[name] = row
        print(name, json.dumps(row), flush=True)
        with open(os.path.join(self.out, 'ranks.json'), 'w') as file:
            json.dump(self.rows, file, indent=1)

    def command(self, ranks, *words):
        flag = '--ranks' if self.device == 'cpu' else '--gpus'
        more = [flag, str(ranks)] if ranks > 1 else []
        return [self.program, 'bench', 'ranks', '--device', self.device, *more, *map(str, words)]

    def run(self, ranks, *words):
        """The JSON line that it prints, or an error in its place."""
        command = self.command(ranks, *words)
        self.log.write('$ ' + ' '.join(command) + '\n')
        try:
            ran = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=max(20, left()))
        except subprocess.TimeoutExpired as late:
            self.log.write(f'too late: {late.stdout} {late.stderr}\n')
            return {'error': 'it took too long'}
        self.log.write(ran.stdout + ran.stderr)
        self.log.flush()
        for line in reversed(ran.stdout.splitlines()):
            if line.startswith('{'):
                return json.loads(line)
        return {'error': (ran.stderr or ran.stdout)[-1500:], 'code': ran.returncode}

    def scaling(self, name, *words):
        alone = self.run(1, '--model', name, *words)
        together = self.run(self.gpus, '--model', name, *words)
        row = {'alone': alone, 'together': together}
        if 'step_us' in alone and 'step_us' in together:
            row['weak_scaling'] = alone['step_us'] / together['step_us']
        self.keep(name + '/' + '_'.join(map(str, words)).replace('--', ''), row)

    def losses(self, dtype, batch):
        alone = self.run(1, '--model', 'seq2seq', '--dtype', dtype, '--losses', 20, '--steps', 1, '--batch', batch * self.gpus)
        together = self.run(self.gpus, '--model', 'seq2seq', '--dtype', dtype, '--losses', 20, '--steps', 1, '--batch', batch)
        again = self.run(self.gpus, '--model', 'seq2seq', '--dtype', dtype, '--losses', 20, '--steps', 1, '--batch', batch)
        row = {'alone': alone.get('losses', alone), 'together': together.get('losses', together)}
        if 'losses' in alone and 'losses' in together:
            row['worst_relative_difference'] = max(
                abs(a - b) / abs(a) for a, b in zip(alone['losses'], together['losses']))
            row['same_bits_again'] = together['losses'] == again.get('losses')
        self.keep('losses/' + dtype, row)

    def kill(self):
        """Rank 1 is killed while all train; how long it takes until nothing is left of them."""
        command = self.command(self.gpus, '--model', 'seq2seq', '--steps', 60000)
        process = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        time.sleep(25 if self.device == 'cuda' else 5)
        children = open(f'/proc/{process.pid}/task/{process.pid}/children').read().split()
        if len(children) < 2:
            process.kill()
            return self.keep('kill', {'error': f'{len(children)} ranks are there: {process.communicate()[0][-1000:]}'})
        begin = time.monotonic()
        os.kill(int(children[1]), signal.SIGKILL)
        text = process.communicate(timeout=60)[0]
        seconds = time.monotonic() - begin
        self.keep('kill', {'seconds': seconds, 'code': process.returncode, 'text': text[-1500:]})

    def peers(self, path):
        if not path:
            return
        environment = dict(self.environment, OUT=self.out)
        ran = subprocess.run([sys.executable, path, 'seq2seq', 'resnet', 'nccl'], env=environment, capture_output=True,
                             text=True, timeout=max(60, left()), cwd=os.path.dirname(os.path.abspath(path)))
        self.log.write(ran.stdout + ran.stderr)
        found = os.path.join(self.out, 'data_parallel.json')
        self.keep('peers', json.load(open(found)) if os.path.exists(found) else {'error': ran.stderr[-1500:]})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('bundle')
    parser.add_argument('out')
    parser.add_argument('--gpus', type=int, default=2)
    parser.add_argument('--device', default='cuda', choices=['cuda', 'cpu'])
    parser.add_argument('--parts', default='losses,seq2seq,resnet50,all_reduce,kill,peers')
    parser.add_argument('--batch', type=int, default=128)
    parser.add_argument('--peer', default='')
    arguments = parser.parse_args()
    session = Session(arguments)
    for part in arguments.parts.split(','):
        if left() < 15:
            print(f'{part}: no time is left', flush=True)
            continue
        if part == 'losses':
            for dtype in ('f32', 'bf16'):
                session.losses(dtype, arguments.batch)
        elif part == 'seq2seq':
            session.scaling('seq2seq', '--dtype', 'bf16', '--batch', arguments.batch)
            session.scaling('seq2seq', '--dtype', 'f32', '--tf32', '--batch', arguments.batch)
        elif part == 'resnet50':
            session.scaling('resnet50', '--dtype', 'bf16')
        elif part == 'all_reduce':
            for size in (4096, 1 << 20, 16 << 20, 108 << 20):
                session.keep(f'all_reduce/{size}', session.run(session.gpus, '--model', 'all_reduce', '--bytes', size))
        elif part == 'kill':
            session.kill()
        elif part == 'peers':
            session.peers(arguments.peer)
        else:
            parser.error(f'there is no part {part}')


if __name__ == '__main__':
    main()
