#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/findings/record_own.sh BUNDLE OUT [PROGRAMS]: times and records paoding's own programs (programs/own.py) on a GPU,
# faults beside their twins. OUT gets own.tar.xz, to be unpacked beside what record.sh recorded. BUNDLE: of tools/bundle.sh.
# SECONDS_MOST (200): programs that did not end by then are left out.
set -u
bundle=$1 out=$2
programs=${3:-$(cd "$(dirname "$0")/programs" && pwd)}
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
work=$(mktemp -d)
export PAODING_CACHE_DIR=$work/kernels OMP_WAIT_POLICY=passive
PYTHONUNBUFFERED=1 timeout "${SECONDS_MOST:-200}" python3 "$programs/own.py" --paoding "$bundle/paoding" --out "$work/out" 2>&1
rm -f "$work"/out/*.txt
tar -c -C "$work/out" . | xz -T0 -6 >"$out/own.tar.xz"
ls -l "$out"
rm -rf "$work"
