# SPDX-License-Identifier: Apache-2.0
"""benchmarks/torch_ops.py [FOLDER]: every op of PyTorch's own database of ops (OpInfo), in f32, by AOTAutograd with paoding's
compiler, with the package in FOLDER (build/python): forward in inference, and forward and backward where it has a gradient.

Of each op's samples the first, the last and those between that make --samples are compared with eager mode: dtypes, shapes,
strides, values, gradients. The verdict of an op: `ours` (paoding computes all of it), `partly`, `PyTorch's`, `views` (nothing is
computed), `left out` (random results, data-dependent sizes, no f32 samples, eager mode fails) or `different`, with the reason. JSON
goes to --out after every op, so that Ctrl-C loses nothing; a run with the same --out goes on. Counts come last."""

import argparse
import collections
import datetime
import functools
import json
import os
import pathlib
import platform
import signal
import sys
import time
import unittest.mock
import warnings

arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
arguments.add_argument('folder', nargs='?', default='build/python')
arguments.add_argument('--only', default='', help='ops whose names contain one of these words, separated by commas')
arguments.add_argument('--samples', type=int, default=3, help='of each op, at most')
arguments.add_argument('--device', default='cpu', choices=('cuda', 'cpu'))
arguments.add_argument('--seconds', type=int, default=120, help='that an op may take')
arguments.add_argument('--no-gradients', action='store_true')
arguments.add_argument('--out', default='')
options = arguments.parse_args()
sys.path.insert(0, str(pathlib.Path(options.folder).resolve()))
warnings.simplefilter('ignore')

import torch  # noqa: E402
from torch._functorch.aot_autograd import aot_function  # noqa: E402
from torch._functorch.partitioners import min_cut_rematerialization_partition  # noqa: E402

import paoding.torch.compiler._backend as backend  # noqa: E402
from paoding.torch.compiler._settings import Settings, decompositions  # noqa: E402

SETTINGS = Settings(min_nodes=1)


class Slow(Exception):
    pass


def compiled(function, reports):
    forward, backward, inference = (
        functools.partial(backend._compile, kind=kind, settings=SETTINGS, listener=reports.append)
        for kind in ('forward', 'backward', 'inference')
    )
    return aot_function(
        function,
        forward,
        backward,
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        inference_compiler=inference,
        keep_inference_input_mutations=True,
    )


def tensors_of(results):
    return [each for each in torch.utils._pytree.tree_leaves(results) if isinstance(each, torch.Tensor)]


def compare(made, wanted):
    for mine, theirs in zip(tensors_of(made), tensors_of(wanted), strict=True):
        assert mine.dtype == theirs.dtype, f'dtype {mine.dtype}, eager {theirs.dtype}'
        assert mine.shape == theirs.shape, f'shape {tuple(mine.shape)}, eager {tuple(theirs.shape)}'
        if mine.layout == torch.strided:
            assert mine.numel() < 2 or mine.stride() == theirs.stride(), f'stride {mine.stride()}, eager {theirs.stride()}'
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4, equal_nan=True)


def as_call(op, sample):
    """A function of a list of the sample's tensors, and these."""
    leaves, form = torch.utils._pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    places = [i for i, each in enumerate(leaves) if isinstance(each, torch.Tensor)]

    def call(tensors):
        given = list(leaves)
        for i, tensor in zip(places, tensors):
            given[i] = tensor
        first, rest, keywords = torch.utils._pytree.tree_unflatten(given, form)
        return op.op(first, *rest, **keywords)

    return call, [leaves[i] for i in places]


def twins(tensors, requires_grad):
    return [
        [each.detach().clone().requires_grad_(requires_grad and each.requires_grad) for each in tensors] for _ in range(2)
    ]


def gradients(results, read):
    torch.manual_seed(3)
    sums = [(each * torch.randn_like(each)).sum() for each in tensors_of(results) if each.requires_grad]
    wanted = [each for each in read if each.requires_grad]
    return torch.autograd.grad(sums, wanted, allow_unused=True) if sums and wanted else ()


def check(op, sample, with_gradients, reports):
    """Raises AssertionError where ours is not eager's. Gives why it cannot be compared."""
    call, tensors = as_call(op, sample)
    theirs, mine = twins(tensors, with_gradients)
    grad = torch.enable_grad if with_gradients else torch.no_grad
    with grad():
        try:
            torch.manual_seed(1)
            before = torch.get_rng_state()
            wanted = call(theirs)
            if not torch.equal(before, torch.get_rng_state()):
                return 'random results'
            again = call([each.detach().clone().requires_grad_(each.requires_grad) for each in theirs])
            compare(again, wanted)
            wanted_gradients = gradients(wanted, theirs) if with_gradients else ()
        except Slow:
            raise
        except AssertionError:
            return 'eager mode gives other results the second time'
        except Exception as mistake:
            return f'eager mode: {type(mistake).__name__}'
        if with_gradients and not wanted_gradients:
            return None
        try:
            made = compiled(call, reports)(mine)
        except Slow:
            raise
        except Exception as mistake:
            return f'AOTAutograd: {type(mistake).__name__}: {str(mistake).splitlines()[0] if str(mistake) else ""}'[:200]
        try:
            compare_all(made, wanted, mine, wanted_gradients)
        except AssertionError:
            # Of AOTAutograd itself, where nothing of paoding's is: its promises, or its gradients, are others than eager mode's.
            _, plain = twins(tensors, with_gradients)
            try:
                compare_all(aot_function(call, lambda gm, _: gm, decompositions=decompositions())(plain), wanted, plain, wanted_gradients)
            except AssertionError:
                return "AOTAutograd's results are not eager mode's"
            raise
    return None


