#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_schedules.sh BUILD JOBS SCHEDULES [FIRST]: how CTAs exchange what they make, emulated in so many orders, JOBS
# processes beside each other; each takes 50 seeds of one test, from FIRST (1) on. A line for each that ends; status 1
# where one fails. PAODING_LAYERS: only layers whose text has such words.
set -uo pipefail
build=$1 jobs=$2 schedules=$3 first=${4:-1} at_once=50
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PAODING_KERNELS=$folder/kernels  # compiled once, for all seeds of a test
mkdir "$PAODING_KERNELS"

mapfile -t tests < <("$build/paoding_tests" --gtest_list_tests --gtest_filter='*EmulationUnderEverySchedule:*EmulationByCtaGroupsOfEveryKind' |
  awk '/^[^ ].*\.$/ { suite = $1 } /^  / { print suite $1 }')

run() { # TEST SEED COUNT
  local log=$folder/$1.$2
  PAODING_FIRST_SCHEDULE=$2 PAODING_SCHEDULES=$3 "$build/paoding_tests" --gtest_filter="$1" >"$log" 2>&1
  local status=$?
  echo "$1: seeds $2 to $(($2 + $3 - 1)): $([[ $status -eq 0 ]] && echo right || echo "WRONG ($status)"), $(grep -oE '[0-9]+ ms total' "$log" | head -1)"
  [[ $status -eq 0 ]] || { grep -v '^\[' "$log" | head -40; return 1; }
}
export -f run
export build folder

for test in "${tests[@]}"; do
  for ((seed = first; seed < first + schedules; seed += at_once)); do
    left=$((first + schedules - seed))
    echo "$test $seed $((left < at_once ? left : at_once))"
  done
done | xargs -P "$jobs" -L 1 bash -c 'run "$@"' run || exit 1
