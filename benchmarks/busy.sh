#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Steps of a program that links libpaoding on a machine whose cores others want, by how its threads wait: as the library
# decides, asleep at once (OMP_WAIT_POLICY=passive), and as libgomp does by itself. Then the same on a quiet machine.
# Usage: benchmarks/busy.sh BUILD [ROUNDS] [CASE,..]     medians of the rounds in us, alternating
set -euo pipefail
build=$1 rounds=${2:-5} cases=${3:-g2p/f32,conv_net/training/b128_f32,layer_norm/backward_f32}
made=$(mktemp -d)
neighbours=()
end_neighbours() { ((${#neighbours[@]} == 0)) || kill "${neighbours[@]}" 2>/dev/null || true; neighbours=(); }
trap 'end_neighbours; rm -rf "$made"' EXIT

measure() {  # NAME SETTING..
  local name=$1
  shift
  env "$@" "$build/paoding" bench --device cpu --quick --no-check --filter "$cases" --json "$made/one" >/dev/null 2>&1
  python3 - "$made/one" "$name" >>"$made/all" <<'END'
import json, sys
for row in json.load(open(sys.argv[1]))['rows']:
    print(sys.argv[2], row['case'], row['us'])
END
}

for busy in yes no; do
  if [[ $busy == yes ]]; then
    for ((i = 0; i < $(nproc); ++i)); do
      (while :; do :; done) &
      neighbours+=($!)
    done
  fi
  : >"$made/all"
  for ((round = 0; round < rounds; ++round)); do
    measure as_it_is PAODING_EXPLAIN=0
    measure passive OMP_WAIT_POLICY=passive
    measure libgomp GOMP_SPINCOUNT=300000
  done
  end_neighbours
  echo "neighbours that want every core: $busy"
  python3 - "$made/all" <<'END'
import collections, statistics, sys
found = collections.defaultdict(lambda: collections.defaultdict(list))
for line in open(sys.argv[1]):
    how, case, us = line.split()
    found[case][how].append(float(us))
for case, by in found.items():
    at = {how: statistics.median(values) for how, values in by.items()}
    print(f"  {case:28}" + ''.join(f"  {how} {us:10.1f}" for how, us in at.items()) +
          f"  as it is / passive {at['as_it_is'] / at['passive']:.2f}")
END
done
