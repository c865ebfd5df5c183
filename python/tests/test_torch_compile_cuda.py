# SPDX-License-Identifier: Apache-2.0
"""torch.compile(model, backend='paoding') on a GPU: the tests of the CPU once more, with the GPU as PyTorch's default device,
samples of ops there, streams, CUDA graphs and what fails later than its call."""

import copy

import pytest

from torch_gpu_or_skip import torch
from torch import nn

import test_torch_compile as on_cpu
import test_torch_compile_ops as ops
from paoding.errors import ArgumentError
from test_torch_compile import anew  # noqa: F401, a fixture of every test here


@pytest.fixture(autouse=True)
def on_gpu(anew):  # noqa: F811
    kept = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.set_default_device('cuda')
    yield
    torch.set_default_device(None)
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = kept


# Those of the CPU's memory, of its autocast, and of faults that its calls raise at once.
CPU_ONLY = {
    'test_autocast_computes_as_eager_does',
    'test_a_position_that_is_outside_is_an_error_and_the_next_call_works',
    'test_a_workspace_of_many_megabytes_lives_as_long_as_the_call',
    'test_the_how_to_is_so',
    'test_numbers_of_the_cpu_are_made_where_ops_read_them',
}
globals().update({name: each for name, each in vars(on_cpu).items() if name.startswith('test_') and name not in CPU_ONLY})


def test_samples_of_pytorchs_ops_are_eagers(monkeypatch):
    monkeypatch.setattr(ops, 'DEVICE', 'cuda')
    ops.test_samples_of_pytorchs_ops_are_eagers()


def test_autocast_to_bf16_computes_as_eager_does():
    model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 8))
    compiled = torch.compile(copy.deepcopy(model), backend='paoding')
    x = torch.randn(4, 16)
    with torch.autocast('cuda', torch.bfloat16):
        on_cpu.same(compiled(x), model(x), 0.03)


def test_a_recurrent_layer_computes_in_16_bits_as_near_as_eager_does():
    model = on_cpu.Classifier().half()
    wide = copy.deepcopy(model).double()
    ids = torch.randint(0, 50, (4, 9))
    made, eagers, exact = torch.compile(model, backend='paoding')(ids), model(ids), wide(ids)
    assert (made - exact).norm() <= 2 * (eagers - exact).norm() + 1e-4 * exact.norm()


def test_runs_in_a_stream_of_the_callers_and_in_a_graph_that_is_captured():
    model = on_cpu.Classifier().eval()
    compiled = torch.compile(copy.deepcopy(model), backend='paoding')
    ids = torch.randint(0, 50, (4, 9))
    with torch.no_grad():
        wanted = model(ids)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                made = compiled(ids)
        stream.synchronize()
        on_cpu.same(made, wanted, 3e-5)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            made = compiled(ids)
        ids.copy_(torch.randint(0, 50, (4, 9)))
        graph.replay()
        torch.cuda.synchronize()
        on_cpu.same(made, model(ids), 3e-5)


def test_a_training_step_without_graphs_of_addresses_is_eagers():
    on_cpu.compare(on_cpu.Classifier(), torch.randint(0, 50, (3, 7)), steps=6, mode='max-autotune-no-cudagraphs')


def test_a_position_that_is_outside_is_an_error_of_a_later_call():
    class Embedded(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.out = nn.Embedding(10, 8), nn.Linear(8, 8)

        def forward(self, ids):
            return torch.tanh(self.out(torch.relu(self.table(ids))))

    compiled = torch.compile(Embedded(), backend='paoding')
    with torch.no_grad():
        compiled(torch.tensor([1, 2]))
        compiled(torch.tensor([1, 12]))
        with pytest.raises(ArgumentError, match='12'):
            for _ in range(3):
                torch.cuda.synchronize()
                compiled(torch.tensor([1, 2]))
        compiled(torch.tensor([1, 2]))
