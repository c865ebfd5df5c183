# SPDX-License-Identifier: Apache-2.0
"""tools/check_docs.py [PAGE..]: what pages say is so, as far as a program can tell. Without pages: README.md,
CONTRIBUTING.md and all of docs/ and benchmarks/results/. Every problem is printed as file:line: what is wrong.

1. Links lead to files that there are, and to headings that there are.
2. A measured number in prose (one with a unit of time, of a rate, a size in MB or more, or a percentage), decimals beside
   it, and a number in a bold cell of a table are in a file of benchmarks/results/ that the paragraph cites; a table, or a
   list, may be cited by the paragraph in front of it. Of a file with cases the paragraph names the case, and the number is in its rows. Numbers
   may be rounded, and scaled from us to ms or s.
   Pages of benchmarks/results/ are results themselves; its README.md lists every file there.
3. A number that is computed says how: <!-- computed: 6.71 / 6.58 - 1 = 2% -->, with operands that are in the cited file.
   <!-- not measured: WHY --> exempts its paragraph: a default, a limit, a size that follows from shapes.
Code blocks, code spans and what performance.py writes between <!-- measured .. --> and <!-- end --> are left alone, and so
are pages that say that a program has written them."""
import ast
import json
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RESULTS = os.path.join(ROOT, "benchmarks", "results")
UNIT = r"(?:us|ms|ns|s|seconds?|minutes?|hours?|h|%|per cent|percent|times|[kKMGT]?B/s|[GT]FLOP/s|[\w]+ a second|MB|GB|GiB|MiB|TB)"
NUMBER = re.compile(rf"(?<![\w.\-/])(\d[\d,]*(?:\.\d+)?)(?:\s?)({UNIT})(?![\w/])|(?<![\w.:])(\d+:\d\d)(?![\w:])")
# Without a unit, in a paragraph that has measured numbers: a decimal or one with thousands apart, but no version.
BARE = re.compile(r"(?<![\w.\-/,])(?<!PyTorch )(?<!CUDA )(?<!cuDNN )(?<!oneDNN )(?<!Python )(?<!NVRTC )(?<!glibc )(?<!capability )"
                  r"(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+)(?![\w/]|\.\d)")
IN_CELL = re.compile(r"\*\*(\d[\d,]*(?:\.\d+)?)\*\*")
CITED = re.compile(r"benchmarks/results/([\w\-./]+\.(?:json|txt|md))|\]\((?:\./)?([\w\-]+\.(?:json|txt))(?:#[^)]*)?\)")
SCALES = (1, 1e-3, 1e-6, 1e3, 1e6, 100, 0.01)


class Problems:
    def __init__(self):
        self.count = 0

    def say(self, page, line, text):
        self.count += 1
        print(f"{os.path.relpath(page, ROOT) if page.startswith(ROOT) else page}:{line}: {text}")


# ---- results ----

cache = {}


def leaves(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, list):
        for item in value:
            yield from leaves(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield float(value)
    elif isinstance(value, str):
        yield from numbers_of(value)


def numbers_of(text):
    for found in re.findall(r"\d+(?:,\d{3})+(?:\.\d+)?|\d+:\d\d|\d+(?:\.\d+)?(?:e[-+]?\d+)?", text):
        yield seconds_of(found) if ":" in found else float(found.replace(",", ""))


def seconds_of(text):
    minutes, seconds = text.split(":")
    return 60.0 * int(minutes) + int(seconds)


def result(name):
    """(numbers, rows by case): the second only of a JSON file whose rows are cases."""
    if name not in cache:
        with open(os.path.join(RESULTS, name), errors="replace") as file:
            text = file.read()
        if not name.endswith(".json"):
            cache[name] = (list(numbers_of(text)), None)
        else:
            data = json.loads(text)
            rows = data.get("rows") if isinstance(data, dict) else None
            has_cases = isinstance(rows, list) and rows and all("case" in row for row in rows)
            cases = {}
            for row in rows if has_cases else []:
                cases.setdefault(row["case"], []).extend(leaves({k: v for k, v in row.items() if k not in ("case", "versions", "when", "what")}))
            cache[name] = (list(leaves(data)), cases if has_cases else None)
    return cache[name]


def is_among(shown, numbers):
    """Whether one of them reads so when it is rounded to as many digits."""
    if ":" in shown:
        return any(abs(number - seconds_of(shown)) <= 0.5 for number in numbers)
    plain = shown.replace(",", "")
    value, half = float(plain), 0.5000001 * 10 ** -(len(plain.split(".")[1]) if "." in plain else 0)
    return any(abs(number * scale - value) <= half for number in numbers for scale in SCALES if number * scale > 0.2 * value)


# ---- pages ----


def blocks_of(text):
    """(first line, text) of paragraphs, list items and tables, without code and without what is generated."""
    blocks, current, start, in_code, in_measured = [], [], 0, False, False
    lines = text.split("\n")
    for i, line in enumerate(lines + [""], 1):
        if line.startswith("```"):
            in_code = not in_code
            line = ""
        elif re.match(r"<!-- (measured|ladder) \w+ -->", line):
            in_measured = True
        elif line.strip() == "<!-- end -->":
            in_measured, line = False, ""
        begins = re.match(r"\s*(?:[-*]|\d+\.) ", line)
        if in_code or in_measured or not line.strip() or begins:
            if current:
                blocks.append((start, "\n".join(current)))
                current = []
            if in_code or in_measured or not line.strip():
                continue
        if not current:
            start = i
        current.append(line)
    return blocks


def headings(path):
    with open(path) as file:
        text = re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
    found = set()
    for heading in re.findall(r"^#+ (.+)$", text, re.M):
        plain = re.sub(r"[`*]|\]\([^)]*\)|\[", "", heading).strip().lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def check_links(page, text, problems):
    in_code = False
    for i, line in enumerate(text.split("\n"), 1):
        in_code ^= line.startswith("```")
        if in_code:
            continue
        for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, heading = link.partition("#")
            path = os.path.join(os.path.dirname(page), target) if target else page
            if not page.startswith(ROOT) and not os.path.exists(path):
                path = os.path.join(ROOT, target)
            if not os.path.exists(path):
                problems.say(page, i, f"the link {link} leads nowhere")
            elif heading and path.endswith(".md") and heading not in headings(path):
                problems.say(page, i, f"{target} has no heading #{heading}")


def value_of(expression):
    """Of + - * / and numbers."""
    def walk(node):
        if isinstance(node, ast.Expression):
            return walk(node.body)
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp):
            a, b = walk(node.left), walk(node.right)
            return {ast.Add: a + b, ast.Sub: a - b, ast.Mult: a * b}.get(type(node.op)) if not isinstance(node.op, ast.Div) else a / b
        raise ValueError(expression)
    return walk(ast.parse(expression.replace(",", ""), mode="eval"))


