# SPDX-License-Identifier: Apache-2.0
"""Rows of benchmarks/results/*.json, as compare writes and performance.py reads them."""


def middle(numbers):
    """The median; of an even count the mean of the two in the middle."""
    ordered, half = sorted(numbers), len(numbers) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def known_rows(cases, rows, name, measured, threads):
    """`rows` with those of the case `name` (of these threads) replaced by `measured`, in the order of `cases`; rows of
    cases that are no more are dropped."""
    kept = [row for row in rows if not (row["case"] == name and row.get("threads") == threads)]
    order = {case["case"]: i for i, case in enumerate(cases)}
    kept = [row for row in kept + measured if row["case"] in order]
    return sorted(kept, key=lambda row: (order[row["case"]], row.get("threads") or 0))
