#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tools/check_words.py [update]: words that the code no longer uses, and numbers that may only fall.

Without an argument every problem is printed as file:line: what is wrong, and any problem gives exit status 1:
  - a word of tools/old_words.txt outside of the files that its line excepts;
  - a count of tools/ratchets.txt that has risen;
  - a file of C++ or CUDA that this branch changes in more than ten lines and in which more than 5% of the lines with a
    comment have a noun clause ("what") or begin with Of, By or As.
`update` writes today's counts into tools/ratchets.txt where they have fallen.
"""

import fnmatch
import os
import re
import subprocess
import sys

WORDS, RATCHETS = 'tools/old_words.txt', 'tools/ratchets.txt'
TEXTS = ('src', 'include', 'cli', 'python', 'models', 'tests', 'tools', 'examples', 'cmake')
CODE = ('.cpp', '.h', '.cu')
# Recorded by programs of other days, or of other people's words.
RECORDED = ('tests/reference/peer/recorded/*', 'tests/recordings/*', 'tests/fuzz_seeds/*', WORDS, RATCHETS)
MOST_SHARE, FEW_LINES = 0.05, 10


def git(*arguments):
    return subprocess.run(('git', *arguments), capture_output=True, text=True).stdout


def text_of(path):
    with open(path, encoding='utf-8', errors='replace') as file:
        return file.read()


def listed(*folders, kinds=('--cached', '--others')):
    """Files in these folders, also those that are not added yet."""
    for path in git('ls-files', *kinds, '--exclude-standard', '--', *folders).split('\n'):
        if path and os.path.isfile(path):
            yield path


def files():
    """Files that may hold words of ours."""
    return (path for path in listed(*TEXTS) if not any(fnmatch.fnmatch(path, each) for each in RECORDED))


def comments(text):
    """(line number, text) of each line's comment in C++ or CUDA; strings that hold // are not comments."""
    for number, line in enumerate(text.split('\n'), 1):
        code = re.sub(r'"(?:\\.|[^"\\])*"', '""', line)
        found = re.search(r'//+ ?(.*)', code)
        if found and 'SPDX' not in line:
            yield number, found.group(1)


def is_noun_clause(comment):
    return re.search(r'\bwhat\b', comment, re.IGNORECASE) or re.match(r'(Of|By|As)\b', comment)


def noun_clauses(text):
    """How many lines have a comment, and which of them read like a noun clause."""
    all_lines = list(comments(text))
    return len(all_lines), [number for number, comment in all_lines if is_noun_clause(comment)]


# ---- old words ----


def old_words():
    """(pattern, the word in its place, globs of files that may have it) of each line of tools/old_words.txt."""
    for line in text_of(WORDS).split('\n'):
        if not line.strip() or line.startswith('#'):
            continue
        rule, _, excepted = line.partition(' except ')
        old, new = rule.split(' -> ')
        yield re.compile(rf'(?<![A-Za-z0-9_])(?:{old.strip()})(?![A-Za-z0-9_])'), new.strip(), excepted.split()


def check_words(paths):
    rules, wrong = list(old_words()), False
    together = re.compile('|'.join(pattern.pattern for pattern, _, _ in rules))
    for path in paths:
        text = text_of(path)
        if not together.search(text) and not together.search(path):
            continue
        for pattern, new, excepted in rules:
            if any(fnmatch.fnmatch(path, each) for each in excepted):
                continue
            found = list(pattern.finditer(text)) + list(pattern.finditer(path))
            for match in found:
                line = text.count('\n', 0, match.start()) + 1 if match.string is text else 1
                print(f'{path}:{line}: "{match.group(0)}" is a word that the glossary (docs/design/glossary.md) replaced: {new}')
                wrong = True
    return not wrong


# ---- ratchets ----


def op_names():
    """Names of all ops, as the generated Python module lists them, and of those that only passes and gradients make."""
    names = set(re.findall(r"call_one\('(\w+)'|call\('(\w+)'", text_of('python/paoding/ops.py')))
    found = {name for pair in names for name in pair if name}
    for path in listed('src/ops', 'src/nn'):
        if path.endswith('.cpp') and not path.endswith('_test.cpp'):
            found |= set(re.findall(r'\.name = "(\w+)",\s+\.summary', text_of(path)))
            found |= set(re.findall(r'\bwide\.name = "(\w+)"', text_of(path)))
            found |= set(re.findall(r'find_op\("(\w+)"\)', text_of(path)))
    return found


# Code that has to do with every op, and so with none by its name; the folders of ops may know their own.
FOLDERS = 'autodiff capi cpu debug gpu graph group passes plan profile runtime schedule'
GENERIC = tuple(f'src/{folder}' for folder in FOLDERS.split())
CALLS = re.compile(r'\bis\w*\((?:[^()]|\([^()]*\))*')
LISTS = re.compile(r'\b(?:array|map|set|vector|list)<[^;{}]*\bstring(?:_view)?\b[^;{}]*>[^;{}]*\{([^;]*)\}', re.DOTALL)


