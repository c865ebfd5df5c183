#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What is to be proved on a GPU, in one or two calls: a table comes last, the rest is in OUT.
# Usage: benchmarks/proof_session.sh BUNDLE OUT PART..
#   compile   the training step of translate compiled without a kernel in the cache, again with all of them, and bound to
#             another length (paoding bench)
#   shapes    its 106 shapes bound: time of each, memory of all
#   host      what a run costs the host beside the launch of its graph
#   same      captured steps and steps one by one leave the same bits, for every model; find_nonfinite
#   stops     kill -9 and signals while it trains, resumed: the same bytes as if undisturbed (PAODING_KILLS, 25)
#   faults    too old a driver, no GPU, a wrong library, too little memory, wild stores, kernels that wait in vain
#   peer      PEER_GRAPHS (10000) random graphs against PyTorch, from seed FIRST (1000000)
#   BUNDLE    folder made by tools/bundle.sh;  OUT  folder for table.txt, log.txt and peer/
# SECONDS_MOST (570) is what the session may take; peer has what the others leave of it, and says where to go on.
# Kernels are kept in CACHE (/tmp/paoding_proof_kernels) between calls on one machine.
set -u
bundle=$1 out=$2
shift 2
parts=${*:-compile shapes host same stops faults peer}
repo=$(cd "$(dirname "$0")/.." && pwd)
begin=$SECONDS most=${SECONDS_MOST:-570}
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
bundle=$(cd "$bundle" && pwd) out=$(cd "$out" && pwd)
cache=${CACHE:-/tmp/paoding_proof_kernels}
cd "$repo" || exit 1
lock=$(mktemp)
: >"$out/table.txt" >"$out/log.txt"
has() { [[ " $parts " == *" $1 "* ]]; }
left() { echo $((most - (SECONDS - begin))); }
row() { printf '%-22s %s\n' "$1" "$2" >>"$out/table.txt"; }

# tests NAME FILTER: the tests in a process of their own. What they print about numbers, and what fails, goes into the table.
tests() {
  local name=$1 filter=$2 log status start=$SECONDS
  log=$(mktemp)
  PAODING_CACHE_DIR=$cache timeout "$(($(left) > 1 ? $(left) : 1))" "$bundle/paoding_tests" --gtest_filter="$filter" >"$log" 2>&1
  status=$?
  {
    flock 9
    row "$name" "exit $status, $(grep -c '^\[       OK' "$log") passed, $(grep -c '^\[  SKIPPED .*)$' "$log") skipped, \
$(grep -c '^\[  FAILED .*)$' "$log") failed, $((SECONDS - start)) s"
    grep -E "$numbers|^\[  FAILED .*)$" "$log" | sed 's/^/    /' >>"$out/table.txt"
    echo "== $name"
    cat "$log"
  } 9>"$lock"
  rm "$log"
}
numbers='^(cold:|warm:|the largest alone|the first time|again, with|1\.5 times|graph launch|[0-9]+ launches|[0-9]+ stopped|[0-9]+ killed|stopped after)'

{
  row "$("$bundle/paoding" --version)" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)"
  if has compile; then
    kept=$cache cache=$(mktemp -d)
    PAODING_ALONE=1 tests compile_cold 'TranslationOnGpu.Compiles*'
    PAODING_ALONE=1 tests compile_warm 'TranslationOnGpu.Compiles*'
    PAODING_CACHE_DIR=$cache "$bundle/paoding" bench --device cuda --quick --filter bind/seq2seq_tf32,compile/seq2seq_tf32 |
      tee -a "$out/log.txt" | grep seq2seq_tf32 | sed 's/^/    /' >>"$out/table.txt"
    cache=$kept
  fi
  if has shapes; then PAODING_ALONE=1 tests shapes 'TranslationOnGpu.Binds*'; fi
  if has host; then tests host 'ProgramOnGpu.RunCosts*'; fi
  if has faults; then
    tests faults 'GpuFaults.*:FaultingKernelOnGpu*:WaitingKernels.*OnAGpu:FailingRun.*:EnqueuedRuns.*:CalledOff.*:PrintingRuns.*:Readback.*'
  fi
  if has same || has stops; then  # beside each other: they hardly keep the GPU busy
    pids=()
    if has same; then
      tests same 'Models/CapturedStepsOnGpu*:OnGpu/FindNonfinite.*' &
      pids+=($!)
    fi
    if has stops; then
      PAODING_KILLS=${PAODING_KILLS:-25} tests stops 'Gpu/TrainStopsOn.*:Interruption.*OnAGpu*' &
      pids+=($!)
    fi
    wait "${pids[@]}"
  fi
  if has peer; then
    BUILD=$bundle DEVICES=cuda CHUNK=${CHUNK:-100} FIRST=${FIRST:-1000000} SECONDS_MOST=$(left) PAODING_CACHE_DIR=$cache \
      tests/reference/peer/many.sh "$out/peer" "${PEER_GRAPHS:-10000}"
    row peer "exit $?"
    sed 's/^/    /' "$out/peer/summary.txt" >>"$out/table.txt" 2>/dev/null
    sed 's/.*in all): /    PyTorch lacks /' "$out/peer/lacking.txt" | sort | uniq -c | sort -rn | head -n 5 >>"$out/table.txt"
  fi
} >>"$out/log.txt" 2>&1
cat "$out/table.txt"
echo "proof: $((SECONDS - begin)) s"
! grep -qE 'exit [1-9]|, [1-9][0-9]* failed' "$out/table.txt"
