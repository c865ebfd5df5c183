#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/findings/record_own.sh BUNDLE OUT [PROGRAMS]: times and records paoding's own programs (programs/own.py), faults
# beside their twins: those for a GPU, or with DEVICE=cpu those for a CPU. OUT gets own.tar.xz; unpacked into a folder,
# `python3 tests/findings/pack.py --add FOLDER` puts it beside the traces that are there. BUNDLE: of tools/bundle.sh, or a
# build folder, whose examples/ has 13_slow_reader.
# DEVICE (cuda); SECONDS_MOST (400): programs that did not end by then are left out.
set -u
bundle=$1 out=$2
programs=${3:-$(cd "$(dirname "$0")/programs" && pwd)}
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
work=$(mktemp -d)
export PAODING_CACHE_DIR=$work/kernels OMP_WAIT_POLICY=passive
examples=()
[[ ! -d $bundle/examples ]] || examples=(--examples "$bundle/examples")
PYTHONUNBUFFERED=1 timeout "${SECONDS_MOST:-400}" python3 "$programs/own.py" --paoding "$bundle/paoding" --out "$work/out" \
  --device "${DEVICE:-cuda}" "${examples[@]}" 2>&1
rm -rf "$work"/out/*.txt "$work"/out/data "$work"/out/run "$work"/out/timeline.json
tar -c -C "$work/out" . | xz -T0 -6 >"$out/own.tar.xz"
ls -l "$out"
rm -rf "$work"