def compare_all(made, wanted, read, wanted_gradients):
    compare(made, wanted)
    if not wanted_gradients:
        return
    for ours, eager in zip(gradients(made, read), wanted_gradients, strict=True):
        if ours is None or eager is None:
            assert all(each is None or not each.any() for each in (ours, eager)), 'a gradient is missing'
        else:
            compare([ours], [eager])


def verdict_of(op):
    if 'empty' in op.name:
        return {'verdict': 'left out', 'why': 'memory that was not written to'}
    samples = list(op.sample_inputs(options.device, torch.float32, requires_grad=op.supports_autograd))
    if not samples:
        return {'verdict': 'left out', 'why': 'no samples'}
    step = max(1, (len(samples) - 1) // max(1, options.samples - 1))
    chosen = (samples[:-1:step] + samples[-1:])[: options.samples] if len(samples) > 1 else samples
    reports, refusals = [], []
    for sample in chosen:
        for with_gradients in (False, True):
            if with_gradients and (options.no_gradients or not op.supports_autograd):
                continue
            try:
                refusal = check(op, sample, with_gradients, reports)
            except Slow:
                return {'verdict': 'left out', 'why': f'more than {options.seconds} s'}
            except AssertionError as difference:
                return {'verdict': 'different', 'why': ' '.join(str(difference).split())[:300], 'backward': with_gradients}
            if refusal is not None:
                refusals.append(refusal)
    ours = sum(sum(report.regions) for report in reports)
    left = collections.Counter(f'{each.op}: {each.why}' for report in reports for each in report.left)
    whole = [report.whole for report in reports if report.whole is not None]
    made = {'samples': len(chosen), 'left': [f'{why}' for why, _ in left.most_common(4)]}
    if not reports:
        return {'verdict': 'left out', 'why': refusals[0] if refusals else 'nothing was compiled'}
    if whole and not ours and not left:
        return {'verdict': 'views' if 'no tensor' not in whole[0] else 'left out', 'why': whole[0], **made}
    if left or whole:
        return {'verdict': 'partly' if ours else "PyTorch's", **made, 'why': whole[0] if whole else ''}
    return {'verdict': 'ours' if ours else 'views', **made}


def named(op):
    return op.name + (f'.{op.variant_test_name}' if op.variant_test_name else '')


def main():
    def too_slow(*_):
        raise Slow

    signal.signal(signal.SIGALRM, too_slow)
    with unittest.mock.patch('torch.backends.disable_global_flags'):
        from torch.testing._internal.common_methods_invocations import op_db
    words = [word for word in options.only.split(',') if word]
    ops = [op for op in op_db if torch.float32 in op.supported_dtypes(options.device)]
    ops = [op for op in ops if not words or any(word in named(op) for word in words)]
    path = pathlib.Path(options.out) if options.out else None
    done = json.loads(path.read_text())['ops'] if path is not None and path.exists() else {}
    for i, op in enumerate(ops):
        if named(op) in done:
            continue
        begin = time.perf_counter()
        torch.manual_seed(0)
        signal.alarm(options.seconds)
        try:
            done[named(op)] = verdict_of(op)
        except Slow:
            done[named(op)] = {'verdict': 'left out', 'why': f'more than {options.seconds} s'}
        except Exception as mistake:
            done[named(op)] = {'verdict': 'left out', 'why': f'{type(mistake).__name__}: {mistake}'[:200]}
        finally:
            signal.alarm(0)
        torch._dynamo.reset()
        said = done[named(op)]
        print(f'{i + 1}/{len(ops)} {named(op)}: {said["verdict"]} {said.get("left") or said.get("why", "")} '
              f'({time.perf_counter() - begin:.1f} s)', flush=True)  # fmt: skip
        if path is not None:
            write(path, done)
    counts = collections.Counter(each['verdict'] for each in done.values())
    print(', '.join(f'{count} {verdict}' for verdict, count in counts.most_common()))
    return 1 if counts['different'] else 0


def write(path, done):
    counts = collections.Counter(each['verdict'] for each in done.values())
    made = {
        'command': f'benchmarks/torch_ops.py --device {options.device} --samples {options.samples}',
        'date': datetime.date.today().isoformat(),
        'machine': f'{platform.machine()}, {os.cpu_count()} cores, {options.device}',
        'pytorch': torch.__version__,
        'counts': dict(sorted(counts.items())),
        'ops': dict(sorted(done.items())),
    }
    new = path.with_suffix('.new')
    new.write_text(json.dumps(made, indent=1) + '\n')
    new.replace(path)


if __name__ == '__main__':
    sys.exit(main())
