# SPDX-License-Identifier: Apache-2.0
"""Times by number of threads: the table that a results file holds, which performance.py shows."""
import re


def rows_of(text):
    """(case, cache, {threads: (median, least)}) of a table whose columns end where their headings do."""
    ends, rows = None, []
    for line in text.splitlines():
        heads = list(re.finditer(r"(\d+) threads?\b", line))
        if ends is None:
            if len(heads) > 1 and not line[: heads[0].start()].strip():
                ends = {int(head[1]): head.end() for head in heads}
            continue
        cells = list(re.finditer(r"([\d.]+) \[([\d.]+)\]", line))
        if cells:
            case, cache = line.split()[:2]
            rows.append((case, cache, {min(ends, key=lambda n: abs(ends[n] - cell.end())): (float(cell[1]), float(cell[2]))
                                       for cell in cells}))
    return rows


def table(rows):
    counts = sorted({n for _, _, at in rows for n in at})
    us = lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.2g}"
    lines = ["| case | cache | " + " | ".join(f"{n} thread{'s' if n > 1 else ''}" for n in counts) + " | times as fast |",
             "|---|---|" + "---|" * (len(counts) + 1)]
    for case, cache, at in rows:
        few, many = min(at), max(at)
        cells = [f"{us(at[n][0])} [{us(at[n][1])}]" if n in at else "–" for n in counts]
        lines.append(f"| `{case}` | {cache} | " + " | ".join(cells) +
                     f" | {at[few][0] / at[many][0]:.1f} with {many / few:.0f} times the threads |")
    return lines

