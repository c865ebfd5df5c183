#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# benchmarks/old_and_new_session.sh NEW OLD OUT PART..: an old build beside a new one on a GPU, in one or two calls; a short
# table comes last, the rest is in OUT.
#   rows      rows of `paoding bench` by five processes of both in turns (benchmarks/compare --against); CASES chooses them
#   training  `paoding train g2p` for an epoch from a cold kernel cache, both builds
#   tests     the tests of paoding.torch that need a GPU, of the package in NEW/python
#   calls     what calls of paoding.torch cost their caller, both packages, and with a CUDA graph a set of addresses
#   NEW, OLD  folders made by tools/bundle.sh, with python/paoding in them for tests and calls; OLD may be - for none
# SECONDS_MOST (560) is what the session may take: no case of `rows` is begun after it.
set -u
new=$1 old=$2 out=$3
shift 3
parts=${*:-rows}
repo=$(cd "$(dirname "$0")/.." && pwd)
begin=$SECONDS most=${SECONDS_MOST:-560}
mkdir -p "$out"
for bundle in "$new" "$old"; do
  [[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
done
sides=(new)
[[ $old == - ]] || sides=(new old)
new=$(realpath "$new") old=$(realpath -m "$old") out=$(realpath "$out")
has() { [[ " $parts " == *" $1 "* ]]; }
left() { echo $((most - (SECONDS - begin))); }
# A process that reads the libraries of a bundle before any other.
of() { env PYTHONDONTWRITEBYTECODE=1 LD_LIBRARY_PATH="$1/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" "${@:2}"; }
: >"$out/table.txt"
export PAODING_CACHE_DIR=${CACHE:-/tmp/old_and_new_kernels}

{
  if has training; then
    for turn in 1 2; do
      for side in "${sides[@]}"; do
        work=$(mktemp -d)
        start=$(date +%s.%N)
        PAODING_CACHE_DIR=$work timeout 120 "${!side}/paoding" train g2p --device cuda --epochs 1 --no-test --data "${DATA:-data}" --out "$work/run" \
          >"$out/train_${side}_$turn.txt" 2>&1
        echo "train g2p, cold, $side: exit $?, $(awk -v a="$start" -v b="$(date +%s.%N)" 'BEGIN { printf "%.2f", b - a }') s in all; $(grep -iE 'bound|shapes|compil' "$out/train_${side}_$turn.txt" | tail -n 2 | tr '\n' ';')" |
          tee -a "$out/table.txt"
        rm -rf "$work"
      done
    done
  fi
  if has tests; then
    PYTHONPATH=$new/python of "$new" timeout 150 python3 -m pytest -q -rs --maxfail=20 --tb=short -p no:cacheprovider \
      "$repo"/python/tests/test_torch_cuda*.py "$repo"/python/tests/test_torch_compile_cuda.py "$repo"/python/tests/test_device_arrays*.py >"$out/pytest_cuda.txt" 2>&1
    grep -E '^(FAILED|ERROR)|passed|failed' "$out/pytest_cuda.txt" | tail -n 12 | tee -a "$out/table.txt"
  fi
  if has calls; then
    for turn in 1 2; do
      for side in "${sides[@]}"; do
        echo "calls of $side, turn $turn" >>"$out/calls.txt"
        of "${!side}" timeout 60 python3 "$repo/benchmarks/python_torch_calls.py" "${!side}/python" --device cuda \
          >"$out/calls_${side}_$turn.txt" 2>&1
        { echo "calls, $side, turn $turn"; head -n 12 "$out/calls_${side}_$turn.txt"; } | tee -a "$out/table.txt"
      done
    done
    of "$new" timeout 90 python3 "$repo/benchmarks/placed_graphs.py" "$new/python" --json "$out/placed_graphs.json" 2>&1 |
      tee -a "$out/table.txt"
  fi
  if has rows; then
    "$repo/benchmarks/compare" --against "$old" --device cuda --paoding "$new/paoding" --json "$out/old_and_new.json" \
      --filter "${CASES:?}" --processes "${PROCESSES:-5}" --together "${TOGETHER:-9}" --seconds "$(left)" --logs /tmp/compare_logs ${QUICK:---quick} \
      2>&1 | tee -a "$out/table.txt"
  fi
} >"$out/log.txt" 2>&1
tail -n 90 "$out/table.txt"
echo "old and new: $((SECONDS - begin)) s"
