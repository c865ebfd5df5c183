#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/diff_cpu_rows.sh OLD [BUILD]: whether this build is slower on the CPU than an older one, by a few short rows of
# `paoding bench` in five processes of each in turns: half a minute. OLD is a bundle (make bundle), a build folder or a
# program. Exit status 1 when a row is surely slower by more than FLOOR (5%); a machine too restless to tell passes, and
# the table says so. CASES chooses other rows.
set -euo pipefail
old=${1:?usage: tools/diff_cpu_rows.sh OLD [BUILD]}
build=${2:-$(dirname "$0")/../build}
cases=${CASES:-lerp_grad/3,layer_norm/forward_f32,lstm/forward/t64_b1_h128_f32}
if [[ -d $old ]]; then
  [[ -x $old/paoding || ! -f $old/unpack.sh ]] || sh "$old/unpack.sh"
  old=$old/paoding
fi
for program in "$old" "$build/paoding"; do
  [[ -x $program ]] || { echo "diff_cpu_rows: there is no program $program" >&2; exit 2; }
done
bench=(bench --device cpu --quick --filter "$cases")
OMP_WAIT_POLICY=passive "$build/paoding" diff --markdown --floor "${FLOOR:-5}%" -- "$old" "${bench[@]}" -- "$build/paoding" "${bench[@]}"
