# SPDX-License-Identifier: Apache-2.0
"""Bar charts as SVG: linear axes with their unit, at most 20 bars, readable on a light and on a dark page."""
import html

MOST_BARS = 20

STYLE = """<style>
text{fill:#1f2328;font-family:sans-serif;font-size:12px}.bg{fill:#ffffff}.dim{fill:#59636e}.title{font-size:14px;font-weight:bold}
.grid{stroke:#d8dee4}.mark{stroke:#1f2328;stroke-dasharray:4 3}.a{fill:#b5432f}.b{fill:#8c959f}.c{fill:#3b6ea5}.d{fill:#8a6100}
.in{fill:#ffffff;font-size:11px}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.bg{fill:#0d1117}.dim{fill:#9198a1}.grid{stroke:#30363d}.mark{stroke:#e6edf3}
.a{fill:#d9664f}.b{fill:#6e7681}.c{fill:#5b93cf}.d{fill:#d9b648}.in{fill:#0d1117}}
</style>"""


def head(width, height, title, what):
    """`what` is the text for those who do not see the picture."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{html.escape(what)}">', STYLE, f'<rect class="bg" width="{width}" height="{height}"/>',
            f'<text class="title" x="10" y="22">{html.escape(title)}</text>']


def axis(x, most, step, top, bottom, unit, text=lambda value: f"{value:g}"):
    """Grid lines and their numbers from 0 to `most`; the unit stands below them."""
    out, count = [], round(most / step)
    for i in range(count + 1):
        value = i * step
        out.append(f'<line class="grid" x1="{x(value):.1f}" y1="{top}" x2="{x(value):.1f}" y2="{bottom}"/>')
        out.append(f'<text class="dim" x="{x(value):.1f}" y="{bottom + 15}" text-anchor="middle">{text(value)}</text>')
    out.append(f'<text class="dim" x="{x(most / 2):.1f}" y="{bottom + 32}" text-anchor="middle">{html.escape(unit)}</text>')
    return out


def bars(title, what, unit, items, most, step, mark=None, left=300, width=380, axis_text=lambda value: f"{value:g}"):
    """`items`: (name, value, text behind the bar, class of the bar). A value beyond `most` is an error: no bar is cut.
    `mark`: where a dashed line stands."""
    if len(items) > MOST_BARS:
        raise ValueError(f"{title}: {len(items)} bars, at most {MOST_BARS} can be read")
    if any(value > most for _, value, _, _ in items):
        raise ValueError(f"{title}: a bar is longer than the axis")
    top, line = 36, 19
    bottom = top + line * len(items) + 6
    x = lambda value: left + width * value / most
    out = head(left + width + 150, bottom + 42, title, what) + axis(x, most, step, top, bottom, unit, axis_text)
    for i, (name, value, text, kind) in enumerate(items):
        y = top + 4 + line * i
        out.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect class="{kind}" x="{left}" y="{y + 1}" width="{max(x(value) - left, 1):.1f}" height="14"/>')
        out.append(f'<text x="{x(value) + 5:.1f}" y="{y + 12}">{html.escape(text)}</text>')
    if mark is not None:
        out.append(f'<line class="mark" x1="{x(mark):.1f}" y1="{top}" x2="{x(mark):.1f}" y2="{bottom}"/>')
    return "\n".join(out + ["</svg>"]) + "\n"
