# SPDX-License-Identifier: Apache-2.0
"""Kernels in Triton, good and bad ones, as ops that a profile shows with their shapes: torch.ops.seeded."""
import torch
import triton
import triton.language as tl


@triton.jit
def _scaled(x, y, count, factor, per_program, BLOCK: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * per_program
    for at in range(0, per_program, BLOCK):
        where = begin + at + tl.arange(0, BLOCK)
        inside = where < count
        tl.store(y + where, tl.load(x + where, mask=inside) * factor, mask=inside)


@torch.library.custom_op("seeded::scaled", mutates_args=())
def scaled(x: torch.Tensor, factor: float, programs: int) -> torch.Tensor:
    """x times factor by so many programs; 0: one for each block."""
    y = torch.empty_like(x)
    block = 4096
    programs = programs or triton.cdiv(x.numel(), block)
    per_program = triton.cdiv(triton.cdiv(x.numel(), programs), block) * block
    _scaled[(programs,)](x, y, x.numel(), factor, per_program, BLOCK=block)
    return y


@triton.jit
def _strided(x, y, rows, columns, factor, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    where = row[None, :].to(tl.int64) * columns + column[:, None]
    inside = (row < rows)[None, :] & (column < columns)[:, None]
    tl.store(y + where, tl.load(x + where, mask=inside) * factor, mask=inside)


@torch.library.custom_op("seeded::strided", mutates_args=())
def strided(x: torch.Tensor, factor: float, badly: bool) -> torch.Tensor:
    """x times factor, a tile at a time: 256 rows by one column, badly, or one row by 1024 columns."""
    y = torch.empty_like(x)
    rows, columns = (256, 1) if badly else (1, 1024)
    grid = (triton.cdiv(x.shape[0], rows), triton.cdiv(x.shape[1], columns))
    _strided[grid](x, y, *x.shape, factor, ROWS=rows, COLUMNS=columns)
    return y


@triton.jit
def _small_rows_norm(x, y, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    where = row[:, None].to(tl.int64) * WIDTH + tl.arange(0, WIDTH)[None, :]
    values = tl.load(x + where, mask=(row < rows)[:, None], other=0.0)
    values -= tl.sum(values, 1)[:, None] / WIDTH
    variance = tl.sum(values * values, 1) / WIDTH
    tl.store(y + where, values * tl.rsqrt(variance + 1e-5)[:, None], mask=(row < rows)[:, None])


@torch.library.custom_op("seeded::small_rows_norm", mutates_args=())
def small_rows_norm(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    _small_rows_norm[(triton.cdiv(x.shape[0], 128),)](x, y, x.shape[0], WIDTH=x.shape[1], ROWS=128)
    return y


@triton.jit
def _product(a, b, c, n, k, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for at in range(0, k, TILE):
        inner = at + tl.arange(0, TILE)
        total += tl.dot(tl.load(a + row[:, None] * k + inner[None, :]), tl.load(b + inner[:, None] * n + column[None, :]))
    tl.store(c + row[:, None] * n + column[None, :], total.to(c.dtype.element_ty))


@torch.library.custom_op("seeded::product", mutates_args=())
def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices whose sizes are multiples of 16, by tiles of 16 x 16."""
    c = a.new_empty(a.shape[0], b.shape[1])
    _product[(a.shape[0] // 16, b.shape[1] // 16)](a, b, c, b.shape[1], a.shape[1], TILE=16, num_warps=1)
    return c
