#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Recurrent layers for many runs on a GPU that another process uses at the same time: no hang, the same bits in all.
# Usage: benchmarks/soak.sh BUNDLE [RUNS] [SECONDS]
#   BUNDLE   folder with paoding_tests
#   RUNS     of the layers together (100000)
#   SECONDS  most that they may take, a hang by then (300)
set -u
tests=$1/paoding_tests runs=${2:-100000} most=${3:-300}
# The other process: kernels that take most of the chip, begun at any time, until it is ended.
OMP_NUM_THREADS=2 "$tests" --gtest_filter='Layers/RecurrentLayer.*' --gtest_repeat=-1 >/dev/null 2>&1 &
other=$!
trap 'kill "$other" 2>/dev/null' EXIT
PAODING_SOAK_RUNS=$runs timeout "$most" "$tests" --gtest_filter=RecurrenceProofs.ManyRunsHaveTheSameBits
status=$?
kill -0 "$other" 2>/dev/null || { echo "the other process ended before"; status=1; }
[[ $status != 124 ]] || echo "not done after $most s: it hangs, or the machine is slow"
exit "$status"
