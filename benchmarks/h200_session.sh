#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One measuring session on a machine with a GPU: tests there, ours and PyTorch's timings in one run, reports.
# Usage: benchmarks/h200_session.sh BUNDLE OUT [tests] [all] [lerp] [cpu] [g] [lstm] [report] [peer]     (lerp lstm report by default)
#   tests   the whole test binary, with the op sweep and the random graphs on the GPU
#   all     every combination of result, w and dtype of lerp_grad, checked against float64 on the GPU and the CPU
#   cpu     lerp_grad on the CPU, ours and PyTorch's
#   g       training steps and memory-bound kernels on the CPU with 2 and 16 threads, ours and PyTorch's
#   peer    PEER_GRAPHS (100000) random graphs against PyTorch on the CPU and a tenth of them on the GPU, in at most
#           PEER_SECONDS (540): the summary is printed, failures are in OUT/peer/
#   BUNDLE  folder made by tools/bundle.sh: paoding, paoding_tests and the libraries they need
#   OUT     folder for logs and JSON; a short table is printed last
set -u
bundle=$1
out=$2
shift 2
parts=${*:-lerp lstm report}
repo=$(cd "$(dirname "$0")/.." && pwd)
paoding=$bundle/paoding
mkdir -p "$out"
has() { [[ " $parts " == *" $1 "* ]]; }
note() { printf '\n== %s (%s)\n' "$1" "$(date -u +%H:%M:%S)"; }

{
  note doctor
  "$paoding" doctor
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv,noheader

  if has tests; then
    note tests
    (cd "$repo" && timeout 400 "$bundle/paoding_tests" --gtest_brief=1) > "$out/tests.log" 2>&1
    echo "exit $?"
    grep -v 'wrong allocation' "$out/tests.log" | tail -n 40
  fi

  if has all; then
    note "lerp_grad from one graph text on both devices"
    for device in cpu cuda; do
      "$paoding" run "$repo/examples/graphs/lerp_grad.txt" --device $device --random 7 | grep -v compiled
    done
    note "lerp_grad, every combination"
    for device in cuda cpu; do
      "$paoding" bench lerp_grad --device $device --all --quick > "$out/lerp_grad_all_$device.txt" 2>&1
      echo "$device: exit $?, $(grep -c '^[1-5] ' "$out/lerp_grad_all_$device.txt") rows, $(grep -c WRONG "$out/lerp_grad_all_$device.txt") wrong," \
        "$(awk '/^[1-5] / && $(NF-1) > most { most = $(NF-1) } END { print most }' "$out/lerp_grad_all_$device.txt") launches at most"
    done
  fi

  if has peer; then
    note "random graphs against PyTorch"
    BUILD=$bundle CUDA_PART=${PEER_CUDA_PART:-10} SECONDS_MOST=${PEER_SECONDS:-540} \
      "$repo/tests/peer/many.sh" "$out/peer" "${PEER_GRAPHS:-100000}"
  fi

  if has cpu; then
    note "lerp_grad on the CPU, ours"
    "$paoding" bench lerp_grad --device cpu --quick --result dx+dy --json "$out/lerp_grad_cpu_ours.json"
    "$paoding" bench lerp_grad --device cpu --quick --result dx+dy --case 5
    note "lerp_grad on the CPU, PyTorch"
    (cd "$repo/benchmarks/peers" && python3 lerp_grad.py "$out/lerp_grad_cpu_pytorch.json" cpu)
  fi

  if has g; then
    for threads in 2 16; do
      export OMP_NUM_THREADS=$threads
      note "CPU, $threads threads, ours"
      "$paoding" bench g2p --device cpu --json "$out/g2p_$threads.json"
      "$paoding" bench g2p --device cpu --dtype bf16 --json "$out/g2p_bf16_$threads.json"
      "$paoding" bench conv_net --device cpu --json "$out/conv_net_$threads.json"
      "$paoding" bench kernels --device cpu --json "$out/kernels_$threads.json"
      "$paoding" bench lerp_grad --device cpu --quick --result dx+dy --case 1
      note "CPU, $threads threads, PyTorch"
      (cd "$repo/benchmarks/peers" && THREADS=$threads python3 cpu.py "$out/cpu_pytorch_$threads.json")
      note "CPU, $threads threads, g2p once more"
      "$paoding" bench g2p --device cpu
    done
    unset OMP_NUM_THREADS
    "$paoding" bench seq2seq --device cpu --compile-only
  fi

  if has lerp; then
    note "lerp_grad, ours"
    "$paoding" bench lerp_grad --device cuda --json "$out/lerp_grad_ours.json"
    note "lerp_grad, PyTorch"
    (cd "$repo/benchmarks/peers" && python3 lerp_grad.py "$out/lerp_grad_pytorch.json")
  fi

  if has lstm; then
    feeds=/tmp/lstm_feeds.safetensors fetches=/tmp/lstm_fetches.safetensors
    for batch in 1 32; do
      note "LSTM T64 B$batch H512 against nn.LSTM in float64"
      python3 "$repo/benchmarks/peers/check_lstm.py" make $feeds 64 $batch 512
      sed "s/BATCH/$batch/g" "$repo/benchmarks/lstm_t64_h512.txt.in" > /tmp/lstm.txt
      for device in cpu cuda; do
        "$paoding" run /tmp/lstm.txt --device $device --feed $feeds --fetch $fetches > /dev/null
        python3 "$repo/benchmarks/peers/check_lstm.py" check $feeds $fetches
      done
    done
    note "LSTM, ours"
    "$paoding" bench lstm_steps --device cuda --json "$out/lstm_ours.json"
    "$paoding" bench lstm_steps --device cuda --tf32 --json "$out/lstm_tf32_ours.json"
    "$paoding" bench lstm_steps --device cuda --dtype bf16
    note "LSTM, PyTorch"
    (cd "$repo/benchmarks/peers" && python3 lstm_steps.py "$out/lstm_pytorch.json")
  fi

  if has report; then
    sed "s/BATCH/32/g" "$repo/benchmarks/lstm_t64_h512.txt.in" > /tmp/lstm.txt
    all=$("$paoding" dump /tmp/lstm.txt --passes 2>/dev/null | sed -n 's/^# after \([a-z_]*\).*/\1/p' | sort -u | paste -sd,)
    note "report, passes on"
    "$paoding" run /tmp/lstm.txt --device cuda --random 1 --repeat 20 --profile | tee "$out/report_on.txt"
    note "report, passes off ($all)"
    "$paoding" run /tmp/lstm.txt --device cuda --random 1 --repeat 20 --no-pass "$all" --profile | tee "$out/report_off.txt"
  fi
} 2>&1 | tee "$out/session.log"
