#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tests/findings/record.sh OUT [PROGRAMS]: times and records the programs of PROGRAMS (this folder's programs/), faults beside
# their twins, with PyTorch and JAX, on one or two GPUs. OUT gets seeded.tar.xz.* (traces and numbers, in parts that
# can be carried) and log.txt; tests/findings/pack.py makes what is committed of them.
# SECONDS_MOST (330): what it may take; programs that were not begun by then are left out, and named.
set -u
out=$1
programs=${2:-$(cd "$(dirname "$0")/programs" && pwd)}
mkdir -p "$out"
out=$(cd "$out" && pwd)
most=${SECONDS_MOST:-330}
work=$(mktemp -d)
mkdir "$work/out"
cd "$programs" || exit 1
export TORCHINDUCTOR_CACHE_DIR=$work/inductor TRITON_CACHE_DIR=$work/triton TORCHINDUCTOR_COMPILE_THREADS=4 PYTHONUNBUFFERED=1
export OMP_NUM_THREADS=4 PYTHONDONTWRITEBYTECODE=1
gpus=$(nvidia-smi --list-gpus | wc -l)
second=$((gpus > 1 ? 1 : 0))
nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm --format=csv,noheader

# job GPU LOG COMMAND..: one process of programs, if there is time for it.
job() {
  local gpu=$1 log=$2
  shift 2
  local left=$((most - SECONDS))
  if ((left < 20)); then
    echo "NOT BEGUN: $*" >>"$work/$log.log"
    return
  fi
  echo "-- $SECONDS s: $*" >>"$work/$log.log"
  CUDA_VISIBLE_DEVICES=$gpu timeout "$left" python3 "$@" >>"$work/$log.log" 2>&1
}
warm() { job "$second" "warm$1" "${@:2}"; }
to=(--out "$work/out" --seconds "${SECONDS_EACH:-0.35}")

# Compilers first, side by side: only their caches are kept.
warms() {
  warm 1 clean.py --warm resnet18_inference resnet50_inference &
  warm 2 clean.py --warm resnet18_training &
  warm 3 clean.py --warm resnet50_training &
  warm 4 clean.py --warm bert_inference bert_training &
  warm 5 clean.py --warm gpt_training bert_inference_compiled layers_training_compiled &
  warm 6 compiled.py --warm &
  wait
}
first_gpu() {
  job 0 a kernels.py "${to[@]}"
  job 0 b launches.py "${to[@]}"
  for name in lengths_that_fit_no_block ops_called_first_in_steps sizes_compiled_in_steps; do
    job 0 b launches.py "${to[@]}" $name
  done
  job 0 c jax_programs.py "${to[@]}"
}
second_gpu() {
  job "$second" d compiled.py "${to[@]}"
  job "$second" e feeding.py "${to[@]}"
  job "$second" f clean.py "${to[@]}"
}
if ((second)); then
  (warms; second_gpu) &
  first_gpu
  wait
  job 0,1 g ranks.py --out "$work/out"
else
  warms
  second_gpu
  first_gpu
fi
echo "recorded after $SECONDS s"
# More processes, for the times alone.
for round in 1 2; do
  ((most - SECONDS > 60)) || break
  job 0 h kernels.py "${to[@]}" --round $round &
  job "$second" i feeding.py "${to[@]}" --round $round
  wait
done
cat "$work"/*.log >"$out/log.txt"
grep -hE '^[a-z_]+ +[a-z0-9_]+ +us:|^FAILED|^NOT BEGUN|^-- ' "$work"/[a-i].log
tar -c -C "$work/out" . | xz -T0 -2 | split -b 15000000 - "$out/seeded.tar.xz."
ls -l "$out"
echo "all after $SECONDS s"
rm -rf "$work"
