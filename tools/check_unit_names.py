# SPDX-License-Identifier: Apache-2.0
"""check_unit_names.py: names of unnamed namespaces that two files of one folder declare. Files of a folder are compiled together
(cmake/unity.cmake), so that such a pair compiles only as long as it happens to lie in two units. It finds types, constants,
and functions with the same parameters, by what declarations at the start of a line look like."""

import collections
import os
import re
import subprocess
import sys

STRING = re.compile(r'R"(\w*)\((?:.|\n)*?\)\1"')
TYPE = re.compile(r"(?:template.*> *)?(?:struct|class|enum class|enum|union) (\w+)\b[^;=]*(?:\{|$)")
ALIAS = re.compile(r"using (\w+) = (.*);")
CONSTANT = re.compile(r"(?:static |inline )*(?:constexpr|const) [^(={]*?\b(k[A-Z]\w*|k_\w+)(?:\[\w*\])? ?[={]")
FUNCTION = re.compile(r"(?:\[\[\w+\]\] |static |inline |constexpr |template <.*> )*[\w:<>,*& ]+?[ *&](\w+)\((.*)")


def declarations(text: str):
    """(kind and parameters, name with the namespace around, line) of what unnamed namespaces declare."""
    lines = STRING.sub(lambda raw: "R" + "\n" * raw.group(0).count("\n"), text).split("\n")
    inside, around = False, ""
    for at, line in enumerate(lines):
        if line.startswith("namespace {"):
            inside = True
        elif named := re.match(r"namespace ([\w:]+) \{", line):
            around = named[1] + "::"
        elif line.startswith("}  // namespace"):
            inside = False
        if not inside or not line or line[0] in " }#/":
            continue
        if alias := ALIAS.match(line):
            yield "alias " + alias[2], around + alias[1], at + 1
        elif found := TYPE.match(line):
            yield "type", around + found[1], at + 1
        elif found := CONSTANT.match(line):
            yield "constant", around + found[1], at + 1
        elif (found := FUNCTION.match(line)) and not line.endswith(";") and not found[1].startswith("TEST"):
            parameters, row = found[2].replace("= {}", ""), at
            while "{" not in parameters and row + 1 < len(lines):
                row += 1
                parameters += lines[row].strip().replace("= {}", "")
            parameters = re.sub(r"=[^,]*", "", parameters.split("{")[0].rpartition(")")[0])
            yield "function " + re.sub(r" ?\w+(?= *(,|$))", "", parameters).replace(" ", ""), around + found[1], at + 1


def main() -> int:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src/*.cpp", "cli/*.cpp", "models/*.cpp",
                             "tests/*.cpp", "python/src/*.cpp"], capture_output=True, text=True, check=True).stdout.split()
    folders = collections.defaultdict(lambda: collections.defaultdict(list))
    for path in listed:
        if path.endswith(("_fuzz.cpp", "_bench.cpp")) or not os.path.exists(path):
            continue
        text = open(path, encoding="utf-8").read()
        if "hwy/foreach_target.h" in text:
            continue
        is_test = path.startswith("tests/") or path.endswith("_test.cpp")
        for kind, name, line in declarations(text):
            folders[os.path.dirname(path), is_test][name].append((kind, path, line))
    problems = 0
    for names in folders.values():
        for name, places in names.items():
            for kind, path, line in places[1:]:
                first = next((place for place in places if place[1] != path and clash(kind, place[0])), None)
                if first and first[1:] < (path, line):
                    print(f"{path}:{line}: {name} is of {first[1]}:{first[2]} too, of the same folder: rename one")
                    problems += 1
    return 1 if problems else 0


def clash(one: str, other: str) -> bool:
    if one.startswith("alias ") and other.startswith("alias "):
        return one != other
    return not (one.startswith("function") and other.startswith("function")) or one == other


if __name__ == "__main__":
    sys.exit(main())
