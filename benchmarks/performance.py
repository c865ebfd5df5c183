# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance.md, its plots, and the measured tables of README.md from benchmarks/results/*.json.

  python3 benchmarks/performance.py            writes them
  python3 benchmarks/performance.py --check    says what is stale, exit code 1 when anything is

A table in README.md stands between <!-- measured NAME --> and <!-- end -->; NAME is a function of READMES below. Only
Python's standard library is used: this runs in `make check`.
"""
import json
import os
import re
import sys

import scaling
from generated import ROOT, write_or_check

HERE = os.path.dirname(os.path.abspath(__file__))
RESULTS = os.path.join(HERE, "results")
THREADS, THREADS_PICTURE = "2026-11-23-threads-xeon-2.txt", "pictures/performance_threads.svg"

SECTIONS = {
    "S": "seq2seq training step",
    "R": "Recurrent layers",
    "L": "Interpolation with broadcasting and its gradients",
    "B": "Bias gradients and the conv net",
    "O": "Optimizer, cross entropy, normalisation",
    "C": "Control flow",
    "P": "Profiler",
    "G": "Training steps on the CPU",
    "T": "Transformers",
}


def load(name):
    try:
        with open(os.path.join(RESULTS, name)) as file:
            return json.load(file)
    except OSError:
        return {"rows": []}


# ---- numbers ----


def us(value):
    """Three digits that count, thousands apart."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def ms(value):
    return "–" if value is None else us(value / 1000)


def span(low, high):
    return f"[{us(low)}, {us(high)}]"


def percent(part, whole):
    return "–" if not part or not whole else f"{100 * part / whole:.0f}%"


def verdict(row):
    """Won: at the goal, and 0.95 of the best other, or 1.02 where that is within 10% of the floor (a tie)."""
    if row["ours_us"] is None:
        return "not written yet"
    if row.get("right") is False:
        return "**wrong**"
    best, ours, goal, floor = row.get("best_other_us"), row["ours_us"], row.get("goal_us"), row.get("floor_us")
    at_goal = goal is None or ours <= goal
    if best is None:
        return "at the goal" if goal and at_goal else "" if goal is None else "behind the goal"
    if ours <= 0.95 * best:
        return "won" if at_goal else "ahead, behind the goal"
    if ours <= 1.02 * best and floor and best <= 1.1 * floor:
        return "tie"
    return "even" if ours <= 1.02 * best else "**lost**"


# ---- docs/performance.md ----


def table(rows):
    lines = ["| case | cache, clock | **ours** us | spread | floor | of it | goal | best other | its us | |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        if row["ours_us"] is None:
            lines.append(f"| `{row['case']}` | | – | | {us(row.get('floor_us'))} | | {us(row.get('goal_us'))} | | "
                         f"| waits for {row['waits_for']} |")
            continue
        spread = span(row["ours_min_us"], row["ours_max_us"])
        if row.get("ours_p99_us"):
            spread += f", p99 {us(row['ours_p99_us'])}"
        floor = us(row.get("floor_us"))
        whole = row.get("floor_with_launch_us")
        share = percent(row.get("floor_us"), row["ours_us"])
        if row.get("floor_us") and whole and whole > 1.02 * row["floor_us"]:
            floor += f" ({us(whole)})"
            share += f" ({percent(whole, row['ours_us'])})"
        lines.append(
            f"| `{row['case']}` | {row['cache']}, {row['clock']} | **{us(row['ours_us'])}** "
            f"| {spread} | {floor} | {share} | {us(row.get('goal_us'))} "
            f"| {row.get('best_other') or '–'} | {us(row.get('best_other_us'))} | {verdict(row)} |")
    return lines


def peers_table(rows):
    """Every peer of every row, with its spread."""
    lines = ["| case | cache, clock | peer: us [min, max] |", "|---|---|---|"]
    for row in rows:
        if not row.get("peers"):
            continue
        spread = row.get("peers_spread_us", {})
        all_peers = [f"{name}: {us(value)}" + (f" {span(*spread[name])}" if name in spread else "")
                     for name, value in sorted(row["peers"].items(), key=lambda item: item[1])]
        lines.append(f"| `{row['case']}` | {row['cache']}, {row['clock']} | {'; '.join(all_peers)} |")
    return lines


def reasons(rows):
    found = {}
    for row in rows:
        for peer, why in row.get("why_not", {}).items():
            found.setdefault((peer, why.split("\n")[0][:110]), []).append(row["case"])
    return [f"- {peer or 'a peer'}: {why} ({len(set(cases))} case{'s' if len(set(cases)) > 1 else ''}, `{cases[0]}`)"
            for (peer, why), cases in sorted(found.items())]


def days(rows):
    found = sorted({row["when"][:10] for row in rows if row.get("when")})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}" if found else "never"


