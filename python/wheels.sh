#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python/wheels.sh OUT [PYTHON..]: a wheel for each Python, built in an environment of its own and installed in another, in
# which the tests run. The wheel of Python 3.12 is for all later ones (the stable ABI). The libraries of `make deps` are
# found where the system has them: they are not in the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: python/wheels.sh OUT [PYTHON..]}")
shift
(($#)) || set -- python3
for python in "$@"; do
  folder=$(mktemp -d)
  "$python" -m venv "$folder/build"
  "$folder/build/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$folder" -C cmake.define.PAODING_WERROR=ON .
  wheel=$(ls "$folder"/paoding-*.whl)
  "$python" -m venv "$folder/use"
  "$folder/use/bin/pip" install -q --disable-pip-version-check "$wheel" pytest
  "$folder/use/bin/pip" list --disable-pip-version-check --format freeze | tr '\n' ' '
  echo
  "$folder/use/bin/python" python/tests/run.py -
  mkdir -p "$out"
  mv "$wheel" "$out"
  ls -lh "$out/$(basename "$wheel")"
  rm -r "$folder"
done
