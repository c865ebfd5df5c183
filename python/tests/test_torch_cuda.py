# SPDX-License-Identifier: Apache-2.0
"""paoding.torch on a GPU, beside torch.nn: streams, graphs that are captured, compiled models, what is refused."""

import threading

import pytest

import paoding as pd

from torch_gpu_or_skip import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import paoding.torch as pt

KINDS = ['LSTM', 'GRU', 'RNN']


@pytest.fixture(autouse=True)
def exact():
    """Without TF32, so that what is compared is near."""
    allowed = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = allowed


def twins(kind, inputs=24, hidden=40, **options):
    torch.manual_seed(3)
    theirs = getattr(torch.nn, kind)(inputs, hidden, device='cuda', **options)
    ours = getattr(pt, kind)(inputs, hidden, device='cuda', **options)
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def close(ours, theirs, limit=1e-4):
    torch.testing.assert_close(ours, theirs, rtol=limit, atol=limit)


def gradients(module, x, **more):
    x = x.clone().requires_grad_(True)
    output, last = module(x, **more)
    last = last if isinstance(last, tuple) else (last,)
    loss = output.square().sum() + sum(each.sum() for each in last)
    loss.backward()
    return [output.detach(), *(each.detach() for each in last), x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('options', [{}, {'num_layers': 2, 'bidirectional': True}, {'bias': False, 'batch_first': True}])
def test_a_layer_is_torchs(kind, options):
    ours, theirs = twins(kind, **options)
    x = torch.randn(9, 5, 24, device='cuda')
    for mine, wanted in zip(gradients(ours, x), gradients(theirs, x), strict=True):
        close(mine, wanted)
    with torch.no_grad():
        close(ours(x)[0], theirs(x)[0])
        close(ours(x[0])[0], theirs(x[0])[0])


def test_projections_are_torchs():
    ours, theirs = twins('LSTM', proj_size=16)
    x = torch.randn(5, 3, 24, device='cuda')
    for mine, wanted in zip(gradients(ours, x), gradients(theirs, x), strict=True):
        close(mine, wanted)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('where', ['cpu', 'cuda'])
def test_lengths_and_packed_sequences_are_the_same(kind, where):
    ours, theirs = twins(kind, bidirectional=True)
    x, lengths = torch.randn(6, 3, 24, device='cuda'), torch.tensor([4, 6, 1])
    packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
    wanted, last = theirs(packed)
    mine, my_last = ours(packed)
    close(mine.data, wanted.data)
    close(my_last, last)
    plain, plain_last = ours(x, lengths=lengths.to(where))
    close(plain, pad_packed_sequence(wanted)[0])
    close(plain_last, last)


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_16_bits_and_autocast_are_near(dtype):
    ours, theirs = twins('LSTM')
    x = torch.randn(6, 3, 24, device='cuda')
    wanted = theirs(x)[0]
    with torch.autocast('cuda', dtype):
        output = ours(x)[0]
    assert output.dtype == dtype
    output.float().sum().backward()
    assert ours.weight_ih_l0.grad.dtype == torch.float32
    close(output.float(), wanted, 0.05)
    close(ours.to(dtype)(x.to(dtype))[0].float(), wanted, 0.05)


@pytest.mark.parametrize('kind', KINDS)
def test_weights_that_nobody_tells_of_are_read(kind):
    ours, theirs = twins(kind)
    x = torch.randn(6, 3, 24, device='cuda')
    for module in (ours, theirs):
        module(x)[0].square().sum().backward()
    steps = [torch.optim.Adam(module.parameters(), lr=0.05, fused=True) for module in (ours, theirs)]
    for write in ('data', 'fused', 'data'):
        with torch.inference_mode():
            before = ours(x)[0].clone()
        for module, step in zip((ours, theirs), steps):
            step.step() if write == 'fused' else [each.data.mul_(0.5) for each in module.parameters()]
        with torch.no_grad():
            close(ours(x)[0], theirs(x)[0])
            assert not torch.allclose(before, ours(x)[0], rtol=1e-2, atol=1e-2)


def test_calls_wait_for_nothing():
    ours, _ = twins('GRU', num_layers=2)
    x = torch.randn(6, 3, 24, device='cuda', requires_grad=True)
    lengths = torch.tensor([6, 2, 3])
    on_gpu = lengths.cuda()
    ours(x, lengths=on_gpu)[0].sum().backward()
    torch.cuda.set_sync_debug_mode('error')
    try:
        ours(x, lengths=on_gpu)[0].sum().backward()
        ours(x, lengths=lengths)
    finally:
        torch.cuda.set_sync_debug_mode('default')


def test_memory_is_the_caching_allocators():
    ours, _ = twins('LSTM')
    x = torch.randn(64, 32, 24, device='cuda', requires_grad=True)
    for _ in range(3):
        ours(x)[0].sum().backward()
    torch.cuda.synchronize()
    free, allocated = torch.cuda.mem_get_info()[0], torch.cuda.memory_allocated()
    for _ in range(50):
        ours(x)[0].sum().backward()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == allocated
    assert torch.cuda.mem_get_info()[0] >= free - (4 << 20)


def test_streams_and_threads_have_results_of_their_own():
    ours, theirs = twins('LSTM')
    xs = [torch.randn(30, 8, 24, device='cuda') for _ in range(6)]
    wanted = [gradients(theirs, x)[:4] for x in xs]
    torch.cuda.synchronize()
    found = [None] * len(xs)

    def work(i):
        with torch.cuda.stream(torch.cuda.Stream() if i % 2 else torch.cuda.default_stream()):
            for _ in range(10):
                x = xs[i].clone().requires_grad_(True)
                output, last = ours(x)
                (grad,) = torch.autograd.grad(output.square().sum() + last[0].sum() + last[1].sum(), x)
                found[i] = [output.detach(), *(each.detach() for each in last), grad]
            torch.cuda.current_stream().synchronize()

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine, expected in zip(found, wanted, strict=True):
        for a, b in zip(mine, expected, strict=True):
            close(a, b)


def captured(step, stream=None):
    """`step` as a graph, warmed up as torch.cuda.graph wants it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    return graph, result


@pytest.mark.parametrize('kind', KINDS)
def test_a_forward_pass_is_captured(kind):
    ours, theirs = twins(kind, num_layers=2, bidirectional=True)
    x, lengths = torch.randn(9, 5, 24, device='cuda'), torch.tensor([9, 1, 4, 2, 8], device='cuda')
    with torch.no_grad():
        graph, output = captured(lambda: ours(x, lengths=lengths)[0])
        for _ in range(2):  # after the capture other inputs, lengths and weights
            x.normal_()
            lengths.copy_(torch.tensor([2, 9, 3, 3, 5]))
            ours.weight_hh_l0.mul_(0.5)
            graph.replay()
            theirs.load_state_dict(ours.state_dict())
            wanted = theirs(pack_padded_sequence(x, lengths.cpu(), enforce_sorted=False))[0]
            close(output, pad_packed_sequence(wanted)[0])
            close(ours(x, lengths=lengths)[0], output)  # what was called is not out of date either


@pytest.mark.parametrize('kind', KINDS)
def test_training_is_captured(kind):
    ours, theirs = twins(kind)
    optimizers = [torch.optim.SGD(module.parameters(), lr=0.01) for module in (ours, theirs)]
    xs = torch.randn(5, 9, 5, 24, device='cuda')
    x = xs[0].clone()

    def step(module, optimizer, x):
        optimizer.zero_grad(set_to_none=True)
        loss = module(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss

    state = {name: value.clone() for name, value in ours.state_dict().items()}
    graph, loss = captured(lambda: step(ours, optimizers[0], x))
    ours.load_state_dict(state)  # in place: as before the steps that warmed it up
    for each in xs:
        x.copy_(each)
        graph.replay()
        close(loss, step(theirs, optimizers[1], each))
    for mine, wanted in zip(ours.parameters(), theirs.parameters()):
        close(mine, wanted)
    with torch.no_grad():
        close(ours(x)[0], theirs(x)[0])


def test_graphs_of_one_layer_run_at_the_same_time():
    ours, _ = twins('LSTM', 64, 64)
    xs = [torch.randn(200, 16, 64, device='cuda') for _ in range(3)]

    def both(x):
        leaf = x.clone().requires_grad_(True)
        output = ours(leaf)[0]
        return output.detach(), *torch.autograd.grad(output.square().sum(), [leaf, *ours.parameters()])

    wanted = [both(x) for x in xs]
    made = [captured(lambda x=x: both(x)) for x in xs]
    streams = [torch.cuda.Stream() for _ in xs]
    torch.cuda.synchronize()
    for _ in range(20):
        for (graph, _), stream in zip(made, streams):
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    for (_, results), expected in zip(made, wanted):
        for mine, each in zip(results, expected, strict=True):
            close(mine, each, 1e-3)


def test_captured_runs_take_a_dirty_workspace_and_share_nothing():
    with pd.Graph() as graph:
        graph.fetch('sum', pd.sum(graph.input('x', pd.f32, 1 << 20) ** 2))  # by thread blocks that count each other
    placed = pd._paoding.PlacedGraph(graph, 'cuda')
    calls = []
    for i in range(3):
        x, total = torch.full((1 << 20,), 0.5 + i, device='cuda'), torch.full((), -1.0, device='cuda')
        workspace = torch.full((placed.workspace_bytes,), 0xA5, dtype=torch.uint8, device='cuda')
        calls.append((x, total, workspace, torch.cuda.Stream(), torch.cuda.CUDAGraph()))

    def run(call):
        x, total, workspace = call[:3]
        stream = torch.cuda.current_stream().cuda_stream
        placed.run([x.data_ptr()], [total.data_ptr()], workspace.data_ptr(), stream)

    torch.cuda.synchronize()
    for call in calls[:2]:  # the third runs without a graph beside them
        with torch.cuda.graph(call[4]):
            run(call)
    for _ in range(20):
        for call in calls:
            with torch.cuda.stream(call[3]):
                call[2].fill_(0xA5)
                run(call) if call is calls[2] else call[4].replay()
        torch.cuda.synchronize()
        for i, call in enumerate(calls):
            assert call[1].item() == pytest.approx((0.5 + i) ** 2 * (1 << 20), rel=1e-4)
            call[1].fill_(-1)


def test_a_capture_without_a_call_before_is_refused_before_any_work():
    ours, _ = twins('GRU', 24, 48)
    x = torch.randn(9, 7, 24, device='cuda')
    with torch.no_grad():
        with pytest.raises(pd.ArgumentError, match='call it once in front of the capture'):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                ours(x)
        close(ours(x)[0], ours(x)[0], 0)
        with pytest.raises(pd.ArgumentError, match='lengths in the memory of the host'):
            with torch.cuda.graph(torch.cuda.CUDAGraph()):
                ours(x, lengths=torch.tensor([9] * 7))


@pytest.mark.parametrize('mode', ['default', 'reduce-overhead'])
def test_torch_compile_takes_the_layers(mode):
    ours, theirs = twins('LSTM', num_layers=2)
    x = torch.randn(9, 5, 24, device='cuda')
    compiled = torch.compile(lambda x: ours(x)[0] * 2, fullgraph=True, mode=mode)
    for _ in range(4):
        for module in (ours, theirs):
            module.zero_grad()
        torch.compiler.cudagraph_mark_step_begin()
        x.normal_()
        got, wanted = compiled(x), theirs(x)[0] * 2
        close(got, wanted)
        got.sum().backward()
        wanted.sum().backward()
        for mine, each in zip(ours.parameters(), theirs.parameters()):
            close(mine.grad, each.grad, 1e-3)


def test_a_graph_is_a_differentiable_function():
    with pd.Graph() as graph:
        a, b, t = (graph.input(name, pd.f32, shape) for name, shape in (('a', (4, 1)), ('b', (4, 3)), ('t', (3,))))
        graph.fetch('y', pd.lerp(a, b, t))
        graph.fetch('product', pd.matmul(a.T, b))
    lerp = pt.function(graph)
    a, b, t = (torch.randn(shape, device='cuda', requires_grad=True) for shape in ((4, 1), (4, 3), (3,)))
    y, product = lerp(a, b, t)
    close(y, torch.lerp(a.expand(4, 3), b, t.expand(4, 3)))
    close(product, a.T @ b)
    mine = torch.autograd.grad(y.square().sum() + product.sum(), (a, b, t))
    theirs = torch.lerp(a.expand(4, 3), b, t.expand(4, 3)).square().sum() + (a.T @ b).sum()
    for one, other in zip(mine, torch.autograd.grad(theirs, (a, b, t))):
        close(one, other)
    with torch.no_grad():
        replayed, (captured_y, _) = captured(lambda: lerp(a, b, t))
        a.normal_()
        replayed.replay()
        close(captured_y, torch.lerp(a.expand(4, 3), b, t.expand(4, 3)))
    with pytest.raises(pd.ArgumentError, match='tensors of cpu and cuda:0'):
        lerp(a, b, t.cpu())


def test_positions_that_are_outside_are_raised_later():
    with pd.Graph() as graph, graph.scope('table'):
        graph.fetch('y', pd.gather(graph.input('x', pd.f32, (4, 3)), graph.input('i', pd.i64, 2), axis=0))
    gather = pt.function(graph)
    x, inside = torch.randn(4, 3, device='cuda'), torch.tensor([1, 2], device='cuda')
    outside = torch.tensor([1, 4], device='cuda')
    assert torch.equal(gather(x, inside), x[inside])
    pt.synchronize()
    gather(x, outside)
    with pytest.raises(pd.ArgumentError, match='table'):
        pt.synchronize()
    pt.synchronize()
    gather(x, outside)
    torch.cuda.synchronize()
    with pytest.raises(pd.ArgumentError, match='table'):
        gather(x, inside)
    assert torch.equal(gather(x, inside), x[inside])
    positions = inside.clone()
    replayed, y = captured(lambda: gather(x, positions))
    replayed.replay()
    pt.synchronize()
    assert torch.equal(y, x[inside])
    positions.copy_(outside)
    replayed.replay()
    positions.copy_(inside)
    replayed.replay()
    with pytest.raises(pd.ArgumentError, match='table'):
        pt.synchronize()


def test_a_function_can_be_one_launch_of_a_graph():
    with pd.Graph() as graph:
        x, w = graph.input('x', pd.f32, (4, 3)), graph.input('w', pd.f32, (3, 3))
        graph.fetch('y', pd.tanh(pd.tanh(x @ w) @ w))
    function = pt.function(graph, uses_graph=True)
    w = torch.randn(3, 3, device='cuda', requires_grad=True)
    for _ in range(12):  # memory comes again
        x = torch.randn(4, 3, device='cuda', requires_grad=True)
        y, wanted = function(x, w), torch.tanh(torch.tanh(x @ w) @ w)
        close(y, wanted)
        for mine, theirs in zip(torch.autograd.grad(y.sum(), (x, w)), torch.autograd.grad(wanted.sum(), (x, w))):
            close(mine, theirs)


def test_a_loop_that_the_device_decides_is_a_function():
    with pd.Graph() as graph:
        x = graph.input('x', pd.f32, ())
        graph.fetch('y', pd.while_loop(lambda v: v < 100, lambda v: v * 2, x))
    double = pt.function(graph)
    x = torch.tensor(3.0, device='cuda')
    assert double(x).item() == 192
    with torch.no_grad():
        replayed, y = captured(lambda: double(x))
        for value, wanted in ((3.0, 192.0), (200.0, 200.0), (70.0, 140.0)):
            x.fill_(value)
            replayed.replay()
            assert y.item() == wanted


def test_a_model_is_accelerated_where_it_is():
    torch.manual_seed(0)
    model = torch.nn.ModuleDict({'a': torch.nn.LSTM(5, 7), 'b': torch.nn.GRU(7, 4, bidirectional=True)}).cuda()
    x = torch.randn(4, 2, 5, device='cuda')
    wanted = model['b'](model['a'](x)[0])[0]
    close(pt.accelerate(model)['b'](model['a'](x)[0])[0], wanted)
    on_cpu = model.cpu()
    close(on_cpu['b'](on_cpu['a'](x.cpu())[0])[0], wanted.cpu())


def test_what_does_not_fit_is_said():
    ours, _ = twins('LSTM', 5, 7)
    x = torch.randn(6, 3, 5, device='cuda')
    states = torch.zeros(1, 3, 7), torch.zeros(1, 3, 7)
    with pytest.raises(RuntimeError, match='not at the same device, found input tensor at cpu'):
        ours(x.cpu())
    with pytest.raises(RuntimeError, match='not at the same device, found input tensor at cuda:0'):
        ours(x, states)
    with torch.no_grad(), pytest.raises(RuntimeError, match='not at the same device'):
        ours(x.cpu())
    with pytest.raises(RuntimeError, match='not at the same device'):
        pt.LSTM(5, 7)(x)
    with pytest.raises(ValueError, match='does not match weight dtype'):
        ours(x.to(torch.int64))
    close(ours(x.transpose(0, 1).contiguous().transpose(0, 1))[0], ours(x)[0], 0)  # strides are followed
    shifted = torch.empty(6 * 3 * 5 + 1, device='cuda')[1:].view(6, 3, 5).copy_(x)  # so are odd addresses
    close(ours(shifted)[0], ours(x)[0], 0)
    freed = x.clone()
    freed.untyped_storage().resize_(0)
    with pytest.raises(pd.ArgumentError, match='is null'):
        ours(freed)
    torch.cuda.synchronize()