def versions(rows):
    found = {}
    for row in rows:
        for name, version in (row.get("versions") or {}).items():
            if name != "paoding" and version:
                found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(some))}" for name, some in sorted(found.items()))


def part(title, results, rows, picture):
    lines = [f"## {title}", ""]
    if not rows:
        return lines + ["Nothing is measured yet.", ""]
    lines += [f"{results.get('machine', '')}; measured {days(rows)}; {versions(rows)}.", ""]
    lines += [results["note"], ""] if "note" in results else []
    lines += [f"![]({picture})", ""] if picture else []
    for section, name in SECTIONS.items():
        some = [row for row in rows if row["section"] == section]
        if some:
            lines += [f"### {name}", ""] + table(some) + [""]
    lines += ["### All peers", ""] + peers_table(rows) + [""]
    why = reasons(rows)
    if why:
        lines += ["What peers could not do:", ""] + why + [""]
    return lines


def by_threads():
    """Of one machine; where a number of threads had no time for a row, its cell is empty."""
    with open(os.path.join(RESULTS, THREADS)) as file:
        return scaling.rows_of(file.read())


def threads_part():
    return ["## CPU, by threads", "",
            "On the host of the H200, an Intel Xeon of 16 virtual cores; median [least], in us. How it was measured, and what was",
            f"not: [{THREADS}](../benchmarks/results/{THREADS}).", "", f"![]({THREADS_PICTURE})", "",
            *scaling.table(by_threads()), ""]


def page(gpu, h100, cpu, small):
    lines = [
        "# Performance",
        "",
        "Written by `python3 benchmarks/performance.py` from [benchmarks/results/](../benchmarks/results/), which",
        "`benchmarks/compare` writes; `make check` fails when this page is not what they say. `paoding bench --list` has what is",
        "measured; a row of work that is not written yet says what it waits for.",
        "",
        "Times are medians in us; ours and the others' take turns in one call on one machine, the spread is over all rounds. *gpu*",
        "is the time of the device for runs started back to back (the others: CUDA events around graph replays), *wall* what a",
        "caller waits. *Cold* rotates among buffers of together more than three caches, outputs too, *hot* uses one set. The floor is",
        "the bytes that must move over the rate measured for their kind of access (H200: read 4.6, read and written 4.15, in L2 10",
        "TB/s; CPU: a pass over the same bytes, as many read, written and updated in place), or the operations over the unit's rate",
        "(bf16 790, TF32 393 TFLOP/s; CPU: a product of 1024 x 1024), or for recurrent rows a count by hand; in brackets with what one kernel",
        "takes whatever it does (1.3 us in a graph, 5.8 us with its caller waiting). Sets of buffers are timed one behind the other: where a",
        "set's kernels would run beside another's, as they did in cold rows of small kernels before 2026-11-26, they are kept apart. PyTorch's outputs on the GPU are kept by",
        "the graph, each set its own, so that nothing is allocated while it is timed; on the CPU PyTorch is measured as it is, with outputs given",
        "where the op takes them, compiled, and all of these with an allocator that keeps its pages. What it returns there is kept until the",
        "buffers' next turn; where it is dropped at once, it lies in the same memory again, and a cold row is cold for the inputs alone",
        "(*results dropped*: no other is best by that). Results of ours are compared",
        "with float64 before they are timed; models of hundreds of GFLOP at a smaller size (`checked_as`).",
        "",
        "A row is won at the goal and at most 0.95 of the best other; where the best other is within 10% of the floor, at most 1.02",
        "of it is a tie.",
        "",
    ]
    lines += part("One NVIDIA H200", gpu, gpu["rows"], "pictures/performance_h200.svg")
    # What single kernels are wanted to take is said for an H200.
    lines += part("One NVIDIA H100", h100, [{**row, "goal_us": None} for row in h100["rows"]], None)
    for threads in sorted({row.get("threads") for row in cpu["rows"]}, key=lambda t: t or 0):
        rows = [row for row in cpu["rows"] if row.get("threads") == threads]
        lines += part(f"CPU, {threads} threads", cpu, rows, f"pictures/performance_cpu_{threads}.svg")
    lines += part("CPU, 2 threads of a small machine", small, small["rows"], "pictures/performance_cpu_small.svg")
    lines += threads_part()
    return "\n".join(lines).rstrip("\n") + "\n"


# ---- the plot ----


