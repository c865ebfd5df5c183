# SPDX-License-Identifier: Apache-2.0
"""Writes docs/performance/, its charts, and the measured parts of other pages from benchmarks/results/*.json.

  python3 benchmarks/performance.py            writes them
  python3 benchmarks/performance.py --check    says what is stale, exit code 1 when anything is

A measured part stands between <!-- measured NAME --> and <!-- end -->; NAME is a function of PARTS below. Only Python's
standard library is used: this runs in `make check`.
"""
import os
import re
import sys

import before_after
import charts
import scaling
from generated import ROOT, write_or_check
from judged import (RESULTS, best_of, days, end_of, find, floor_of, is_floor_beaten, least_dropped, load, measured,
                    name_of_peer, time_text, us, versions)

THREADS = "2026-11-23-threads-xeon-2.txt"
# By the name of its page: results, heading, threads.
MACHINES = {
    "h200": ("h200.json", "NVIDIA H200", [None]),
    "h100": ("h100.json", "NVIDIA H100", [None]),
    "xeon": ("cpu.json", "Intel Xeon, the CPU beside the H200", [2, 16]),
    "epyc": ("cpu_2_cores.json", "AMD EPYC, two cores", [2]),
}
SECTIONS = [
    ("Training steps of seq2seq models", "seq2seq/|g2p/|compile/|bind/"),
    ("Recurrent layers", "lstm/|gru/|rnn/"),
    ("Transformers", "gpt|transformer/|xlnet_block/|attention/"),
    ("Image networks", "resnet50/|mobile_net/|conv_net/"),
    ("Interpolation with broadcasting", "lerp"),
    ("Sums and bias gradients", "sum/|relu_grad"),
    ("Normalisation, losses, embeddings, optimizers", "layer_norm/|cross_entropy/|embedding_grad/|adam/"),
    ("Control flow", "control/"),
]
SIX = [  # the chart of the README: case, cache, clock, and how the README calls it
    ("seq2seq/bf16", "cold", "seq2seq with attention, 27 M parameters, bf16"),
    ("lstm/training/t50_b128_h512_l2_bf16", "hot", "LSTM, 2 layers, batch 128, bf16 (hot)"),
    ("gru/training/t50_b32_h512_bf16", "hot", "GRU, batch 32, bf16 (hot)"),
    ("conv_net/training/b100_tf32", "cold", "small conv net, 100 images, TF32"),
    ("resnet50/training/b256_mixed_bf16", "cold", "ResNet-50, 256 images, mixed bf16"),
    ("mobile_net/training/b256_mixed_bf16", "cold", "MobileNetV2, 256 images, mixed bf16"),
]
H200_CHART = [
    ("seq2seq/tf32", "cold", "wall"), ("seq2seq/bf16", "cold", "wall"), ("lstm/forward/t64_b1_h512_f32", "hot", "wall"),
    ("lstm/forward/t64_b32_h512_bf16", "hot", "wall"), ("lstm/training/t50_b128_h512_l2_tf32", "hot", "wall"),
    ("lstm/training/t50_b128_h512_l2_bf16", "hot", "wall"), ("gru/training/t50_b32_h512_bf16", "hot", "wall"),
    ("conv_net/training/b100_tf32", "cold", "wall"), ("resnet50/training/b256_mixed_bf16", "cold", "wall"),
    ("resnet50/forward/b256_mixed_bf16", "cold", "wall"), ("mobile_net/training/b256_mixed_bf16", "cold", "wall"),
    ("mobile_net/forward/b4_f32", "cold", "wall"), ("lerp_grad/1", "cold", "gpu"), ("lerp_grad/5", "cold", "gpu"),
    ("lerp/3", "cold", "gpu"), ("layer_norm/both_f32", "cold", "gpu"), ("layer_norm/forward_bf16", "cold", "gpu"),
    ("cross_entropy/bf16", "cold", "gpu"), ("embedding_grad/translate_f32", "cold", "gpu"), ("adam/60m_f32", "cold", "gpu"),
]
WRITTEN = "<!-- Written by `python3 benchmarks/performance.py`; do not edit. -->"


# ---- pages of machines ----


