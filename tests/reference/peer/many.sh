#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/reference/peer/many.sh OUT COUNT: compares COUNT random graphs and their gradients with PyTorch, in several processes, on
# the CPU and, where there is a GPU, there too. Needs paoding_tests and a Python with torch, numpy and safetensors; no
# build tree. A short summary comes last; where time ran out it says with which FIRST to go on. In OUT: summary.txt,
# failures.txt (seed, difference, graph text), lacking.txt (graphs that PyTorch cannot run, and why), and the log of a
# process that died. PyTorch computes on the CPU: it shares nothing with kernels for a GPU, and small graphs are quicker there.
#   BUILD      folder of paoding_tests: a build, or what tools/bundle.sh made          (build)
#   PYTHON     a Python with torch, numpy and safetensors                              (python3)
#   PROCESSES  at a time                                                               (number of cores)
#   FIRST      first seed; 0 to 999 are those in tests/reference/peer/recorded/                  (1000000)
#   CHUNK      graphs that a process writes, runs in PyTorch and compares at a time    (1000)
#   SECONDS_MOST  no chunk begins that would not end by then, judging by those before  (3600)
#   DEVICES    cpu, cuda or both; without it the CPU and, where there is one, a GPU
#   CUDA_PART  graphs of 100 that the GPU is asked about too                           (100)
#   PAODING_CACHE_DIR  compiled kernels, for all processes; kept                       (a folder for this call)
set -uo pipefail
out=${1:?usage: tests/reference/peer/many.sh OUT COUNT} count=${2:?usage: tests/reference/peer/many.sh OUT COUNT}
started=$SECONDS
repo=$(cd "$(dirname "$0")/../../.." && pwd)
build=$(cd "${BUILD:-$repo/build}" && pwd) python=${PYTHON:-python3} processes=${PROCESSES:-$(nproc)} first=${FIRST:-1000000}
chunk=${CHUNK:-1000} most=${SECONDS_MOST:-3600} cuda_part=${CUDA_PART:-100}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cd "$repo"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'touch "$work/stop"' INT TERM
devices=cpu
if ((cuda_part > 0)) && "$build/paoding" doctor 2>/dev/null | grep -q 'cuda:0'; then devices="cpu cuda"; fi
devices=${DEVICES:-$devices}
export PAODING_CACHE_DIR=${PAODING_CACHE_DIR:-$work/kernels}
kernels() { find "$PAODING_CACHE_DIR" -name '*.cubin' 2>/dev/null | wc -l; }
kernels_before=$(kernels)
: >"$out/failures.txt"
: >"$out/lacking.txt"

# One core each: the graphs are small, and so many processes share the machine.
export OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive MKL_NUM_THREADS=1

left() { echo $((most - (SECONDS - started))); }

