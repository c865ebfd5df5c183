#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/gpu_tests.sh BUNDLE [OUT [JOBS [EVERY]]]: runs every test that needs a GPU (tests/gpu_tests.txt), and no others, on
# this machine, JOBS at a time. BUNDLE is what tools/bundle.sh made. OUT/gpu_suite.json says which commit ran where, what
# failed and what took longest; it belongs in benchmarks/results/. The last line is ctest's own count.
# EVERY: of the op sweep, which is two thirds of the time, only every so many-th test. A test that finds no GPU fails the
# run. Kernels are compiled anew unless PAODING_CACHE_DIR is set.
set -euo pipefail
bundle=${1:?usage: tools/gpu_tests.sh BUNDLE [OUT [JOBS [EVERY]]]}
out=${2:-build/gpu_tests} jobs=${3:-$(nproc)} every=${4:-1}
repo=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
bundle=$(cd "$bundle" && pwd) out=$(cd "$out" && pwd)
cd "$repo"
gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | head -n 1)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PAODING_CACHE_DIR=${PAODING_CACHE_DIR:-$work/kernels}

filter=$(python3 tools/gpu_tests.py filter)
"$bundle/paoding_tests" --gtest_list_tests --gtest_filter="$filter" | grep -v '^Running main' >"$work/tests"
python3 tools/gpu_tests.py entries "$bundle/paoding_tests" "$every" <"$work/tests" >"$work/CTestTestfile.cmake"

begin=$SECONDS
status=0
ctest --test-dir "$work" --verbose --no-tests=error --parallel "$jobs" >"$out/gpu_tests.log" 2>&1 || status=$?
seconds=$((SECONDS - begin))
python3 tools/gpu_tests.py result "$out" "$bundle" "$gpu" "$seconds" "$jobs" "$every"
grep -E '\[  FAILED|\(Failed\)|\(Timeout\)|: Failure' "$out/gpu_tests.log" || true
grep -E 'tests passed.* out of' "$out/gpu_tests.log" || true
exit $status