def table(rows, is_gpu):
    lines = ["| case | cache, clock | **paoding**, us | [least, most] | best other | its us | ours / its | floor, us | measured |",
             "|---|---|---|---|---|---|---|---|---|"]
    for row in rows:
        name, best = best_of(row, is_gpu)
        end = end_of(row, is_gpu)
        alone = "default PyTorch only" if row.get("peers") else "no other measured"
        share = f"{row['ours_us'] / best:.2f} {end}" if best else end or alone
        floor = "beaten, so none" if is_floor_beaten(row) else us(floor_of(row))
        theirs = us(best)
        if least_dropped(row):
            theirs += f" ({us(least_dropped(row))} with results dropped)"
        lines.append(f"| `{row['case']}` | {row['cache']}, {row['clock']} | **{us(row['ours_us'])}** "
                     f"| [{us(row['ours_min_us'])}, {us(row['ours_max_us'])}] | {name_of_peer(name, is_gpu) if name else '–'} "
                     f"| {theirs} | {share} | {floor} | {row['when'][:10]} |")
    return lines


def share_chart(rows, is_gpu, title):
    """Our time as a share of the best other's."""
    items = []
    for row in rows:
        name, best = best_of(row, is_gpu)
        share = row["ours_us"] / best
        items.append((f"{row['case']} ({row['cache']})", share, f"{share:.2f}: {us(row['ours_us'])} | {us(best)}", "a" if share <= 1 else "d"))
    what = f"{title}. " + "; ".join(f"{name} {value:.2f}" for name, value, _, _ in items)
    return charts.bars(title, what, "our time / the best other's; 1 is as fast, less is faster (behind it: us of ours | theirs)",
                       items, 1.4, 0.2, mark=1, axis_text=lambda value: f"{value:.1f}")


def chart_rows(page, results, threads):
    if page == "h200":
        return [find(results, *key) for key in H200_CHART]
    is_gpu = results["device"] == "cuda"
    rows = [row for row in measured(results) if row.get("threads") == threads and best_of(row, is_gpu)[1]]
    if is_gpu:
        rows = [row for row in rows if row["clock"] == "gpu" and row["cache"] == "cold"]
    return rows[:charts.MOST_BARS]


def page_of(page, written):
    file, heading, counts = MACHINES[page]
    results = load(file)
    is_gpu = results["device"] == "cuda"
    rows = measured(results)
    lines = [f"# {heading}", "", WRITTEN, "",
             f"From [{file}](../../benchmarks/results/{file}), which also has every other that was measured, with its spread, "
             f"and why one is missing. How to read it: [method](README.md). {results['machine']}; measured {days(rows)}; "
             f"{versions(rows)}.", ""]
    if "note" in results:
        lines += [results["note"], ""]
    for threads in counts:
        some = [row for row in rows if row.get("threads") == threads]
        picture = f"performance_{page}{f'_{threads}' if len(counts) > 1 else ''}.svg"
        title = heading + (f", {threads} threads" if threads else "")
        chosen = chart_rows(page, results, threads)
        written[f"docs/pictures/{picture}"] = share_chart(chosen, is_gpu, f"{title}: our time beside the best other's")
        alt = f"{title}: our time as a share of the best other's, {len(chosen)} rows, {sum(row['ours_us'] > best_of(row, is_gpu)[1] for row in chosen)} of them longer"
        mark = "##" if len(counts) == 1 else "###"
        lines += ([f"## {threads} threads", ""] if len(counts) > 1 else []) + [f"![{alt}](../pictures/{picture})", ""]
        left = list(some)
        for name, pattern in SECTIONS:
            part = [row for row in left if re.match(pattern, row["case"])]
            left = [row for row in left if row not in part]
            if part:
                lines += [f"{mark} {name}{f', {threads} threads' if len(counts) > 1 else ''}", ""] + table(part, is_gpu) + [""]
        if left:
            raise SystemExit(f"{file}: no section of performance.py has {left[0]['case']}")
    if page == "xeon":
        lines += threads_part(written)
    return "\n".join(lines).rstrip("\n") + "\n"


def threads_part(written):
    with open(os.path.join(RESULTS, THREADS)) as file:
        rows = scaling.rows_of(file.read())
    items = []
    for case, cache, at in rows:
        gain = at[min(at)][0] / at[max(at)][0]
        items.append((f"{case} ({cache})", gain, f"{gain:.1f}", "a"))
    title = "Intel Xeon: how many times as fast 16 threads are as one"
    written["docs/pictures/performance_threads.svg"] = charts.bars(
        title, title + ": " + "; ".join(f"{name} {text}" for name, _, text, _ in items),
        "times as fast with 16 threads as with one", items, 20, 2)
    return ["## By threads", "", "Median [least] of wall time, us; how it was measured, and what was not: "
            f"[{THREADS}](../../benchmarks/results/{THREADS}).", "",
            f"![{title}, {len(items)} rows](../pictures/performance_threads.svg)", "", *scaling.table(rows), ""]