# $1 folder, $2 first seed, $3 graphs. Writes a line per device to the folder's counts: device same missing refused failed
# died. Fails when the time was up.
compare() {
  local folder=$1 log=$1/log device status part
  if ! PAODING_PEER_WRITE=$folder PAODING_RANDOM_SEED=$2 PAODING_RANDOM_GRAPHS=$3 timeout "$(left)" "$build/paoding_tests" \
      --gtest_brief=1 --gtest_filter=Peer.WritesRandomGraphsForPyTorch >"$log" 2>&1; then
    (($(left) > 0)) || return 1
    echo "${devices%% *} 0 0 0 0 1" >"$folder/counts"
    cp "$log" "$out/died_writing_$2.log"
    return 0
  fi
  if ! timeout "$(left)" "$python" tests/reference/peer/record.py "$folder" random >"$log" 2>&1; then
    (($(left) > 0)) || return 1
    echo "${devices%% *} 0 0 0 0 1" >"$folder/counts"
    cp "$log" "$out/died_in_pytorch_$2.log"
    return 0
  fi
  flock "$work/lock" grep 'nothing recorded' "$log" >>"$out/lacking.txt"
  for device in $devices; do
    (($(left) > 0)) || return 1
    part=$3
    [[ $device == cuda ]] && part=$((($3 * cuda_part + 99) / 100))
    PAODING_PEER_CHECK=$folder PAODING_PEER_DEVICE=$device PAODING_PEER_MOST=$part timeout "$(left)" \
      "$build/paoding_tests" --gtest_brief=1 --gtest_filter=Peer.GraphsOfAFolderGiveWhatPyTorchGave >"$log" 2>&1
    status=$?
    if [[ -s $folder/failed.$device.txt ]]; then
      flock "$work/lock" cat "$folder/failed.$device.txt" >>"$out/failures.txt"
    fi
    if [[ -s $folder/compared.$device.txt ]]; then
      echo "$device $(cat "$folder/compared.$device.txt") 0" >>"$folder/counts"
    elif ((status == 124)); then
      return 1
    else  # it died, and the graph that it was at is kept
      echo "$device 0 0 0 0 1" >>"$folder/counts"
      { cat "$log"; awk -v at="### $(cat "$folder/at.$device.txt")" '/^### /{ on = $0 == at } on' "$folder/random.txt"; } \
        >"$out/died_on_${device}_$2.log"
    fi
  done
}

# Prints the number of a chunk, one more at each call: they begin in their order.
next_chunk() { flock "$work/next" bash -c 'read -r k <"$1"; echo "$k"; echo $((k + 1)) >"$1"' _ "$work/next"; }

process() {
  local k folder took=0 before
  while [[ ! -e $work/stop ]] && (($(left) > took)); do
    k=$(next_chunk)
    ((k * chunk < count)) || return
    folder=$work/$k before=$SECONDS
    mkdir "$folder"
    if compare "$folder" $((first + k * chunk)) $((count - k * chunk < chunk ? count - k * chunk : chunk)); then
      touch "$work/done.$k"
    fi
    took=$((SECONDS - before))
    if [[ -e $folder/counts ]]; then flock "$work/lock" cat "$folder/counts" >>"$work/counts"; fi
    rm -rf "$folder"
  done
}

# The chunk that a later call begins with: what it does twice is little.
first_not_done() {
  local k=0
  while [[ -e $work/done.$k ]]; do k=$((k + 1)); done
  echo "$k"
}

touch "$work/lock" "$work/counts"
echo 0 >"$work/next"
for ((i = 0; i < processes; ++i)); do process & done
while [[ -n $(jobs -rp) ]]; do wait -n; done

{
  echo "peer: seeds from $first, $count graphs asked for, $processes processes, $((SECONDS - started)) s of $most"
  for device in $devices; do
    awk -v device="$device" '$1 == device { same += $2; missing += $3; refused += $4; failed += $5; died += $6 }
      END { printf "peer: %s: %d as PyTorch gives them, %d differ, %d that PyTorch lacks, %d without a kernel on %s, %d chunks died\n",
                   device, same, failed, missing, refused, device, died
            exit failed + died > 0 ? 1 : same == 0 ? 2 : 0 }' "$work/counts"
    case $? in
      1) problem="FAILURES: see $out/failures.txt and $out/died_*.log" ;;
      2) problem=${problem:-"NOTHING COMPARED on $device: no chunk ended in time, or nothing has a kernel"} ;;
    esac
  done
  if [[ $devices == *cuda* ]]; then echo "peer: $(($(kernels) - kernels_before)) kernels compiled"; fi
  k=$(first_not_done)
  if ((k * chunk < count)); then
    echo "peer: not all: FIRST=$((first + k * chunk)) tests/reference/peer/many.sh OUT $((count - k * chunk)) goes on"
  fi
  echo "peer: ${problem:-no failure}"
} >"$out/summary.txt"
cat "$out/summary.txt"
[[ -z ${problem:-} ]]
