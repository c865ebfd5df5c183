#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_aarch64.sh BUILD [JOBS]: the suites of a build for AArch64 by qemu, but for those below; first it says which
# are left out, and why. Which files are compiled at all the preset aarch64 says.
set -euo pipefail
build=${1:?usage: tools/run_aarch64.sh BUILD [JOBS]} jobs=${2:-$(nproc)}
cd "$(dirname "$0")/.."

cat <<'END'
aarch64: not compiled: tests of passes, plans, profiles, files, data, models and the command line, which no processor
  changes (what differs is tested by what programs compute); of GPUs, whose libraries are not there; of Python.
END
left_out=(
  Golden/GoldenDump "starts the command line, a program of another processor"
)
patterns=()
for ((i = 0; i < ${#left_out[@]}; i += 2)); do
  echo "aarch64: not run: ${left_out[i]}: ${left_out[i + 1]}"
  patterns+=("${left_out[i]}")
done
joined=$(IFS='|'; echo "${patterns[*]}")
exec tools/run_tests.sh "$build" "$jobs" ${joined:+-E "^($joined)$"}
