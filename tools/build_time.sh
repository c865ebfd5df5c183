#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/build_time.sh FOLDER JOBS demo|all: says how long a first build takes, where nothing is built in FOLDER yet, from what
# was measured (benchmarks/results/build_times.json). Prints nothing where FOLDER has been built in.
set -euo pipefail
folder=$1 jobs=$2 what=$3
cd "$(dirname "$0")/.."
[[ -s $folder/.ninja_log && -n $(find "$folder" -maxdepth 1 -name 'libpaoding.*' -print -quit) ]] && exit 0
seconds=$(sed -n "s/.*\"name\": \"$what\".*\"cpu_s\": \([0-9]*\).*/\1/p" benchmarks/results/build_times.json)
[[ -n $seconds ]] || exit 0
minutes=$(((seconds / jobs + 59) / 60))
cached=
if command -v ccache >/dev/null && (($(ccache --print-stats | awk '$1 == "files_in_cache" { print $2 + 0 }'))); then
  cached=", less where ccache has it"
fi
echo "Nothing is built in $folder/ yet. It takes $seconds s of a core, so about $minutes min by $jobs at once$cached."
