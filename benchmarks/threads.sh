#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Cases by the number of threads, taking turns: how rows scale, and that small programs do not get slower with more.
# Usage: benchmarks/threads.sh BUILD [ROUNDS] [THREADS,..] [CASE,..]     medians of the rounds in us, the smallest below
set -euo pipefail
build=$1 rounds=${2:-5} threads=${3:-1,$(nproc)}
cases=${4:-control/cases,control/cases_computed,lstm/streaming/t1_b1_h512_f32,lstm/forward/t64_b1_h128_f32,lerp_grad/1,sum/rows_6400x512_f32}
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
for ((round = 0; round < rounds; ++round)); do
  for count in ${threads//,/ }; do
    OMP_NUM_THREADS=$count "$build/paoding" bench --device cpu --quick --no-check --filter "$cases" --json "$made/one" \
      >/dev/null 2>"$made/errors" || { cat "$made/errors" >&2; exit 1; }
    python3 - "$made/one" "$count" >>"$made/all" <<'END'
import json, sys
for row in json.load(open(sys.argv[1]))['rows']:
    if row['us'] is not None:
        print(f"{row['case']}|{row.get('cache') or ''}", sys.argv[2], row['us'], row['us_min'])
END
  done
done
python3 - "$made/all" <<'END'
import collections, statistics, sys
found = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    case, threads, us, least = line.split()
    found[case][int(threads)].append((float(us), float(least)))
for case, by in found.items():
    name, cache = case.split('|')
    at = {n: statistics.median(us for us, _ in rows) for n, rows in by.items()}
    least = {n: min(us for _, us in rows) for n, rows in by.items()}
    print(f'{name:32} {cache:5}' + ''.join(f'  {n:2} {at[n]:10.1f} [{least[n]:9.1f}]' for n in sorted(at)) +
          f'  most / fewest {at[max(at)] / at[min(at)]:.2f}')
END
