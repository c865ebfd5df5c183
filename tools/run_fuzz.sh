#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_fuzz.sh BUILD SECONDS [TARGET...]: runs every fuzz target, or those named, from the seeds in
# tests/fuzz_seeds/<target>/, or <first word of target>/, and the words in a .dict beside them, where there are some.
# What it learns stays in BUILD/corpus/; an input that breaks something is left in BUILD/findings/.
set -euo pipefail
build=${1:?usage: tools/run_fuzz.sh BUILD SECONDS [TARGET...]}
seconds=${2:?usage: tools/run_fuzz.sh BUILD SECONDS [TARGET...]}
shift 2
cd "$(dirname "$0")/.."
failed=()
count=0
for target in "$build"/fuzz/*_fuzz; do
  [[ -x $target ]] || continue
  name=$(basename "$target")
  stem=${name%_fuzz}
  (($# == 0)) || [[ " $* " == *" $name "* || " $* " == *" $stem "* ]] || continue
  corpus=$build/corpus/$name
  mkdir -p "$corpus" "$build/findings"
  seeds=()
  words=()
  for seeded in "$stem" "${stem%%_*}"; do
    [[ -d tests/fuzz_seeds/$seeded ]] || continue
    seeds=("tests/fuzz_seeds/$seeded")
    [[ ! -f tests/fuzz_seeds/$seeded.dict ]] || words=("-dict=tests/fuzz_seeds/$seeded.dict")
    break
  done
  count=$((count + 1))
  echo "fuzz: $name for $seconds s, seeds: ${seeds[*]:-none}"
  log=$build/findings/$name.log
  if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 "${words[@]}" \
      -artifact_prefix="$build/findings/$name-" "$corpus" "${seeds[@]}" >"$log" 2>&1; then
    grep -E 'number_of_executed_units|new_units_added' "$log" | sed 's/^/  /'
  else
    tail -n 40 "$log"
    failed+=("$name")
  fi
done
if ((${#failed[@]})); then
  echo "fuzz: ${#failed[@]} of $count targets failed: ${failed[*]}"
  exit 1
fi
if ((count == 0)); then
  echo "fuzz: there is no such target in $build/fuzz" >&2
  exit 1
fi
echo "fuzz: $count targets, no failure"