# ---- measured parts of other pages ----


def six():
    results = load("h200.json")
    found = []
    for case, cache, name in SIX:
        row = find(results, case, cache, "wall")
        peer, best = best_of(row, True, "PyTorch")
        found.append((name, row, peer, best))
    return found


def six_chart():
    items = []
    for name, row, _, best in six():
        items.append((name, 1.0, time_text(best), "b"))
        items.append(("paoding", row["ours_us"] / best, time_text(row["ours_us"]), "a"))
    title = "A training step on one H200: PyTorch's best (grey) and paoding (red)"
    what = title + ": " + "; ".join(f"{name}: PyTorch {time_text(best)}, paoding {time_text(row['ours_us'])}"
                                    for name, row, _, best in six())
    return charts.bars(title, what, "time of a step, PyTorch's best way = 1", items, 1.2, 0.2, left=310,
                       axis_text=lambda value: f"{value:.1f}")


def six_part():
    said = "; ".join(f"{name} {time_text(row['ours_us'])} against {time_text(best)}" for name, row, _, best in six())
    return [f"![Training steps on one H200, paoding against PyTorch's best: {said}](docs/pictures/six_models.svg)"]


def behind(page):
    file, _, _ = MACHINES[page]
    results = load(file)
    is_gpu = results["device"] == "cuda"
    rows = [row for row in measured(results) if best_of(row, is_gpu)[1]]
    lost = [row for row in rows if "behind" in end_of(row, is_gpu)]
    return rows, lost, is_gpu


def losses_line():
    parts = []
    for page, name in (("h200", "on the H200"), ("h100", "on an H100"), ("xeon", "on a Xeon"), ("epyc", "on two cores of an EPYC")):
        rows, lost, _ = behind(page)
        parts.append(f"{name} {len(lost)} of {len(rows)} rows")
    _, lost, is_gpu = behind("h200")
    worst = max(lost, key=lambda row: row["ours_us"] / best_of(row, is_gpu)[1])
    return [f"**Where it loses** (a row is one benchmark, with cold or with hot caches, by wall or GPU time; lost is more than 2% slower "
            f"than the best other): {', '.join(parts)}. The largest on the H200: MobileNetV2, four "
            f"images in f32, {time_text(worst['ours_us'])} against {time_text(best_of(worst, is_gpu)[1])}; on the H100 small sums, "
            "`lerp` and the forward pass of layer_norm. [All of them](docs/performance/README.md#where-it-loses)."]


def losses():
    lines = ["| machine | case | cache, clock | paoding | best other | its time | ours / its |", "|---|---|---|---|---|---|---|"]
    for page in MACHINES:
        rows, lost, is_gpu = behind(page)
        for row in sorted(lost, key=lambda row: -row["ours_us"] / best_of(row, is_gpu)[1]):
            name, best = best_of(row, is_gpu)
            threads = f", {row['threads']} threads" if row.get("threads") else ""
            lines.append(f"| [{MACHINES[page][1]}]({page}.md){threads} | `{row['case']}` | {row['cache']}, {row['clock']} "
                         f"| {time_text(row['ours_us'])} | {name_of_peer(name, is_gpu)} | {time_text(best)} | {row['ours_us'] / best:.2f} |")
    counted = []
    for page in MACHINES:
        rows, lost, is_gpu = behind(page)
        even = sum(end_of(row, is_gpu) == "even" for row in rows)
        counted.append(f"{MACHINES[page][1]}: {len(rows)} rows beside others, {len(rows) - len(lost) - even} ahead, {even} even, {len(lost)} behind")
    return ["; ".join(counted) + ".", "", *lines]