def computed_in(block, numbers, complain):
    """What the block says that it has computed, checked."""
    found = []
    for expression, shown in re.findall(r"<!-- computed: (.+?) = ([\d.,]+%?) -->", block):
        for operand in re.findall(r"\d[\d,]*\.?\d*", expression):
            if operand not in ("1", "100") and not is_among(operand, numbers):
                complain(f"computed: {operand} is not in what is cited")
        value, plain = value_of(expression) * (100 if shown.endswith("%") else 1), shown.rstrip("%").replace(",", "")
        if abs(value - float(plain)) > 0.5000001 * 10 ** -(len(plain.split(".")[1]) if "." in plain else 0):
            complain(f"computed: {expression} is {value:.4g}, not {shown}")
        found.append(plain)
    return found


def check_numbers(page, text, problems):
    before = ""  # the paragraph that a table or a list belongs to
    for start, block in blocks_of(text):
        is_table, is_item = block.lstrip().startswith("|"), re.match(r"\s*(?:[-*]|\d+\.) ", block)
        source = block if not (is_table or is_item) else before + "\n" + block
        if not (is_table or is_item):
            before = block
        if "<!-- not measured:" in source or block.startswith("#"):
            continue
        prose = re.sub(r"<!--.*?-->", lambda m: " " * len(m[0]), re.sub(r"`[^`]*`|\]\([^)]*\)", lambda m: " " * len(m[0]), block), flags=re.S)
        shown = [(m.group(1) or m.group(3), m.group(0)) for m in NUMBER.finditer(prose)]
        if shown and not is_table:
            shown += [(m.group(1), m.group(1)) for m in BARE.finditer(NUMBER.sub(lambda m: " " * len(m[0]), prose))]
        if is_table:
            shown += [(m.group(1), m.group(1)) for m in IN_CELL.finditer(prose)]
        if not shown:
            continue
        complain = lambda text, start=start: problems.say(page, start, text)
        numbers, names = [], [a or b for a, b in CITED.findall(source)]
        if not names:
            complain(f"{shown[0][1]}: no result is cited; cite a file of benchmarks/results/, or say <!-- not measured: WHY -->")
            continue
        for name in dict.fromkeys(names):
            if not os.path.exists(os.path.join(RESULTS, name)):
                complain(f"benchmarks/results/{name} is not there")
                continue
            found, cases = result(name)
            if cases is None:
                numbers += found
                continue
            named = [span for span in re.findall(r"`([^`]+)`", source) if span in cases]
            if not named:
                wrong = [span for span in re.findall(r"`([a-z0-9_]+/[\w/]+)`", source)]
                complain(f"{name} has no case {wrong[0]}" if wrong else f"{name} has many cases: name the case that {shown[0][1]} is of")
            for span in named:
                numbers += cases[span]
        if not numbers:
            continue
        allowed = computed_in(source, numbers, complain)
        for number, whole in shown:
            if number.replace(",", "") not in allowed and not is_among(number, numbers):
                complain(f"{whole} is not in {', '.join(dict.fromkeys(names))}")


def check_index(problems):
    """Every result has its line in the index."""
    with open(os.path.join(RESULTS, "README.md")) as file:
        index = file.read()
    for name in sorted(os.listdir(RESULTS)):
        if name != "README.md" and f"({name}" not in index:
            problems.say(os.path.join(RESULTS, name), 1, "the index, benchmarks/results/README.md, does not list it")


def pages():
    found = [os.path.join(ROOT, name) for name in ("README.md", "CONTRIBUTING.md")]
    for top in ("docs", "benchmarks/results"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            found += [os.path.join(folder, name) for name in sorted(names) if name.endswith(".md")]
    return sorted(found)


def main():
    problems = Problems()
    for page in sys.argv[1:] or pages():
        with open(page) as file:
            text = file.read()
        check_links(page, text, problems)
        is_result = page.startswith(RESULTS)  # what others cite
        if not is_result and not re.search(r"^<!-- Written by .*-->$", text[:600], re.M):
            check_numbers(page, text, problems)
    if len(sys.argv) == 1:
        check_index(problems)
    raise SystemExit(1 if problems.count else 0)


if __name__ == "__main__":
    main()
