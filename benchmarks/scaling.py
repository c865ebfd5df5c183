# SPDX-License-Identifier: Apache-2.0
"""Times by number of threads: the table that a results file holds, and its picture. performance.py writes both."""
import html
import math
import re

# Apart enough for eight lines on white.
COLORS = ["#c0392b", "#2471a3", "#1e8449", "#b9770e", "#7d3c98", "#117a65", "#5d6d7e", "#a04000"]
SHORTEST_US = 10  # what takes less takes as long with any number of threads, and would take a third of the picture


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


def plot(rows, title):
    """A line a row, both scales logarithmic: what scales as its threads falls as the dashed lines do."""
    rows = sorted((row for row in rows if min(row[2].values())[0] >= SHORTEST_US),
                  key=lambda row: -row[2][max(row[2])][0])
    counts = sorted({n for _, _, at in rows for n in at})
    medians = [us for _, _, at in rows for us, _ in at.values()]
    least, most = min(medians) / 1.5, 10 ** math.ceil(math.log10(max(medians)))
    left, top, width, height, right = 80, 52, 420, 420, 330
    x = lambda n: left + width * math.log(n / counts[0]) / math.log(counts[-1] / counts[0])
    y = lambda us: top + height * math.log(most / us) / math.log(most / least)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + right}" height="{top + height + 40}" '
           'font-family="sans-serif" font-size="11">',
           '<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="8" y="18" font-size="13">{html.escape(title)}</text>',
           '<text x="8" y="36" fill="#666666">us of wall time, by the number of threads; dashed: as much faster as there are '
           'more threads</text>']
    for power in range(math.ceil(math.log10(least)), round(math.log10(most)) + 1):
        at = y(10**power)
        out.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 8}" y="{at + 4:.1f}" text-anchor="end" fill="#666666">{10**power:,} us</text>')
        first, last = 10**power, 10**power * counts[0] / counts[-1]
        if last >= least:
            out.append(f'<line x1="{x(counts[0]):.1f}" y1="{y(first):.1f}" x2="{x(counts[-1]):.1f}" y2="{y(last):.1f}" '
                       'stroke="#bbbbbb" stroke-dasharray="4 4"/>')
    for n in counts:
        out.append(f'<text x="{x(n):.1f}" y="{top + height + 18}" text-anchor="middle" fill="#666666">{n}</text>')
    label = top  # no two labels closer than a line of text
    for color, (case, cache, at) in zip(COLORS * len(rows), rows):
        points = [(x(n), y(at[n][0])) for n in sorted(at)]
        places = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
        out.append(f'<polyline points="{places}" fill="none" stroke="{color}" stroke-width="1.5"/>')
        out += [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"/>' for px, py in points]
        label = max(label + 13, points[-1][1])
        few, many = min(at), max(at)
        out.append(f'<text x="{points[-1][0] + 10:.1f}" y="{label + 4:.1f}" fill="{color}">{case} ({cache}): '
                   f'{at[few][0] / at[many][0]:.1f}x from {few} to {many}</text>')
    return "\n".join(out + ["</svg>"]) + "\n"
