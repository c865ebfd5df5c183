# SPDX-License-Identifier: Apache-2.0
"""What tools/gpu_tests.sh runs, and what came of it.

gpu_tests.py filter               the patterns of tests/gpu_tests.txt as one --gtest_filter
gpu_tests.py entries PROGRAM EVERY    a CTestTestfile of the tests that PROGRAM lists on stdin, some to a process; of the
                                  op sweep, which is most of them, every EVERY-th
gpu_tests.py result OUT BUNDLE GPU SECONDS JOBS EVERY    OUT/gpu_suite.json from OUT/gpu_tests.log
gpu_tests.py stale                whether code that a GPU runs has changed since the commit of benchmarks/results/gpu_suite.json,
                                  or that run was not green; says so in one line, and nothing where all is well"""

import datetime
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PROCESS_TESTS = 16
SWEEP = 'OpSweepOnGpu'
RESULT = REPOSITORY / 'benchmarks/results/gpu_suite.json'
# What decides which kernels a GPU is given, and what they compute.
GPU_CODE = [
    *(f'src/{each}' for each in ('gpu', 'runtime', 'debug', 'capi', 'plan', 'passes', 'ops', 'scalar', 'group')),
    ':(exclude)*_test.cpp',
]


def patterns() -> tuple[dict[str, int], list[str], list[str]]:
    """Each pattern with the tests a process gets (0: as others), what is left out, what runs alone."""
    run: dict[str, int] = {}
    left_out, alone = [], []
    for line in (REPOSITORY / 'tests/gpu_tests.txt').read_text().splitlines():
        if not line or line.startswith('#'):
            continue
        pattern, *count = line.removesuffix(' alone').split()
        if line.endswith(' alone'):
            alone.append(pattern)
        if pattern.startswith('-'):
            left_out.append(pattern[1:])
        else:
            run[pattern] = int(count[0]) if count else 0
    return run, left_out, alone


def entries(program: str, listed: str, every: int) -> str:
    """Tests that take long get processes of their own. Those that took longest in the last suite are started first, and before
    them those that it did not have."""
    run, _, alone = patterns()
    own = {pattern: count for pattern, count in run.items() if count}
    groups: dict[str, list[str]] = {}
    suite, others = '', []
    for line in listed.splitlines():
        if not line.startswith(' '):
            suite = line.split()[0]
            continue
        test = suite + line.split()[0]
        pattern = next((each for each in own if fnmatch.fnmatchcase(test, each)), None)
        if pattern is None:
            others.append(test)
        else:
            groups.setdefault(suite.rstrip('.'), []).append(test)
    lines = []
    seconds = json.loads(RESULT.read_text()).get('process_seconds', {})

    def add(name: str, tests: list[str]) -> None:
        cost = seconds.get(name, 1000)
        is_alone = any(fnmatch.fnmatchcase(tests[0], each) for each in alone)
        lines.append(f'add_test([==[{name}]==] "{program}" [==[--gtest_filter={":".join(tests)}]==])')
        lines.append(
            f'set_tests_properties([==[{name}]==] PROPERTIES WORKING_DIRECTORY "{REPOSITORY}" TIMEOUT 240 COST {cost}'
            ' ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=2;PAODING_RANDOM_GRAPHS=64'
            + (';PAODING_ALONE=1" RUN_SERIAL TRUE' if is_alone else '"')
            + ' FAIL_REGULAR_EXPRESSION "NOT CHECKED: no GPU here")'
        )

    groups[SWEEP] = groups.get(SWEEP, [])[::every]
    for name, tests in groups.items():
        if not tests:
            continue
        most = next(count for pattern, count in own.items() if fnmatch.fnmatchcase(tests[0], pattern))
        for i in range(0, len(tests), most):
            add(name if i == 0 else f'{name}#{i // most + 1}', tests[i : i + most])
    for i in range(0, len(others), PROCESS_TESTS):
        add(f'others#{i // PROCESS_TESTS + 1}', others[i : i + PROCESS_TESTS])
    return '\n'.join(lines) + '\n'


def result(out: str, bundle: str, gpu: str, seconds: str, jobs: str, every: str) -> None:
    log = pathlib.Path(out, 'gpu_tests.log').read_text(errors='replace')
    ended = re.findall(r'^ *\d+/\d+ Test +#\d+: (\S+) \.*(?:\*+)? *(\S+).*? ([\d.]+) sec$', log, re.MULTILINE)
    slowest = sorted(((float(time), name) for name, _, time in ended), reverse=True)
    commit = pathlib.Path(bundle, 'commit')
    name, driver = gpu.split(', ')
    made = {
        'command': f'tools/gpu_tests.sh BUNDLE OUT {jobs} {every}',
        'date': datetime.date.today().isoformat(),
        'commit': commit.read_text().strip() if commit.exists() else 'unknown',
        'gpu': name,
        'driver': driver,
        'jobs': int(jobs),
        'seconds': int(seconds),
        'tests': sum(int(count) for count in re.findall(r'\[=+\] (\d+) tests? from .* ran\.', log)),
        'processes': len(ended),
        'failed': sorted(name for name, how, _ in ended if how != 'Passed'),
        'process_seconds': {name: time for time, name in slowest},
    }
    pathlib.Path(out, 'gpu_suite.json').write_text(json.dumps(made, indent=2) + '\n')


def stale() -> str:
    """Why benchmarks/results/gpu_suite.json does not speak for the work tree, or nothing. `make check` prints it and does not
    fail for it: whoever changes code of the GPU need not have one."""
    recorded = json.loads(RESULT.read_text())
    if recorded['failed']:
        return f'the GPU suite failed at {recorded["commit"]}: {", ".join(recorded["failed"])}'
    commit = recorded['commit'].removesuffix('-dirty')
    command = ['git', 'diff', '--name-only', commit, '--', *GPU_CODE]
    compared = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    if compared.returncode != 0:
        return f'the GPU suite ran at {commit}, which this clone does not have'
    changed = compared.stdout.split()
    if not changed:
        return ''
    others = f' and {len(changed) - 3} more' if len(changed) > 3 else ''
    return f'the GPU suite ran at {commit}; changed since: {", ".join(changed[:3])}{others} (tools/gpu_tests.sh runs it)'


if __name__ == '__main__':
    if sys.argv[1] == 'filter':
        run, left_out, _ = patterns()
        print(':'.join(run) + ':-' + ':'.join([*left_out, '*DISABLED_*']))
    elif sys.argv[1] == 'entries':
        print(entries(sys.argv[2], sys.stdin.read(), int(sys.argv[3])), end='')
    elif sys.argv[1] == 'stale':
        if message := stale():
            print(f'note: {message}')
    else:
        result(*sys.argv[2:])
