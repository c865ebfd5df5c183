#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_aarch64.sh BUILD [JOBS]: the suites of a build for AArch64 by qemu, but for those below; first it says which
# are left out, and why. Which files are compiled at all the preset aarch64 says. OpSweep, its longest, runs in parts, since
# qemu gives back nothing of what it keeps for addresses that were used once. PARTS="FIRST LAST" runs these of them alone.
set -euo pipefail
build=${1:?usage: tools/run_aarch64.sh BUILD [JOBS]} jobs=${2:-$(nproc)}
cd "$(dirname "$0")/.."

cat <<'END'
aarch64: not compiled: tests of passes, plans, profiles, files, data, models and the command line, which no processor
  changes (what differs is tested by what programs compute); of GPUs, whose libraries are not there; of Python.
END
parts=24
left_out=(
  Golden/GoldenDump "starts the command line, a program of another processor"
  InstalledLibrary "builds a project that uses the library with this machine's compiler"
)
patterns=()
for ((i = 0; i < ${#left_out[@]}; i += 2)); do
  echo "aarch64: not run: ${left_out[i]}: ${left_out[i + 1]}"
  patterns+=("${left_out[i]}")
done
joined=$(IFS='|'; echo "${patterns[*]}|OpSweep")
[[ -n ${PARTS:-} ]] || tools/run_tests.sh "$build" "$jobs" -E "^($joined)$"

# One part of OpSweep, its last line shown.
IFS=';' read -ra emulator < <(sed -n 's/^set(emulator "\(.*\)")$/\1/p' "$build/paoding_tests_suites.cmake")
part() {
  local log
  log=$(GTEST_TOTAL_SHARDS=$parts GTEST_SHARD_INDEX=$1 OMP_WAIT_POLICY=passive "${emulator[@]}" "$build/paoding_tests" \
    --gtest_brief=1 --gtest_filter='OpSweep.*' 2>&1) && { echo "OpSweep, part $1: $(tail -n 1 <<<"$log")"; return; }
  echo "OpSweep, part $1: FAILED"$'\n'"$log"
  return 1
}
status=0 running=0
read -r first last <<<"${PARTS:-0 $((parts - 1))}"
for ((k = first; k <= last; ++k)); do
  ((running < jobs)) || { wait -n || status=1; running=$((running - 1)); }
  part "$k" & running=$((running + 1))
done
for ((; running > 0; --running)); do wait -n || status=1; done
exit $status
