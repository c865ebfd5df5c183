# SPDX-License-Identifier: Apache-2.0
"""serve_clients.py MODEL WORD [CLIENTS [TIMES]]: what slow and broken clients do to `paoding serve MODEL`. CLIENTS (10,000) of them,
of six kinds, are connected at the same time, TIMES (3) over, while one that does everything right asks for WORD again and again. One
JSON object a line: its latencies, wrong answers, how many connections the server had and has then, its memory; and how it
ended."""

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time

PAODING = os.environ.get('PAODING', 'build/paoding')
ASK = b'POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n'

# What each kind sends first; some go on.
KINDS = {
    'says nothing': b'',
    'half a header': b'POST /pre',
    'half a body': ASK % 100 + b'ba',
    'nonsense': b'\x00\xff\r\n\r\n' * 20,
    'drips': b'G',
    'never reads': (ASK % 4 + b'bada') * 20,
}


def asked(port, word):
    """Seconds, and the answer, of one request on a connection of its own."""
    start = time.monotonic()
    with socket.create_connection(('127.0.0.1', port), timeout=60) as connection:
        connection.sendall(b'POST /predict HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n' % len(word) + word)
        answer = b''
        while part := connection.recv(65536):
            answer += part
    return time.monotonic() - start, answer.partition(b'\r\n\r\n')


def measured(port, word, seconds, wanted):
    """Seconds of requests, and how many got another answer."""
    took, wrong = [], 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        one, (head, _, body) = asked(port, word)
        took.append(one)
        wrong += not head.startswith(b'HTTP/1.1 200') or body != wanted
    return took, wrong


def summary(took, wrong):
    took = sorted(took)
    at = lambda share: round(1000 * took[min(len(took) - 1, int(share * len(took)))], 2)
    return {'requests': len(took), 'p50_ms': at(0.5), 'p99_ms': at(0.99), 'most_ms': at(1), 'wrong': wrong}


def connections(port):
    with socket.create_connection(('127.0.0.1', port), timeout=60) as connection:
        connection.sendall(b'GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n')
        text = b''
        while part := connection.recv(65536):
            text += part
    return int(re.search(rb'paoding_connections (\d+)', text).group(1)) - 1  # besides this one


def memory(pid):
    return int(re.search(r'VmRSS:\s+(\d+)', open(f'/proc/{pid}/status').read()).group(1)) // 1024


def crowd(port, pid, count, word, wanted):
    """All of them at once, for ten seconds, of which the server gives them five."""
    others, refused, kinds = [], 0, list(KINDS.items())
    start = time.monotonic()
    for i in range(count):
        kind, first = kinds[i % len(kinds)]
        try:
            connection = socket.create_connection(('127.0.0.1', port), timeout=10)
            connection.setblocking(False)
            connection.send(first)
            others.append((kind, connection))
        except OSError:
            refused += 1
    found = {'clients': count, 'connected_in_s': round(time.monotonic() - start, 2), 'refused': refused,
             'connections': connections(port), 'server_mb': memory(pid)}
    took, wrong = [], 0
    for _ in range(10):  # a byte now and then, for as long as the server lets them
        for kind, connection in others:
            if kind in ('drips', 'half a body'):
                try:
                    connection.send(b'x')
                except OSError:
                    pass
        more, more_wrong = measured(port, word, 1, wanted)
        took += more
        wrong += more_wrong
    found |= summary(took, wrong)
    found['connections_after_10_s'] = connections(port)
    for _, connection in others:
        connection.close()
    return found


def main():
    model, word = sys.argv[1], sys.argv[2].encode()
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    server = subprocess.Popen([PAODING, 'serve', model, '--port', '0', '--connections', str(count + 64), '--seconds', '5'],
                              stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r':(\d+)/predict', server.stdout.readline()).group(1))
        wanted = asked(port, word)[1][2]
        print(json.dumps({'load_average': os.getloadavg()[0], 'clients': 0, **summary(*measured(port, word, 5, wanted)),
                          'server_mb': memory(server.pid)}), flush=True)
        for _ in range(int(sys.argv[4]) if len(sys.argv) > 4 else 3):
            print(json.dumps({'load_average': os.getloadavg()[0], **crowd(port, server.pid, count, word, wanted)}), flush=True)
        server.terminate()
        print(json.dumps({'exit_code': server.wait(timeout=60)}))
    finally:
        server.kill()
        server.wait()


if __name__ == '__main__':
    main()
