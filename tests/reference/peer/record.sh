#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/reference/peer/record.sh [BUILD]: writes tests/reference/peer/recorded/ anew: what PyTorch gives for every op and for 1,000 random
# graphs. tests/reference/peer/many.sh compares as many others as wanted, and keeps nothing.
# PYTHON names a Python with torch, numpy and safetensors (pip install torch==2.11.0 numpy safetensors).
set -euo pipefail
cd "$(dirname "$0")/../../.."
python=${PYTHON:-python3}
build=${1:-build}
PAODING_PEER_WRITE=$PWD/tests/reference/peer/recorded "$build/paoding_tests" --gtest_brief=1 \
  --gtest_filter='Peer.Writes*ForPyTorch' >/dev/null
"$python" tests/reference/peer/record.py tests/reference/peer/recorded ops random
