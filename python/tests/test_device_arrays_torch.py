# SPDX-License-Identifier: Apache-2.0
"""Programs and PyTorch on one GPU, in streams of their own: what is fed, overwritten, read and dropped while it is under
way."""

import numpy as np
import pytest

import paoding as pd

from torch_gpu_or_skip import torch

SIZES = [64, 1 << 20]


def doubling(n, **options):
    with pd.Graph() as graph:
        graph.fetch('y', graph.input('x', pd.f32, n) * 2 + 1)
    return pd.Program(graph, device='cuda', **options)


def slowly(x, value):
    """Fills x late."""
    torch.cuda._sleep(2_000_000)
    x.fill_(value)


@pytest.mark.parametrize('n', SIZES)
@pytest.mark.parametrize('side', [False, True])
def test_a_feed_is_read_behind_what_fills_it_and_before_it_is_filled_again(n, side):
    step = doubling(n)
    x = torch.zeros(n, device='cuda')
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    with torch.cuda.stream(stream):
        made = []
        for turn in range(20):
            slowly(x, turn)
            made.append(step.run_on_device({'x': x})['y'])
            x.fill_(-5)
    for turn, each in enumerate(made):
        assert (each.numpy() == 2 * turn + 1).all(), turn


@pytest.mark.parametrize('n', SIZES)
@pytest.mark.parametrize('side', [False, True])
def test_results_are_read_behind_the_run_and_dropped_while_they_are_read(n, side):
    step = doubling(n)
    stream = torch.cuda.Stream() if side else torch.cuda.default_stream()
    out = torch.zeros(40, device='cuda')
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for turn in range(40):
            y = torch.from_dlpack(step.run_on_device({'x': np.full(n, turn, np.float32)})['y'])
            torch.cuda._sleep(1_000_000)
            out[turn] = y.max() + y.min()
            del y
    stream.synchronize()
    assert out.tolist() == [2 * (2 * turn + 1) for turn in range(40)]


def test_a_tensor_that_is_dropped_is_read_first():
    step, n = doubling(1 << 20), 1 << 20
    made = []
    for turn in range(20):
        made.append(step.run_on_device({'x': torch.full((n,), float(turn), device='cuda')})['y'])
        torch.full((n,), -1.0, device='cuda')  # in memory that was let go
    for turn, each in enumerate(made):
        assert (each.numpy() == 2 * turn + 1).all()


def test_in_pytorchs_own_stream():
    stream = torch.cuda.Stream()
    step = doubling(1000, stream=stream.cuda_stream)
    assert step.stream == stream.cuda_stream
    with torch.cuda.stream(stream):
        x = torch.arange(1000, dtype=torch.float32, device='cuda')
        for _ in range(5):
            x = torch.from_dlpack(step.run_on_device({'x': x})['y'])
        want = torch.arange(1000, dtype=torch.float32, device='cuda')
        for _ in range(5):
            want = 2 * want + 1
        assert torch.equal(x, want)


def test_a_program_trains_on_pytorchs_batches_as_on_numpys():
    def build(device):
        with pd.Graph() as graph:
            x, y = graph.input('x', pd.f32, (32, 20)), graph.input('y', pd.i64, 32)
            loss = pd.cross_entropy(pd.nn.Linear('out', 20, 5)(x), y)
            pd.minimize(loss, pd.Adam(0.05))
            graph.fetch('loss', loss)
        return pd.Program(graph, pd.Parameters(graph, device=device, seed=3))

    ours, theirs = build('cuda'), build('cpu')
    generator = torch.Generator(device='cuda').manual_seed(5)
    losses, wanted = [], []
    for _ in range(20):
        x = torch.randn(32, 20, device='cuda', generator=generator)
        y = torch.randint(5, (32,), device='cuda', generator=generator)
        losses.append(ours.run_on_device({'x': x, 'y': y})['loss'])
        wanted.append(theirs.run({'x': x.cpu(), 'y': y.cpu()})['loss'].item())
    np.testing.assert_allclose([each.item() for each in losses], wanted, rtol=1e-4)


def test_what_does_not_fit_is_refused_by_name():
    step = doubling(8)
    x = torch.zeros(8, device='cuda')
    for wrong, said in [
        (torch.zeros(16, device='cuda')[::2], "input 'x': its elements do not lie densely"),
        (torch.zeros(8, device='cuda', requires_grad=True), "input 'x': .*requires? grad"),
        (torch.zeros(8, dtype=torch.complex64, device='cuda'), "input 'x': elements of DLPack's code 5"),
    ]:
        with pytest.raises((pd.ArgumentError, pd.DtypeError), match=said):
            step.run({'x': wrong})
    freed = torch.zeros(8, device='cuda')
    freed.untyped_storage().resize_(0)
    with pytest.raises(pd.ArgumentError, match="input 'x': its memory was freed"):
        step.run({'x': freed})
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(pd.ArgumentError, match="input 'x': a CUDA graph is being captured"), torch.cuda.graph(graph):
        step.run({'x': x})
    if torch.cuda.device_count() > 1:
        with pytest.raises(pd.ArgumentError, match="input 'x' is on cuda:1, the program on cuda:0"):
            step.run({'x': x.to('cuda:1')})
    assert (step.run({'x': x})['y'].numpy() == 1).all()
    assert (step.run({'x': x.cpu().pin_memory()})['y'].numpy() == 1).all()


def test_nothing_is_copied_through_the_host():
    step = doubling(1 << 20)
    x = torch.ones(1 << 20, device='cuda')
    step.run_on_device({'x': x})
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        for _ in range(4):
            x = torch.from_dlpack(step.run_on_device({'x': x})['y'])
        torch.cuda.synchronize()
    names = [event.key for event in seen.key_averages()]
    assert any('DtoD' in name for name in names) and not any('HtoD' in name or 'DtoH' in name for name in names), names


def test_ten_thousand_runs_take_no_more_memory():
    step = doubling(1 << 16)
    x = torch.ones(1 << 16, device='cuda')
    for turn in range(10_100):
        torch.from_dlpack(step.run_on_device({'x': x})['y'])
        if turn == 100:
            torch.cuda.synchronize()
            before = torch.cuda.mem_get_info()[0]
    torch.cuda.synchronize()
    assert before - torch.cuda.mem_get_info()[0] < 32 << 20
