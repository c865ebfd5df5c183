#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the profiler is on a GPU, in one call: a table comes last, the rest is in OUT.
# Usage: benchmarks/profiler_session.sh BUNDLE OUT PART..
#   tests   recordings by stamps and by CUPTI, on memory of the caller's too, what kernels are called, memory over time, phases
#   spans   what a span on the host costs here
#   cost    benchmarks/profiler.py: what recordings cost runs, and stamps beside CUPTI
#   report  an LSTM step with its kernels and the memory held, by stamps and by CUPTI
#   clock   the chip's clock beside the host's for CLOCK_SECONDS (100)
#   BUNDLE  folder made by tools/bundle.sh;  OUT  folder for table.txt, log.txt, profiler.json and reports
# SECONDS_MOST (570) is what the session may take; the clock has what the others leave of it.
set -u
bundle=$1 out=$2
shift 2
parts=${*:-tests spans cost report clock}
repo=$(cd "$(dirname "$0")/.." && pwd)
begin=$SECONDS most=${SECONDS_MOST:-570}
mkdir -p "$out"
[[ ! -x $bundle/unpack.sh ]] || sh "$bundle/unpack.sh"
bundle=$(cd "$bundle" && pwd) out=$(cd "$out" && pwd)
cd "$repo" || exit 1
: >"$out/table.txt" >"$out/log.txt"
has() { [[ " $parts " == *" $1 "* ]]; }
left() { echo $((most - (SECONDS - begin) > 1 ? most - (SECONDS - begin) : 1)); }
row() { printf '%-10s %s\n' "$1" "$2" >>"$out/table.txt"; }

# tests NAME FILTER: what they print about numbers, and what fails, goes into the table.
tests() {
  local log status
  log=$(mktemp)
  timeout "$(left)" "$bundle/paoding_tests" --gtest_filter="$2" >"$log" 2>&1
  status=$?
  row "$1" "exit $status, $(grep -c '^\[       OK' "$log") passed, $(grep -c '^\[  SKIPPED .*)$' "$log") skipped, \
$(grep -c '^\[  FAILED .*)$' "$log") failed"
  grep -E '^(a product ran as|clocks over)|^\[  FAILED .*)$' "$log" | sed 's/^/    /' >>"$out/table.txt"
  cat "$log" >>"$out/log.txt"
  rm "$log"
}

row "$("$bundle/paoding" --version)" "$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)"
if has tests; then
  tests tests 'ProfilerOnGpu.*:PlacedGraphOnAGpu.*:RanAs.*:HeldMemory.*:HeldBytes.*:ClockLine.*:SpanList.*:Recorder*'
fi
if has spans; then
  OMP_NUM_THREADS=1 timeout "$(left)" "$bundle/paoding" bench --device cpu --no-check --filter 'span/*' --json "$out/spans.json" \
    >>"$out/log.txt" 2>&1
  python3 - "$out/spans.json" >>"$out/table.txt" <<'END'
import json, sys
rows = json.load(open(sys.argv[1]))
for row in rows if isinstance(rows, list) else rows["rows"]:
    print(f'    {row["case"]:14} {1e3 * row["us"]:.2f} ns [{1e3 * row["us_min"]:.2f}, {1e3 * row["us_max"]:.2f}]')
END
fi
if has cost; then
  timeout "$(left)" python3 benchmarks/profiler.py --paoding "$bundle/paoding" --json "$out/profiler.json" \
    >>"$out/log.txt" 2>&1
  row cost "exit $?"
fi
if has report; then
  for how in stamps cupti; do
    PAODING_CUPTI=$([[ $how == cupti ]] && echo 1 || echo 0) timeout "$(left)" "$bundle/paoding" run examples/graphs/lstm.txt \
      --random 7 --repeat 200 --device cuda --profile --kernels --profile-path "$out/lstm_$how.pftrace" >"$out/report_$how.txt" 2>&1
    row "$how" "exit $?, $(grep -c '  kernel ' "$out/report_$how.txt") rows of kernels"
  done
fi
if has clock; then
  seconds=${CLOCK_SECONDS:-100}
  ((seconds < $(left) - 20)) || seconds=$(($(left) > 30 ? $(left) - 20 : 10))
  PAODING_CLOCK_SECONDS=$seconds tests clock 'ClockOnGpu.*'
fi
cat "$out/table.txt"
