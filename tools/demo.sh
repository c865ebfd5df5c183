#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/demo.sh BUILD: trains a small attention seq2seq to say how words are spelled out in phonemes, on this machine's
# CPU, in some minutes; shows how good it got and where the time went. `make demo` builds before.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}

tools/fetch_data.sh g2p
run=runs/demo
for ((i = 2; ; ++i)); do
  [[ -e $run ]] || break
  run=runs/demo-$i
done
"$build/paoding" train g2p --data data --out "$run" --hidden 128 --epochs 1 --learning-rate 4e-3 --profile 10
echo
echo "Try it:  echo paoding | $build/paoding predict g2p $run --beam 5 --best 3"
echo "More:    $build/paoding train --help; --epochs 3 takes three times as long, and errs in a fifth fewer phonemes"
