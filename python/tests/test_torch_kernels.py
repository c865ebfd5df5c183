# SPDX-License-Identifier: Apache-2.0
"""How paoding.torch keeps kernels for GPUs: by stream, for all threads, and for graphs that are captured. PyTorch's part is
played by numbers, so no GPU is needed."""

import threading

import pytest

import paoding as pd

from torch_or_skip import torch  # noqa: E402

from paoding.torch import _kernels, _memory
from paoding.torch._recurrence import saved_values

GPU = torch.device('cuda', 0)


class Gpu:
    """What PyTorch says of a GPU."""

    stream, is_capturing, device = 0, False, 0


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(torch._C, '_cuda_getCurrentRawStream', lambda index: gpu.stream, raising=False)
    monkeypatch.setattr(torch._C, '_cuda_isCurrentStreamCapturing', lambda: gpu.is_capturing, raising=False)
    monkeypatch.setattr(torch._C, '_cuda_getDevice', lambda: gpu.device, raising=False)
    return gpu


def refuse():
    raise AssertionError('it was there')


def test_a_stream_has_its_own_and_threads_share_it(gpu):
    kept = _kernels.Kernels(8)
    first = kept.at('layer', GPU, object)
    assert kept.at('layer', GPU, refuse) is first
    found = []
    thread = threading.Thread(target=lambda: found.append(kept.at('layer', GPU, refuse)))
    thread.start()
    thread.join()
    assert found == [first]
    gpu.stream = 7
    second = kept.at('layer', GPU, object)
    assert second is not first
    assert kept.at('layer', torch.device('cuda', 1), object) not in (first, second)
    gpu.stream = 0
    assert kept.at('layer', GPU, refuse) is first


def test_threads_have_their_own_on_the_cpu():
    kept, cpu = _kernels.Kernels(8), torch.device('cpu')
    first = kept.at('layer', cpu, object)
    assert kept.at('layer', cpu, refuse) is first
    found = []
    thread = threading.Thread(target=lambda: found.append(kept.at('layer', cpu, object)))
    thread.start()
    thread.join()
    assert found[0] is not first


def test_calls_of_a_thread_work_in_the_same_memory_on_the_cpu():
    cpu, megabyte = torch.device('cpu'), 1 << 20
    first = _memory.workspace(9 * megabyte, cpu)
    assert first.numel() >= 9 * megabyte
    assert _memory.workspace(megabyte, cpu).data_ptr() == first.data_ptr()
    found = []
    thread = threading.Thread(target=lambda: found.append(_memory.workspace(megabyte, cpu)))
    thread.start()
    thread.join()
    assert found[0].data_ptr() != first.data_ptr()
    large = _memory.workspace(65 * megabyte, cpu)  # a call's own
    assert large.numel() == 65 * megabyte and _memory.workspace(megabyte, cpu).data_ptr() == first.data_ptr()


def test_what_was_not_used_for_longest_is_dropped_and_what_was_captured_stays(gpu):
    kept = _kernels.Kernels(2)
    first, second = (kept.at(key, GPU, object) for key in ('a', 'b'))
    gpu.is_capturing = True
    assert kept.at('b', GPU, refuse) is second
    gpu.is_capturing = False
    assert kept.at('a', GPU, refuse) is first
    kept.at('c', GPU, object)  # in the place of b
    assert kept.at('a', GPU, refuse) is first
    gpu.is_capturing, gpu.stream = True, 5
    assert kept.at('b', GPU, refuse) is second  # by any stream's capture
    gpu.is_capturing, gpu.stream = False, 0
    assert kept.at('b', GPU, object) is not second


def test_a_capture_makes_nothing(gpu):
    kept = _kernels.Kernels(8)
    gpu.is_capturing = True
    with pytest.raises(pd.ArgumentError, match='call it once in front of the capture'):
        kept.at('layer', GPU, refuse)
    with pytest.raises(pd.ArgumentError, match='lengths in the memory of the host'):
        _memory.lengths_at(torch.tensor([3, 2]), GPU)


def test_what_a_backward_pass_needs_is_known_without_kernels():
    for cell in ('lstm', 'gru', 'rnn_tanh'):
        for dtype in (torch.float32, torch.float16, torch.float64):
            x = torch.zeros(5, 3, 4, dtype=dtype)
            plan = pd._paoding.RecurrentPlan(
                cell, _memory.FLOATS[dtype], 'cpu', 5, 3, 4, 7, False, False, True, False, True, True, False
            )
            saved = saved_values(cell, x, 7)
            assert sum((each.nbytes + 255) // 256 * 256 for each in saved) == plan.saved


def test_tf32_is_torchs(monkeypatch):
    allowed = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    try:
        for recurrence, products in ((True, False), (False, True)):
            torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = recurrence, products
            assert _memory.may_round_recurrence(GPU) == recurrence
            assert _memory.may_round_products(GPU) == products
        assert not _memory.may_round_products(torch.device('cpu'))
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = allowed


def test_a_compiled_layer_of_any_extents_needs_no_kernels_to_be_compiled():
    import paoding.torch as pt

    layer, theirs = pt.LSTM(5, 7), torch.nn.LSTM(5, 7)
    theirs.load_state_dict(layer.state_dict())
    compiled = torch.compile(lambda x: layer(x)[0] * 2, backend='aot_eager', fullgraph=True, dynamic=True)
    for steps, batch in ((6, 3), (4, 2)):
        x, y = (torch.ones(steps, batch, 5, requires_grad=True) for _ in range(2))
        got, wanted = compiled(x), theirs(y)[0] * 2
        torch.testing.assert_close(got, wanted)
        got.sum().backward(), wanted.sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
