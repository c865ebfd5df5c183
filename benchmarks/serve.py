# SPDX-License-Identifier: Apache-2.0
"""serve.py MODEL WORDS [SECONDS]: requests a second and their latency of `paoding serve MODEL` for several numbers of
clients at a time, one word a request, beside `paoding predict MODEL` of all words in bulk. One JSON object a line."""

import json
import os
import re
import resource
import socket
import statistics
import subprocess
import sys
import threading
import time

PAODING = os.environ.get('PAODING', 'build/paoding')


def bulk(model, words, threads):
    """Words a second in bulk, without starting and compiling: of all words six times, less once."""

    def run(times):
        start = time.monotonic()
        subprocess.run([PAODING, 'predict', model, '--threads', str(threads)], input=('\n'.join(words) + '\n') * times, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.monotonic() - start

    once = min(run(1) for _ in range(2))
    return 5 * len(words) / (run(6) - once)


def answer_of(connection, buffer):
    while b'\r\n\r\n' not in buffer:
        buffer += connection.recv(65536)
    head, _, rest = buffer.partition(b'\r\n\r\n')
    length = int(re.search(rb'Content-Length: (\d+)', head).group(1))
    while len(rest) < length:
        rest += connection.recv(65536)
    return head.split(b' ', 2)[1] == b'200', rest[length:]


def client(port, words, until, latencies, failures):
    connection = socket.create_connection(('127.0.0.1', port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    rest, at = b'', 0
    while time.monotonic() < until:
        body = words[at % len(words)].encode()
        at += 1
        start = time.monotonic()
        connection.sendall(b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
        is_right, rest = answer_of(connection, rest)
        latencies.append(time.monotonic() - start)
        if not is_right:
            failures.append(1)
    connection.close()


def cpu_seconds(who):
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def load(port, words, clients, seconds):
    latencies, failures, threads = [], [], []
    until, before = time.monotonic() + seconds, cpu_seconds(resource.RUSAGE_SELF)
    for i in range(clients):
        part = words[i::clients] or words
        threads.append(threading.Thread(target=client, args=(port, part, until, latencies, failures)))
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took, ours = time.monotonic() - start, cpu_seconds(resource.RUSAGE_SELF) - before
    latencies.sort()
    at = lambda share: round(1000 * latencies[min(len(latencies) - 1, int(share * len(latencies)))], 2)
    return {'clients': clients, 'requests_per_second': round(len(latencies) / took, 1), 'p50_ms': at(0.5),
            'p99_ms': at(0.99), 'mean_ms': round(1000 * statistics.fmean(latencies), 2), 'failures': len(failures),
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