def plot(rows, title):
    """Percent of the floor, ours and the best other, one line a row."""
    rows = [r for r in rows if r["ours_us"] and r.get("floor_us")]
    rows = [r for r in rows if r["clock"] == "gpu" or not any(
        o["case"] == r["case"] and o["cache"] == r["cache"] and o["clock"] == "gpu" for o in rows)]
    left, width, step, top = 330, 420, 15, 52
    height = top + step * len(rows) + 14
    x = lambda share: left + width * min(share, 1.25) / 1.25
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 40}" height="{height}" '
           f'font-family="sans-serif" font-size="11">',
           f'<rect width="100%" height="100%" fill="#ffffff"/>',
           f'<text x="8" y="18" font-size="13">{title}: percent of the floor</text>',
           '<circle cx="14" cy="34" r="4" fill="#c0392b"/><text x="24" y="38">ours</text>',
           '<circle cx="74" cy="34" r="4" fill="#7f8c8d"/><text x="84" y="38">the best other</text>']
    for share in (0, 0.25, 0.5, 0.75, 1.0):
        out.append(f'<line x1="{x(share):.1f}" y1="{top - 6}" x2="{x(share):.1f}" y2="{height - 8}" stroke="#dddddd"/>')
        out.append(f'<text x="{x(share):.1f}" y="{top - 9}" text-anchor="middle" fill="#666666">{100 * share:.0f}%</text>')
    for i, row in enumerate(rows):
        y = top + step * i + step / 2
        ours = row["floor_us"] / row["ours_us"]
        out.append(f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{row["case"]} ({row["cache"]})</text>')
        if row.get("best_other_us"):
            other = row["floor_us"] / row["best_other_us"]
            out.append(f'<line x1="{x(ours):.1f}" y1="{y:.1f}" x2="{x(other):.1f}" y2="{y:.1f}" stroke="#bbbbbb"/>')
            out.append(f'<circle cx="{x(other):.1f}" cy="{y:.1f}" r="4" fill="#7f8c8d"/>')
        out.append(f'<circle cx="{x(ours):.1f}" cy="{y:.1f}" r="4" fill="#c0392b"/>')
    return "\n".join(out + ["</svg>"]) + "\n"


# ---- README.md ----


def find(results, case, cache=None, clock=None, threads=None):
    for row in results["rows"]:
        if row["case"] == case and (cache is None or row["cache"] == cache) and (clock is None or row["clock"] == clock):
            if row["ours_us"] is not None and (threads is None or row.get("threads") == threads):
                return row
    return None


def on_either(gpu, case, clock):
    """The cold row of the H200, or where it has none of the H100, and what to say of that."""
    row = find(gpu, case, "cold", clock)
    return (row, "") if row else (find(load("h100.json"), case, "cold", clock), " (H100)")


def peer(row, *names):
    """The best of those peers whose names begin so."""
    if row is None:
        return None
    found = [value for name, value in row.get("peers", {}).items()
             if any(re.fullmatch(n, name) for n in names) and not name.endswith("results dropped")]
    return min(found) if found else None


def lerp_grad_table(gpu, cpu):
    labels = ["[16,102400] f32, scalar w", "[16,204800] f64, scalar w", "x [16,1,1,1], y [16,3,224,224]",
              "x [16,1,1,1], y [16,3,244,244], w [3,1,244]", "x [64,1,512,1], y [64,256,1,128], w [256,512,128]"]
    lines = ["| case | floor | **paoding** | torch.compile | PyTorch eager |", "|---|---|---|---|---|"]
    for number, label in enumerate(labels, 1):
        row, where = on_either(gpu, f"lerp_grad/{number}", "gpu")
        if row:
            lines.append(f"| {label}{where} | {us(row['floor_us'])} | **{us(row['ours_us'])}** "
                         f"| {us(peer(row, 'PyTorch compiled.*'))} | {us(peer(row, 'PyTorch(, graph)?'))} |")
    return lines


def lstm_table(gpu, cpu):
    rows = [("forward, batch 1, f32", "forward/t64_b1_h512_f32"), ("forward, batch 1, bf16", "forward/t64_b1_h512_bf16"),
            ("forward, batch 32, TF32", "forward/t64_b32_h512_tf32"), ("forward, batch 32, bf16", "forward/t64_b32_h512_bf16"),
            ("training, 50 steps, batch 128, 2 layers, TF32", "training/t50_b128_h512_l2_tf32"),
            ("training, 50 steps, batch 128, 2 layers, bf16", "training/t50_b128_h512_l2_bf16")]
    lines = ["| | **paoding** | cuDNN's best, called directly | nn.LSTM in a CUDA graph | nn.LSTM | op by op in a CUDA graph | op by op |",
             "|---|---|---|---|---|---|---|"]
    for label, name in rows:
        row = find(gpu, "lstm/" + name, "hot", "wall") or find(gpu, "lstm/" + name, clock="wall")
        if row:
            lines.append(f"| {label} | **{us(row['ours_us'])}** | {us(peer(row, 'cuDNN.*'))} "
                         f"| {us(peer(row, 'PyTorch nn.LSTM, graph'))} | {us(peer(row, 'PyTorch nn.LSTM'))} "
                         f"| {us(peer(row, 'PyTorch op by op, graph'))} | {us(peer(row, 'PyTorch op by op'))} |")
    return lines


def gpu_table(gpu, cpu):
    rows = [("seq2seq training step, 27 M parameters, TF32", "seq2seq/tf32", "wall"), ("the same in bf16", "seq2seq/bf16", "wall"),
            ("conv net training step, batch 100, TF32", "conv_net/training/b100_tf32", "wall"),
            ("its forward pass, batch 1000", "conv_net/forward/b1000_tf32", "wall"),
            ("ResNet-50 training step, 256 images, mixed bf16", "resnet50/training/b256_mixed_bf16", "wall"),
            ("ResNet-50 inference, 256 images, mixed bf16", "resnet50/forward/b256_mixed_bf16", "wall"),
            ("Adam, 60 M parameters in 30 tensors", "adam/60m_f32", "gpu"),
            ("cross entropy [6400,7709] with its gradient, bf16", "cross_entropy/bf16", "gpu"),
            ("layer_norm [8192,1024] with its gradients, f32", "layer_norm/both_f32", "gpu"),
            ("layer_norm forward, bf16", "layer_norm/forward_bf16", "gpu")]
    lines = ["| | floor | **paoding** | PyTorch's best | PyTorch eager |", "|---|---|---|---|---|"]
    for label, name, clock in rows:
        row, where = on_either(gpu, name, clock)
        if row:
            lines.append(f"| {label}{where} | {us(row['floor_us'])} | **{us(row['ours_us'])}** "
                         f"| {us(peer(row, 'PyTorch.*'))} | {us(peer(row, 'PyTorch', 'PyTorch, fused Adam', 'PyTorch, channels last'))} |")
    return lines


def cpu_table(gpu, cpu):
    rows = [("seq2seq training step, hidden 256, f32", "g2p/f32"), ("conv net training step, batch 128", "conv_net/training/b128_f32"),
            ("layer_norm [8192,1024], forward", "layer_norm/forward_f32"), ("its gradients", "layer_norm/backward_f32"),
            ("Adam, 10 M parameters", "adam/10m_f32")]
    counts = sorted({row.get("threads") for row in cpu["rows"] if row.get("threads")})
    lines = ["| | " + " | ".join(f"**paoding**, {n} threads | PyTorch's best, {n}" for n in counts) + " |",
             "|---|" + "---|" * (2 * len(counts))]
    for label, name in rows:
        cells = []
        for threads in counts:
            row = find(cpu, name, "hot", threads=threads) or find(cpu, name, threads=threads)
            state = ", cold" if row and row["cache"] == "cold" else ""
            cells += [f"**{ms(row['ours_us'])}**{state}" if row else "–", ms(peer(row, "PyTorch.*"))]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    return lines


def training_table(gpu, cpu):
    lines = ["| command | model and data (`paoding fetch` gets it) | on held-out examples | time |", "|---|---|---|---|"]
    return lines + [f"| `{row['command']}` | {row['what']} | {row['scores']} | {row['time']} |"
                    for row in load("training.json")["rows"]]


READMES = {"training": training_table, "lerp_grad": lerp_grad_table, "lstm": lstm_table, "gpu": gpu_table, "cpu": cpu_table}


def readme(text, gpu, cpu):
    def fill(match):
        name = match.group(1)
        if name not in READMES:
            raise SystemExit(f"README.md: there is no table '{name}' in benchmarks/performance.py")
        return f"<!-- measured {name} -->\n" + "\n".join(READMES[name](gpu, cpu)) + "\n<!-- end -->"
    return re.sub(r"<!-- measured (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.S)


def main():
    checks = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checks:
        raise SystemExit("usage: python3 benchmarks/performance.py [--check]")
    gpu, h100, cpu, small = (load(name) for name in ("h200.json", "h100.json", "cpu.json", "cpu_2_cores.json"))
    path = os.path.join(ROOT, "README.md")
    with open(path) as file:
        written = {"README.md": readme(file.read(), gpu, cpu), "docs/performance.md": page(gpu, h100, cpu, small)}
    if gpu["rows"]:
        written["docs/pictures/performance_h200.svg"] = plot(gpu["rows"], "One H200")
    for threads in sorted({row["threads"] for row in cpu["rows"]}):
        rows = [row for row in cpu["rows"] if row["threads"] == threads]
        written[f"docs/pictures/performance_cpu_{threads}.svg"] = plot(rows, f"CPU, {threads} threads")
    written["docs/pictures/performance_cpu_small.svg"] = plot(small["rows"], "CPU, 2 threads of a small machine")
    written["docs/" + THREADS_PICTURE] = scaling.plot(by_threads(), "Rows of the CPU: an Intel Xeon of 16 virtual cores")
    raise SystemExit(write_or_check(written, "python3 benchmarks/performance.py", checks))


if __name__ == "__main__":
    main()