def op_name_comparisons():
    """Where generic code asks for an op by its name: x == "op", "op" == x, is(x, "op"), prefixes of names, lists."""
    names, places = op_names(), []
    for path in listed(*GENERIC):
        if not path.endswith(CODE) or re.search(r'_(test|fuzz|bench)\.cpp$', path):
            continue
        text = text_of(path)
        for number, line in enumerate(text.split('\n'), 1):
            line = re.sub(r'//.*', '', line)
            line = re.sub(r'\bactivation\W*[=!]= *"\w+"', '', line)  # a value of an attribute
            line = re.sub(r'\battrs?\.\w+\("\w+"', 'attrs', line)  # and names of them
            asked = re.findall(r'[=!]= *"(\w+)"', line) + re.findall(r'"(\w+)" *[=!]=', line)
            asked += [name for call in CALLS.findall(line) for name in re.findall(r'"(\w+)"', call)]
            asked += [f'{name}*' for name in re.findall(r'name\.(?:starts_with|ends_with|find|contains)\("(\w+)"', line)]
            places += [(path, number) for name in asked if name in names or name.endswith('*')]
        for found in LISTS.finditer(text):
            line = text.count('\n', 0, found.start()) + 1
            places += [(path, line) for name in re.findall(r'"(\w+)"', found.group(1)) if name in names]
    return places


def skipped_tests():
    skip = re.compile(r'GTEST_SKIP|\bDISABLED_|pytest\.skip|mark\.skip|importorskip|unittest\.skip')
    return [
        (path, number)
        for path in files()
        if path.startswith(('tests/', 'src/', 'cli/', 'python/')) and path.endswith((*CODE, '.py'))
        for number, line in enumerate(text_of(path).split('\n'), 1)
        if skip.search(line)
    ]


def counts():
    return {
        'comment_lines_with_noun_clauses': sum(
            len(noun_clauses(text_of(path))[1]) for path in files() if path.endswith(CODE)
        ),
        'comparisons_of_op_names': len(op_name_comparisons()),
        'skipped_tests': len(skipped_tests()),
    }


def ratchets():
    lines = (line.split() for line in text_of(RATCHETS).split('\n') if line and not line.startswith('#'))
    return {name: int(number) for name, number in lines}


def check_ratchets():
    limits, right = ratchets(), True
    for name, count in counts().items():
        if count > limits[name]:
            print(f'{RATCHETS}:1: {name} has risen from {limits[name]} to {count}: numbers here may only fall')
            right = False
        elif count < limits[name]:
            print(f'{RATCHETS}:1: note: {name} is {count}, not {limits[name]}: tools/check.sh --ratchets update')
    return right


def update():
    limits, now = ratchets(), counts()
    lines = text_of(RATCHETS).split('\n')
    for i, line in enumerate(lines):
        name = line.split(' ')[0]
        if name in now:
            lines[i] = f'{name} {min(limits[name], now[name])}'
    with open(RATCHETS, 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines))


# ---- files that a change touches ----


def base():
    """What this branch began with: the merge base with main, on main the commit before; the ratchets' own at the earliest."""
    head = git('rev-parse', 'HEAD').strip()
    start = git('merge-base', 'HEAD', 'main').strip()
    if start in ('', head):
        start = git('rev-parse', '--verify', '-q', 'HEAD~1').strip()
    first = git('log', '--diff-filter=A', '--format=%H', '-1', '--', RATCHETS).strip()
    if not first:
        return head  # not committed yet
    is_later = subprocess.run(('git', 'merge-base', '--is-ancestor', start, first)).returncode == 0 if start else True
    return first if is_later else start


def touched():
    """Files that have more than FEW_LINES new lines, renames aside, and new ones."""
    for line in git('diff', '--numstat', '-M', base(), '--', *TEXTS, 'benchmarks').split('\n'):
        added, path = line.partition('\t')[0], line.rsplit('\t', 1)[-1]
        path = re.sub(r'\{(.*) => (.*)\}', r'\2', path).replace('//', '/').split(' => ')[-1]
        if added.isdigit() and int(added) > FEW_LINES and os.path.isfile(path):
            yield path
    yield from listed(*TEXTS, 'benchmarks', kinds=('--others',))


def check_touched():
    right = True
    for path in touched():
        if not path.endswith(CODE):
            continue
        commented, wrong = noun_clauses(text_of(path))
        if len(wrong) > max(MOST_SHARE * commented, 1):
            print(
                f'{path}:{wrong[0]}: {len(wrong)} of {commented} comment lines have "what" or begin with Of, By or As: '
                'a file that a change touches has at most 5% of them (subject and verb, and why)'
            )
            right = False
    return right


def main(arguments):
    if arguments == ['update']:
        return update()
    if arguments:
        sys.exit('usage: tools/check_words.py [update]')
    if not git('rev-parse', 'HEAD'):
        print('check: words not checked, this is no Git repository', file=sys.stderr)
        return None
    results = [check_words(files()), check_ratchets(), check_touched()]
    return None if all(results) else 1


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
