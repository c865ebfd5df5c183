# SPDX-License-Identifier: Apache-2.0
"""Functions of PyTorch tensors that a seed makes: views of views, writes through them, strides of all kinds, results that
are views, inputs, or the same twice."""

import random

import torch

_DTYPES = (torch.float64, torch.float64, torch.float64, torch.int64, torch.bool)


def inputs_of(seed):
    """Tensors as a program has them: whole, transposed, parts that begin anywhere, stretched."""
    draw, generator, made = random.Random(seed), torch.Generator().manual_seed(seed), []
    for _ in range(draw.randint(1, 3)):
        shape = [draw.choice((1, 2, 3, 4, 6)) for _ in range(draw.randint(1, 3))]
        dtype = draw.choice(_DTYPES)
        base = torch.randn(*(each + 2 for each in shape), generator=generator, dtype=torch.float64)
        base = base > 0 if dtype == torch.bool else (base * (3 if dtype == torch.int64 else 1)).to(dtype)
        kind = draw.randrange(4)
        if kind == 0:
            tensor = base[tuple(slice(0, each) for each in shape)].contiguous()
        elif kind == 1:
            tensor = base[tuple(slice(1, each + 1) for each in shape)]
        elif kind == 2:
            tensor = base.contiguous().permute(draw.sample(range(len(shape)), len(shape)))
        else:
            tensor = base[:1].expand(draw.choice((1, 3)), *base.shape[1:])
        made.append(tensor)
    return made


class _Program:
    """Lines of Python that are run as they are written, so that the next one knows what is there."""

    def __init__(self, draw, tensors, writable):
        self.draw, self.lines, self.names = draw, [], {'torch': torch}
        self.live, self.writable = [], set(writable)
        for i, tensor in enumerate(tensors):
            self.names[f'x{i}'] = tensor
            self.live.append(f'x{i}')

    def tensor(self, name):
        return self.names[name]

    def add(self, expression, writable):
        name = f'x{len(self.live)}'
        self.line(f'{name} = {expression}')
        self.live.append(name)
        if writable:
            self.writable.add(name)

    def line(self, text):
        exec(text, self.names)
        self.lines.append(text)

    def step(self):
        x = self.draw.choice(self.live)
        kind = self.draw.random()
        if kind < 0.4:
            self.add(self.view(x), x in self.writable)
        elif kind < 0.6 and x in self.writable and self.tensor(x).numel() > 0:
            self.line(self.write(x))
        else:
            self.add(self.compute(x), True)

    def view(self, x):
        draw, tensor = self.draw, self.tensor(x)
        rank, kind = tensor.dim(), draw.randrange(9)
        if rank == 0 or kind == 0:
            return f'{x}.unsqueeze({draw.randint(0, rank)})'
        axis = draw.randrange(rank)
        extent = tensor.shape[axis]
        if kind == 1:
            return f'{x}.permute({draw.sample(range(rank), rank)})'
        if kind == 2 and extent > 0:
            return f'{x}.select({axis}, {draw.randrange(extent)})'
        if kind == 3 and extent > 0:
            start = draw.randrange(extent)
            return f'{x}.narrow({axis}, {start}, {draw.randint(1, extent - start)})'
        if kind == 4:
            return f'{x}[{":, " * axis}::2]'
        if kind == 5:
            return f'{x}.squeeze()'
        if kind == 6 and tensor.is_contiguous():
            return f'{x}.view(-1)'
        if kind == 7:
            return f'{x}.split({max(1, extent // 2)}, {axis})[0]'
        if kind == 8 and rank >= 2:
            return f'{x}.diagonal(0, 0, 1)'
        return f'{x}.transpose(0, -1)'

    def write(self, x):
        tensor, kind = self.tensor(x), self.draw.randrange(6)
        other = f'{self.fitting(x)}.to({tensor.dtype}).clone()'
        if kind == 0:
            return f'{x}.zero_()'
        if kind == 1:
            return f'{x}.copy_({other})'
        if tensor.dtype == torch.bool:
            return f'{x}.logical_not_()'
        if kind == 2:
            return f'{x}.mul_(2)'
        if kind == 3:
            return f'{x}.add_({other})'
        if kind == 4 and tensor.is_floating_point():
            return f'{x}.tanh_()'
        return f'{x}.clamp_(-1, 1)'

    def fitting(self, x):
        """Another tensor, that broadcasts to x."""
        shape = self.tensor(x).shape
        return self.draw.choice([each for each in self.live if _broadcasts(self.tensor(each).shape, shape)])

    def compute(self, x):
        draw, tensor, other = self.draw, self.tensor(x), self.fitting(x)
        kind, rank = draw.randrange(14), tensor.dim()
        real = x if tensor.is_floating_point() else f'{x}.to(torch.float64)'
        axis = draw.randrange(max(rank, 1))
        if kind == 0:
            return f'{x} + {other}' if tensor.dtype != torch.bool else f'{x} | ({other} > 0)'
        if kind == 1:
            return f'{real} * {other}'
        if kind == 2:
            return f'torch.where({x} > 0, {real}, {other}.to(torch.float64))'
        if kind == 9:
            return f'{x}.expand(2, *{x}.shape).clone()'
        if kind == 11:
            return f'{x}.reshape(-1)[:{max(1, tensor.numel() // 2)}].clone()'
        if rank == 0 or tensor.numel() == 0:
            return f'{real}.sigmoid()'
        of_axis = {
            3: f'{real}.sum({axis}, keepdim={draw.random() < 0.5})',
            4: f'{real}.softmax({axis})',
            5: f'torch.cat([{x}, {x}.flip({axis})], {axis})',
            7: f'{x}.index_select({axis}, torch.tensor([0, {tensor.shape[axis] - 1}]))',
            8: f'{real}.amax({axis})',
            10: f'{real}.cumsum({axis})',
        }
        if kind == 6 and rank >= 2:
            return f'{real} @ {real}.transpose(-1, -2)'
        if kind == 12 and tensor.dtype != torch.bool:
            return f'torch.nn.functional.pad({x}, (1, 0), value=2)'
        return of_axis.get(kind, f'{real}.sigmoid()')


def _broadcasts(shape, into):
    if len(shape) > len(into):
        return False
    return all(a == b or a == 1 for a, b in zip(reversed(shape), reversed(into)))


def function_of(seed, may_write):
    """The source of `call`, a function of inputs_of(seed); it writes to those that are not stretched, if it may."""
    draw, tensors = random.Random(seed), inputs_of(seed)
    may = [f'x{i}' for i, each in enumerate(tensors) if may_write and 0 not in each.stride()]
    program = _Program(draw, tensors, may)
    for _ in range(draw.randint(3, 12)):
        program.step()
    results = [draw.choice(program.live) for _ in range(draw.randint(1, 3))] + program.live[-1:]
    given = ', '.join(f'x{i}' for i in range(len(tensors)))
    body = ''.join(f'    {line}\n' for line in program.lines)
    return f'def call({given}):\n{body}    return [{", ".join(results)}]\n'


def compiled_source(source):
    names = {'torch': torch}
    exec(source, names)
    return names['call']
