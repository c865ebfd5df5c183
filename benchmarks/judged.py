# SPDX-License-Identifier: Apache-2.0
"""Rows of benchmarks/results/*.json as pages show them: what the others are called, which of them count, what a floor is
worth, and how a row ended. docs/performance/README.md says the same in words."""
import json
import os
import re

from generated import ROOT

RESULTS = os.path.join(ROOT, "benchmarks", "results")
DROPPED = ", results dropped"


def load(name):
    with open(os.path.join(RESULTS, name)) as file:
        return json.load(file)


def us(value):
    """Three digits that count, thousands apart."""
    if value is None:
        return "–"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"


def time_text(value):
    """With its unit: us below a millisecond, else ms."""
    return f"{us(value)} us" if value < 1000 else f"{us(value / 1000)} ms"


def name_of_peer(name, is_gpu):
    """As a reader knows it. "PyTorch" in a row is what eager calls of it take; ", graph" a CUDA graph of them; cuDNN's rows
    without ", graph" are graphs too, wherever its calls can be captured (benchmarks/peers/cudnn_rnn.cu)."""
    is_graph = name.endswith(", graph")
    text = name.removesuffix(", graph")
    text = text.replace("PyTorch compiled", "torch.compile").replace("PyTorch, compiled cell", "torch.compile of the cell")
    text = re.sub(r"PyTorch, fused Adam compiled", "torch.compile of fused Adam", text)
    if not is_gpu:
        return text
    if is_graph or name.startswith("cuDNN"):
        return text + ", CUDA graph"
    return text if text.startswith(("torch.compile", "JAX")) else text + ", eager"


def peers_of(row, is_gpu):
    """The others whose time counts: none whose results are dropped while ours are kept, and on a CPU PyTorch only where
    its best settings, an allocator that keeps its pages among them, were among those measured."""
    peers = {name: value for name, value in row.get("peers", {}).items() if not name.endswith(DROPPED)}
    if not is_gpu and not any(name.startswith("PyTorch") and "pages kept" in name for name in peers):
        peers = {name: value for name, value in peers.items() if not name.startswith("PyTorch")}
    return peers


def best_of(row, is_gpu, pattern=".*"):
    """(name, us) of the fastest other whose name begins so; (None, None) where there is none."""
    found = {name: value for name, value in peers_of(row, is_gpu).items() if re.match(pattern, name)}
    name = min(found, key=found.get, default=None)
    return name, found.get(name)


def least_dropped(row):
    """The fastest other whose results lie in the same memory in every call: not the same work."""
    return min((value for name, value in row.get("peers", {}).items() if name.endswith(DROPPED)), default=None)


def floor_of(row):
    """What no program can go below; None where ours or somebody doing the same work has: then it was no floor."""
    floor = row.get("floor_us")
    others = [value for name, value in row.get("peers", {}).items() if not name.endswith(DROPPED)]
    return None if floor is None or min([row["ours_us"], *others]) < floor else floor


def is_floor_beaten(row):
    return row.get("floor_us") is not None and floor_of(row) is None


def end_of(row, is_gpu):
    """ahead, even (within 2%) or behind the best other; "" where nobody else was measured."""
    _, best = best_of(row, is_gpu)
    if row.get("right") is False:
        return "**wrong**"
    if best is None:
        return ""
    share = row["ours_us"] / best
    return "ahead" if share < 0.98 else "even" if share <= 1.02 else "**behind**"


def measured(results):
    return [row for row in results["rows"] if row["ours_us"] is not None]


def find(results, case, cache, clock, threads=None):
    for row in measured(results):
        if (row["case"], row["cache"], row["clock"], row.get("threads")) == (case, cache, clock, threads):
            return row
    raise SystemExit(f"benchmarks/results: there is no row {case} ({cache}, {clock})")


def days(rows):
    found = sorted({row["when"][:10] for row in rows})
    return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"


def versions(rows):
    found = {}
    for row in rows:
        for name, version in (row.get("versions") or {}).items():
            if name != "paoding" and version:
                found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(some))}" for name, some in sorted(found.items()))
