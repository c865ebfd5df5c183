#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_fuzz.sh BUILD SECONDS: runs every fuzz target, from the seeds in tests/fuzz_seeds/<target>/ where there are
# some. What it learns stays in BUILD/corpus/; an input that breaks something is left in BUILD/findings/.
set -euo pipefail
build=${1:?usage: tools/run_fuzz.sh BUILD SECONDS}
seconds=${2:?usage: tools/run_fuzz.sh BUILD SECONDS}
cd "$(dirname "$0")/.."
failed=()
count=0
for target in "$build"/fuzz/*_fuzz; do
  [[ -x $target ]] || continue
  name=$(basename "$target")
  corpus=$build/corpus/$name
  mkdir -p "$corpus" "$build/findings"
  seeds=()
  for folder in "tests/fuzz_seeds/$name" "tests/fuzz_seeds/${name%_fuzz}"; do
    [[ -d $folder ]] && seeds+=("$folder")
  done
  count=$((count + 1))
  echo "fuzz: $name for $seconds s, seeds: ${seeds[*]:-none}"
  log=$build/findings/$name.log
  if "$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
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
echo "fuzz: $count targets, no failure"
