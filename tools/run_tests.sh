#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/run_tests.sh BUILD [JOBS [OPTION..]]: runs ctest, with these options too, with failures shown. A test that asks for
# the CUDA driver but is in no pattern of tests/gpu_tests.txt, so that it would never run on a GPU, is an error too. What is
# printed last is ctest's own count ("100% tests passed, 0 tests failed out of 41"), after its list of failures, so that
# the end says how it went. In front of it stands how many tests of paoding.torch were left out, where PyTorch is not there, and
# which share of the emulated kernels' cases ran: PAODING_CASE_SHARE=1/1 asks for all, without it a fifth does, which one follows
# from the commit.
set -euo pipefail
build=${1:?usage: tools/run_tests.sh BUILD [JOBS [OPTION..]]}
jobs=${2:-$(nproc)}
options=("${@:3}")
cd "$(dirname "$0")/.."
if [[ ! -x $build/paoding_tests ]]; then
  echo "run_tests: $build/paoding_tests is not there: build it first" >&2
  exit 1
fi
if [[ -z ${PAODING_CASE_SHARE:-} ]]; then
  commit=$(git rev-parse HEAD 2>/dev/null || echo 0)
  PAODING_CASE_SHARE=$((16#${commit:0:6} % 5 + 1))/5
fi
export PAODING_CASE_SHARE
export TSAN_OPTIONS="suppressions=$PWD/tools/tsan.supp:ignore_noninstrumented_modules=1:${TSAN_OPTIONS:-}"
PAODING_WANTS_GPU=$(mktemp) last_line=$(mktemp)
if [[ $PAODING_CASE_SHARE != 1/1 ]]; then
  echo "Of the cases of emulated kernels share $PAODING_CASE_SHARE ran; \`make test-all\` runs all" >"$last_line"
fi
needing_torch=$(grep -lE "^torch = pytest.importorskip|^from torch_or_skip" python/tests/test_*.py | xargs grep -h '^def test_' | wc -l)
export PAODING_WANTS_GPU
trap 'rm -f "$PAODING_WANTS_GPU" "$last_line"' EXIT

# check_gpu_tests: whether every test that asked for the driver is named in tests/gpu_tests.txt.
check_gpu_tests() {
  local patterns test pattern status=0
  mapfile -t patterns < <(sed -E '/^(#|$)/d; s/^-//; s/ .*//' tests/gpu_tests.txt)
  while read -r test; do
    for pattern in "${patterns[@]}"; do
      # shellcheck disable=SC2053  # a pattern, not a word
      [[ $test == $pattern ]] && continue 2
    done
    echo "run_tests: $test asks for a GPU, but no line of tests/gpu_tests.txt is about it"
    status=1
  done < <(sort -u "$PAODING_WANTS_GPU")
  return $status
}

# Line by line, since awk would wait for pages of them.
show() {
  local line
  while IFS= read -r line; do
    case $line in
      *' PythonTorch '*'***Skipped'*)
        echo "Left out: $needing_torch tests that need PyTorch; \`make test-torch\` installs it (4.8 GB) and runs them" >>"$last_line"
        printf '%s\n' "$line" ;;
      *' tests passed, '*' tests failed out of '*) printf '%s\n' "$line" >>"$last_line" ;;
      *) printf '%s\n' "$line" ;;
    esac
  done
}

status=0
ctest --test-dir "$build" --output-on-failure --no-tests=error --parallel "$jobs" "${options[@]}" | show || status=$?
check_gpu_tests || status=1
cat "$last_line"
exit $status
