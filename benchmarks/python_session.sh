#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# benchmarks/python_session.sh FOLDER: what Python does on a GPU, tested and timed in eight minutes, by the package in
# FOLDER/python with the libraries in FOLDER/lib; results in $OUT. FOLDER/paoding_tests, where it is there, tests tensors of
# the GPU in C++ too.
cd "$(dirname "$0")/.."
folder=$(realpath "${1:?usage: benchmarks/python_session.sh FOLDER}")
: "${OUT:=/tmp}"
for file in "$folder"/lib/*.gz "$folder"/paoding_tests.gz; do [ ! -e "$file" ] || gzip -df "$file"; done
export PYTHONPATH=$folder/python LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} PYTHONDONTWRITEBYTECODE=1
if [ -e "$folder/paoding_tests" ]; then
  chmod +x "$folder/paoding_tests"
  timeout 60 "$folder/paoding_tests" --gtest_filter='DeviceTensors*:EnqueuedRuns*' 2>&1 | tail -30 | tee "$OUT/device_tensors.txt"
fi
timeout 40 python3 -m pytest -q -rs --maxfail=20 --tb=short -p no:cacheprovider python/tests/test_device_arrays.py python/tests/test_device_arrays_torch.py 2>&1 | tee "$OUT/pytest_device_arrays.txt" | tail -60
timeout 120 python3 -m pytest -q --maxfail=8 --tb=short -p no:cacheprovider python/tests/test_torch_cuda*.py python/tests/test_torch_compile_cuda.py 2>&1 | tee "$OUT/pytest_torch_cuda.txt" | tail -20
timeout 40 python3 benchmarks/python_torch_calls.py "$folder/python" --device cuda 2>&1 | tee "$OUT/python_torch_calls.txt"
timeout 30 python3 benchmarks/python_gpu.py "$folder/python" 2>&1 | tee "$OUT/python_gpu.txt"
timeout 130 python3 benchmarks/python_torch_cuda.py "$folder/python" --seconds "${SECONDS_OF_BENCH:-90}" 2>&1 | tee "$OUT/python_torch_cuda.txt"
timeout 200 python3 benchmarks/torch_compile_models.py "$folder/python" --seconds 100 --out "$OUT/torch_compile_models.json" 2>&1 | tee "$OUT/torch_compile_models.txt"