def missing():
    lines = []
    for page, (file, heading, _) in MACHINES.items():
        results = load(file)
        for row in results["rows"]:
            if row["ours_us"] is None:
                threads = f", {row['threads']} threads" if row.get("threads") else ""
                lines.append(f"- `{row['case']}` ({heading}{threads}): no time of ours; {'it waits for ' + row['waits_for'] if row.get('waits_for') else 'no session reached it'}.")
        is_gpu = results["device"] == "cuda"
        alone = [f"`{row['case']}` ({row['threads']} threads, {row['when'][:10]})" for row in measured(results)
                 if row.get("peers") and not best_of(row, is_gpu)[1]]
        if alone:
            lines.append(f"- {heading}: beside PyTorch's default settings only, so its times are not shown: {', '.join(alone)}.")
    return lines


def whole():
    found = load("seq2seq_whole.json")
    called, graph = found["rows"]
    return [f"{found['what']}, measured {found['date']} on an {found['machine']}: {time_text(called['us'])} by calls, {time_text(graph['us'])} "
            "in a CUDA graph ([seq2seq_whole.json](../../benchmarks/results/seq2seq_whole.json)); PyTorch's eager step in a CUDA graph stays its best."]


def training():
    lines = ["| command | model and data (`paoding fetch` gets it) | on held-out examples | time | date |", "|---|---|---|---|---|"]
    return lines + [f"| `{row['command']}` | {row['what']} | {row['scores']} | {row['time']} | {row['when']} |"
                    for row in load("training.json")["rows"]]


TORCH_LAYERS = [  # of python_torch_cuda.json: layer, dtype, steps, batch, inputs, hidden, layers
    ("LSTM", "f32", 64, 1, 512, 512, 1), ("LSTM", "f32", 64, 32, 512, 512, 1), ("LSTM", "bf16", 64, 32, 512, 512, 1),
    ("GRU", "f32", 64, 128, 512, 512, 1), ("LSTM", "f32", 400, 16, 80, 256, 2), ("RNN", "f32", 64, 1, 512, 512, 1)]


def torch_layers():
    results = load("python_torch_cuda.json")
    keys = ("layer", "dtype", "steps", "batch", "inputs", "hidden", "layers")
    rows = {tuple(row[key] for key in keys): row for row in results["rows"] if row["what"] == "training"}
    lines = [f"Training calls on {results['machine']}, {results['date']}, f32 with TF32 allowed; us; paoding and torch.nn in turns "
             "([python_torch_cuda.json](../../benchmarks/results/python_torch_cuda.json)):", "",
             "| layer | torch.nn | **paoding** | torch.nn in a CUDA graph | **paoding** in a CUDA graph |", "|---|---|---|---|---|"]
    for key in TORCH_LAYERS:
        layer, dtype, steps, batch, inputs, hidden, layers = key
        wall, graph = rows[key]["wall_us"], rows[key]["graph_replay_us"]
        lines.append(f"| {layer} {dtype}, {steps} steps, batch {batch}, {inputs} to {hidden}{f', {layers} layers' if layers > 1 else ''} "
                     f"| {us(wall['torch.nn'])} | **{us(wall['paoding'])}** | {us(graph['torch.nn'])} | **{us(graph['paoding'])}** |")
    return lines


PARTS = {"torch_layers": torch_layers, "six": six_part, "losses_line": losses_line, "losses": losses, "missing": missing, "whole": whole, "training": training}


def filled(name):
    with open(os.path.join(ROOT, name)) as file:
        text = file.read()

    def fill(match):
        part = match.group(1)
        if part not in PARTS:
            raise SystemExit(f"{name}: there is no part '{part}' in benchmarks/performance.py")
        return f"<!-- measured {part} -->\n" + "\n".join(PARTS[part]()) + "\n<!-- end -->"
    return re.sub(r"<!-- measured (\w+) -->\n.*?<!-- end -->", fill, text, flags=re.S)


def main():
    checks = sys.argv[1:] == ["--check"]
    if sys.argv[1:] and not checks:
        raise SystemExit("usage: python3 benchmarks/performance.py [--check]")
    written = {}
    for page in MACHINES:
        written[f"docs/performance/{page}.md"] = page_of(page, written)
    for name in ("README.md", "docs/performance/README.md", "docs/reference/training.md", "docs/howto/replace_nn_lstm.md"):
        written[name] = filled(name)
    written["docs/pictures/six_models.svg"] = six_chart()
    written["docs/pictures/before_after.svg"] = before_after.picture()
    raise SystemExit(write_or_check(written, "python3 benchmarks/performance.py", checks))


if __name__ == "__main__":
    main()
