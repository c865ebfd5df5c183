#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What PyTorch gives for every op and for random graphs.
#   tests/peer/record.sh [BUILD]                 writes tests/peer/recorded/ anew (1,000 random graphs)
#   tests/peer/record.sh --check COUNT [BUILD]   compares COUNT other random graphs, and keeps nothing
# PYTHON names a Python with torch, numpy and safetensors (pip install torch==2.11.0 numpy safetensors).
set -euo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3}

if [[ ${1:-} == --check ]]; then
  count=$2 build=${3:-build} first=1000000
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  for ((done = 0; done < count; done += 5000)); do
    part=$((count - done < 5000 ? count - done : 5000))
    PAODING_PEER_WRITE=$folder PAODING_RANDOM_SEED=$((first + done)) PAODING_RANDOM_GRAPHS=$part \
      "$build/paoding_tests" --gtest_brief=1 --gtest_filter=Peer.WritesTheGraphsForPyTorch >/dev/null
    "$python" tests/peer/record.py "$folder" random
    PAODING_PEER_CHECK=$folder "$build/paoding_tests" --gtest_brief=1 --gtest_filter=Peer.GraphsOfAFolderGiveWhatPyTorchGave
    echo "$((done + part)) of $count graphs compared"
  done
  exit
fi
build=${1:-build}
PAODING_PEER_WRITE=$PWD/tests/peer/recorded "$build/paoding_tests" --gtest_brief=1 \
  --gtest_filter=Peer.WritesTheGraphsForPyTorch >/dev/null
"$python" tests/peer/record.py tests/peer/recorded ops random
