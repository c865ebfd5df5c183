# SPDX-License-Identifier: Apache-2.0
"""serve.py MODEL WORDS [SECONDS]: requests a second and their latency of `paoding serve MODEL` for several numbers of
clients at a time, one word a request, beside `paoding predict MODEL` of all words in bulk. All clients are in one thread,
whose own time is told too. One JSON object a line."""

import json
import os
import re
import resource
import selectors
import socket
import statistics
import subprocess
import sys
import time

PAODING = os.environ.get('PAODING', 'build/paoding')
LENGTH = re.compile(rb'Content-Length: (\d+)')


def bulk(model, words, threads):
    """Words a second in bulk, without starting and compiling: of all words eleven times, less once."""

    def run(times):
        start = time.monotonic()
        subprocess.run([PAODING, 'predict', model, '--threads', str(threads)], input=('\n'.join(words) + '\n') * times, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.monotonic() - start

    once = min(run(1) for _ in range(2))
    return 10 * len(words) / (run(11) - once)


class Client:
    """One connection that asks for the next word as soon as it has the answer."""

    def __init__(self, port, words):
        self.words, self.at, self.begun, self.got = words, 0, 0.0, b''
        self.socket = socket.create_connection(('127.0.0.1', port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self):
        body = self.words[self.at % len(self.words)].encode()
        self.at += 1
        self.begun, self.got = time.monotonic(), b''
        self.socket.sendall(b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body)

    def take(self):
        """None until the answer is whole; then whether it is a good one."""
        part = self.socket.recv(65536)
        if not part:
            sys.exit('the server hung up')
        self.got += part
        head, end, body = self.got.partition(b'\r\n\r\n')
        if not end or len(body) < int(LENGTH.search(head).group(1)):
            return None
        return head.split(b' ', 2)[1] == b'200'


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def load(port, words, clients, seconds):
    latencies, failures, selector = [], 0, selectors.DefaultSelector()
    crowd = [Client(port, words[i::clients] or words) for i in range(clients)]
    start, before = time.monotonic(), cpu_seconds()
    for one in crowd:
        selector.register(one.socket, selectors.EVENT_READ, one)
        one.ask()
    waiting, until = clients, start + seconds
    while waiting > 0:
        ready = selector.select(60)
        if not ready:
            sys.exit('the server did not answer within a minute')
        for key, _ in ready:
            good = key.data.take()
            if good is None:
                continue
            now = time.monotonic()
            latencies.append(now - key.data.begun)
            failures += not good
            if now < until:
                key.data.ask()
            else:
                waiting -= 1
    took, ours = time.monotonic() - start, cpu_seconds() - before
    for one in crowd:
        one.socket.close()
    latencies.sort()
    at = lambda share: round(1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))], 2)
    return {'clients': clients, 'requests_per_second': round(len(latencies) / took, 1), 'p50_ms': at(0.5),
            'p99_ms': at(0.99), 'mean_ms': round(1000 * statistics.fmean(latencies), 2), 'failures': failures,
            'client_cpu_seconds': round(ours, 2), 'seconds': round(took, 2)}


def main():
    model, words = sys.argv[1], [line.split()[0] for line in open(sys.argv[2]) if line.strip()]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 5
    words = words[:: max(1, len(words) // 2000)]
    print(json.dumps({'load_average': os.getloadavg()[0], 'cores': os.cpu_count(),
                      'bulk_words_per_second': {threads: round(bulk(model, words, threads), 1)
                                                for threads in (1, os.cpu_count())}}), flush=True)
    server = subprocess.Popen([PAODING, 'serve', model, '--port', '0'], stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r':(\d+)/predict', server.stdout.readline()).group(1))
        load(port, words, 4, 1)
        for clients in (1, 8, 32, 64, 128):
            print(json.dumps({'load_average': os.getloadavg()[0], **load(port, words, clients, seconds)}), flush=True)
    finally:
        server.terminate()
        server.wait()


if __name__ == '__main__':
    main()
