# SPDX-License-Identifier: Apache-2.0
"""The text form of graphs (docs/reference/graph_text.md), read: statements with their attributes and bodies."""
import re

import torch

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|%\d+(?:\.\d+)?|[A-Za-z_][A-Za-z0-9_.]*|-?(?:inf|nan|\d[\d.e+-]*)|[=(){}\[\],:;@~]|#[^\n]*|\n')
DTYPES = dict(f64=torch.float64, f32=torch.float32, f16=torch.float16, bf16=torch.bfloat16, i64=torch.int64,
              i32=torch.int32, u8=torch.uint8, bool=torch.bool)


class Statement:
    def __init__(self, left, op, inputs=(), attrs=None, bodies=(), dtype=None, shape=None, seeds=None, wanted=()):
        self.left, self.op, self.inputs, self.attrs = left, op, list(inputs), attrs or {}
        self.bodies, self.dtype, self.shape, self.seeds, self.wanted = list(bodies), dtype, shape, seeds, list(wanted)


class Parser:
    def __init__(self, text):
        self.tokens = [t for t in TOKEN.findall(text.split('\n', 1)[1]) if not t.startswith('#')]
        self.at = 0

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def take(self, wanted=None):
        token = self.tokens[self.at]
        assert wanted is None or token == wanted, (wanted, self.tokens[max(0, self.at - 8):self.at + 3])
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def name(self):
        token = self.take()
        return token[1:-1] if token[0] == '"' else token

    def names(self, end):
        result = []
        while not self.accept(end):
            if self.peek() == ';':
                break
            result.append(self.name())
            self.accept(',')
        return result

    def type(self):
        dtype, shape = self.take(), []
        self.take('[')
        while not self.accept(']'):
            shape.append(int(self.take()))
            self.accept(',')
        return DTYPES[dtype], shape

    def attr(self):
        token = self.take()
        if token == '[':
            values = []
            while not self.accept(']'):
                values.append(number(self.take()))
                self.accept(',')
            return values
        if token[0] == '"':
            return token[1:-1]
        if token in ('true', 'false'):
            return token == 'true'
        return DTYPES[token] if token in DTYPES else number(token)

    def block(self):
        statements, fetches = [], []
        while self.peek() not in (None, ']'):
            if self.accept('\n'):
                continue
            if self.peek() == 'fetch':
                self.take()
                name = self.name()
                fetches.append((name, self.name() if self.accept('=') else name))
            else:
                statements.append(self.statement())
            while self.peek() not in (None, '\n', ']'):
                self.skip_note()
        return statements, fetches

    def skip_note(self):
        self.take()

    def statement(self):
        left = self.names('=')
        op = self.take()
        if op in ('input', 'parameter'):
            dtype, shape = self.type()
            return Statement(left, op, dtype=dtype, shape=shape)
        op = re.sub(r'\.v\d+$', '', op)
        self.take('(')
        inputs = self.names(')')
        if op == 'gradients':
            if self.accept(';'):
                seeds = self.names(')')
            else:
                inputs, seeds = inputs[:1], inputs[1:]
            assert self.take() == 'by'
            self.take('(')
            return Statement(left, op, inputs, seeds=seeds, wanted=self.names(')'))
        attrs, bodies, types = {}, [], []
        if self.accept('{'):
            while not self.accept('}'):
                key = self.name()
                self.take('=')
                attrs[key] = self.attr()
                self.accept(',')
        while self.accept('['):
            bodies.append(self.block())
            self.take(']')
        if self.accept(':'):
            types.append(self.type())
            while self.accept(','):
                types.append(self.type())
        statement = Statement(left, op, inputs, attrs, bodies)
        if types:
            statement.dtype, statement.shape = types[0]
        return statement


def number(token):
    return int(token) if re.fullmatch(r'-?\d+', token) else float(token)
