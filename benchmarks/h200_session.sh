#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One measuring session on a machine with a GPU. Parts may be left out; what was measured is in OUT/*.json, and a later
# session goes on where this one stopped (put the JSON back into benchmarks/results/ first).
# Usage: benchmarks/h200_session.sh BUNDLE OUT PART..
#   gpu       benchmarks/compare on the GPU: ours, PyTorch, JAX, cuDNN, ONNX Runtime; FILTER chooses cases
#   cpu       the same on the CPU with 2 threads, and with all cores
#   tests     every test that needs a GPU (tools/gpu_tests.sh)
#   lerp_all  every combination of result, w and dtype of lerp_grad, checked against float64 on both devices
#   peer      PEER_GRAPHS (100000) random graphs against PyTorch on the CPU and a tenth of them on the GPU
#   report    the Profiling Reports of an LSTM step with passes on and off
#   BUNDLE    folder made by tools/bundle.sh: paoding, paoding_tests and the libraries they need
#   OUT       folder for logs and JSON; a short table is printed last
# SECONDS_MOST (540) is what the session may take: no case is begun after it. QUICK=--quick takes fewer samples.
set -u
bundle=$1 out=$2
shift 2
parts=${*:-gpu}
repo=$(cd "$(dirname "$0")/.." && pwd)
paoding=$bundle/paoding
begin=$SECONDS most=${SECONDS_MOST:-540}
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
has() { [[ " $parts " == *" $1 "* ]]; }
note() { printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"; }
left() { echo $((most - (SECONDS - begin))); }

# The rows of the workloads that are about the CPU.
cpu_cases=g2p,conv_net/training/b128_f32,lstm/forward/t64_b1_h128_f32,lstm/forward/t64_b1_h512_f32
cpu_cases+=,lstm/training/t50_b32_h512_f32,lerp/1,lerp_grad/1,layer_norm/forward_f32,layer_norm/backward_f32,adam/10m_f32

# compare RESULTS DEVICE ARGUMENTS..: goes on with benchmarks/results/RESULTS.json, leaves it in OUT.
compare() {
  local results=$1 device=$2
  shift 2
  [[ -f $out/$results.json || ! -f $repo/benchmarks/results/$results.json ]] ||
    cp "$repo/benchmarks/results/$results.json" "$out/$results.json"
  "$repo/benchmarks/compare" --device "$device" --json "$out/$results.json" --paoding "$paoding" --logs "/tmp/compare_$results" \
    --seconds "$(left)" ${QUICK:-} "$@"
  tail -qn 20 "/tmp/compare_$results"/*.log >"$out/$results.log" 2>/dev/null
}

{
  note machine
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader

  if has tests; then
    note tests
    timeout 480 "$repo/tools/gpu_tests.sh" "$bundle" "$out"
    echo "exit $?"
  fi

  if has lerp_all; then
    note "lerp_grad from one graph text on both devices"
    for device in cpu cuda; do
      "$paoding" run "$repo/examples/graphs/lerp_grad.txt" --device $device --random 7 | grep -v compiled
    done
    note "lerp_grad, every combination"
    for device in cuda cpu; do
      "$paoding" bench lerp_grad --device $device --all --quick >"$out/lerp_grad_all_$device.txt" 2>&1
      echo "$device: exit $?, $(grep -c '^lerp' "$out/lerp_grad_all_$device.txt") rows, $(grep -c WRONG "$out/lerp_grad_all_$device.txt") wrong"
    done
  fi

  if has peer; then
    note "random graphs against PyTorch"
    BUILD=$bundle CUDA_PART=${PEER_CUDA_PART:-10} SECONDS_MOST=${PEER_SECONDS:-540} \
      "$repo/tests/reference/peer/many.sh" "$out/peer" "${PEER_GRAPHS:-100000}"
  fi

  if has report; then
    sed "s/BATCH/32/g" "$repo/benchmarks/lstm_t64_h512.txt.in" >/tmp/lstm.txt
    all=$("$paoding" dump /tmp/lstm.txt --passes 2>/dev/null | sed -n 's/^# after \([a-z_]*\).*/\1/p' | grep -vx -e expand_composed_ops -e recognize_recurrences | sort -u | paste -sd,)
    note "report, passes on"
    "$paoding" run /tmp/lstm.txt --device cuda --random 1 --repeat 20 --profile | tee "$out/report_on.txt"
    note "report, passes off ($all)"
    "$paoding" run /tmp/lstm.txt --device cuda --random 1 --repeat 20 --no-pass "$all" --profile | tee "$out/report_off.txt"
  fi

  if has cpu; then
    for threads in 2 $(nproc); do
      note "CPU, $threads threads"
      compare cpu cpu --threads "$threads" --peers torch,jax,onednn,onnx --filter "${FILTER:-$cpu_cases}"
    done
  fi

  if has gpu; then
    note GPU
    compare h200 cuda --filter "${FILTER:-}"
  fi
} 2>&1 | tee "$out/session.log"
