#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_tests.sh BUILD [JOBS [OPTION..]]: runs ctest, with these options too, with failures shown. What is printed last
# is ctest's own count ("100% tests passed, 0 tests failed out of 41"), after its list of failures, so that the end says
# how it went.
set -euo pipefail
build=${1:?usage: tools/run_tests.sh BUILD [JOBS [OPTION..]]}
jobs=${2:-$(nproc)}
options=("${@:3}")
cd "$(dirname "$0")/.."
if [[ ! -x $build/paoding_tests ]]; then
  echo "run_tests: $build/paoding_tests is not there: build it first" >&2
  exit 1
fi
export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}"
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "${options[@]}" |
  awk '/tests passed, [0-9]+ tests failed out of/ { last = $0; next } { print; fflush() } END { if (last) print last }'
