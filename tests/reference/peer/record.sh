#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/reference/peer/record.sh [BUILD [NAME..]]: writes tests/reference/peer/recorded/ anew, all or what is named of
# ops random nn transformer image_nets g2p: what PyTorch gives for every op, for 1,000 random graphs, for layers and
# models. (many.sh compares as many other graphs as wanted, and keeps nothing.)
# PYTHON names a Python with torch, numpy and safetensors (pip install torch==2.11.0 numpy safetensors).
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
build=${1:-build}
names=("${@:2}")
((${#names[@]} > 0)) || names=(ops random nn transformer image_nets g2p)
peer=tests/reference/peer
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Packed without name and time: the same numbers are the same bytes.
keep() { for file in "$@"; do gzip -9 -n -c "$work/$file" >"$peer/recorded/$file.gz"; done; }

write_graphs() {
  [[ ! -f $work/$1.txt ]] || return 0
  PAODING_PEER_WRITE=$work "$build/paoding_tests" --gtest_brief=1 --gtest_filter='Peer.Writes*ForPyTorch' >/dev/null
}

for name in "${names[@]}"; do
  case $name in
    ops | random)
      write_graphs "$name"
      "$python" "$peer/record.py" "$work" "$name"
      keep "$name.txt" "$name.feeds.safetensors" "$name.results.safetensors" ;;
    nn | transformer | image_nets)
      "$python" "$peer/record_$name.py" "$work/$name.safetensors"
      keep "$name.safetensors" ;;
    g2p) "$python" "$peer/record_g2p.py" "$peer/recorded/g2p_training.txt" ;;
    *) echo "record.sh: $name is none of ops random nn transformer image_nets g2p" >&2; exit 2 ;;
  esac
done
