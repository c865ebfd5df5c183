# SPDX-License-Identifier: Apache-2.0
"""What tools/gpu_tests.sh runs, and what came of it.

gpu_tests.py filter               the patterns of tests/gpu_tests.txt as one --gtest_filter
gpu_tests.py entries PROGRAM      a CTestTestfile of the tests that PROGRAM lists on stdin, some to a process
gpu_tests.py result OUT BUNDLE GPU SECONDS TESTS JOBS    OUT/gpu_suite.json from OUT/gpu_tests.log"""

import datetime
import fnmatch
import json
import pathlib
import re
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PROCESS_TESTS = 32


def patterns() -> tuple[dict[str, int], list[str]]:
    """Each pattern with the tests a process gets (0: as others), and the patterns of what is left out."""
    run: dict[str, int] = {}
    left_out = []
    for line in (REPOSITORY / 'tests/gpu_tests.txt').read_text().splitlines():
        if not line or line.startswith('#'):
            continue
        pattern, *count = line.split()
        if pattern.startswith('-'):
            left_out.append(pattern[1:])
        else:
            run[pattern] = int(count[0]) if count else 0
    return run, left_out


def entries(program: str, listed: str) -> str:
    """Tests that take long get processes of their own, which are started first."""
    run, _ = patterns()
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

    def add(name: str, tests: list[str], cost: int) -> None:
        lines.append(f'add_test([==[{name}]==] "{program}" [==[--gtest_filter={":".join(tests)}]==])')
        lines.append(
            f'set_tests_properties([==[{name}]==] PROPERTIES WORKING_DIRECTORY "{REPOSITORY}" TIMEOUT 240 COST {cost}'
            ' ENVIRONMENT "OMP_WAIT_POLICY=passive;OMP_NUM_THREADS=2;PAODING_RANDOM_GRAPHS=64"'
            ' FAIL_REGULAR_EXPRESSION "NOT CHECKED: no GPU here")'
        )

    for name, tests in groups.items():
        most = next(count for pattern, count in own.items() if fnmatch.fnmatchcase(tests[0], pattern))
        for i in range(0, len(tests), most):
            add(name if i == 0 else f'{name}#{i // most + 1}', tests[i : i + most], 1000 // most)
    for i in range(0, len(others), PROCESS_TESTS):
        add(f'others#{i // PROCESS_TESTS + 1}', others[i : i + PROCESS_TESTS], 1)
    return '\n'.join(lines) + '\n'


def result(out: str, bundle: str, gpu: str, seconds: str, tests: str, jobs: str) -> None:
    log = pathlib.Path(out, 'gpu_tests.log').read_text(errors='replace')
    ended = re.findall(r'Test +#\d+: (\S+) \.*(?:\*\*\*| +)([A-Z][A-Za-z ]*?) +([\d.]+) sec', log)
    slowest = sorted(((float(time), name) for name, _, time in ended), reverse=True)[:20]
    commit = pathlib.Path(bundle, 'commit')
    name, driver = gpu.split(', ')
    made = {
        'command': f'tools/gpu_tests.sh BUNDLE OUT {jobs}',
        'date': datetime.date.today().isoformat(),
        'commit': commit.read_text().strip() if commit.exists() else 'unknown',
        'gpu': name,
        'driver': driver,
        'jobs': int(jobs),
        'seconds': int(seconds),
        'tests': int(tests),
        'processes': len(ended),
        'failed': sorted(name for name, how, _ in ended if how != 'Passed'),
        'slowest_seconds': {name: time for time, name in slowest},
    }
    pathlib.Path(out, 'gpu_suite.json').write_text(json.dumps(made, indent=2) + '\n')


if __name__ == '__main__':
    if sys.argv[1] == 'filter':
        run, left_out = patterns()
        print(':'.join(run) + ':-' + ':'.join([*left_out, '*DISABLED_*']))
    elif sys.argv[1] == 'entries':
        print(entries(sys.argv[2], sys.stdin.read()), end='')
    else:
        result(*sys.argv[2:])
