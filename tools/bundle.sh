#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/bundle.sh OUTDIR [BUILD]: the built programs with the shared libraries they need, to run on another x86-64 Linux
# whose C and C++ libraries are at least as new. OUTDIR/paoding and OUTDIR/paoding_tests find OUTDIR/lib by their RPATH.
# Over 45 MiB, the largest files are kept as .gz, and `sh OUTDIR/unpack.sh` must be run once where it is to work.
set -euo pipefail
out=${1:?usage: tools/bundle.sh OUTDIR [BUILD]}
build=${2:-$(dirname "$0")/../build}
most_bytes=$((45 * 1024 * 1024))

# Every Linux has these, and they must match its own loader.
from_the_system='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so'

programs=()
for name in paoding paoding_tests; do [[ -x $build/$name ]] && programs+=("$build/$name"); done
if ((${#programs[@]} == 0)); then
  echo "bundle: no program in $build: build it first" >&2
  exit 1
fi
mkdir -p "$out/lib"
rm -f "$out"/lib/* "$out/unpack.sh" "$out"/paoding{,_tests}{,.gz}

# Those of the build look for lib/ in other places too, which beside a bundle may be anyone's.
for program in "${programs[@]}"; do
  strip -o "$out/$(basename "$program")" "$program"
  printf 'file(RPATH_SET FILE [=[%s]=] NEW_RPATH "$ORIGIN/lib")\n' "$(realpath "$out/$(basename "$program")")" >"$out/run_path.cmake"
  cmake -P "$out/run_path.cmake" >/dev/null
  ldd "$program"
done | awk -v skip="$from_the_system" '
  $1 ~ skip || $1 ~ /^\// { next }
  /not found/ { print "missing " $1; next }
  $2 == "=>" { print $3, $1 }' | sort -u >"$out/needed"
if grep '^missing' "$out/needed" >&2; then exit 1; fi
while read -r path soname; do
  strip --strip-unneeded -o "$out/lib/$soname" "$path"  # under its soname, the one name the loader asks for
done <"$out/needed"
rm "$out/needed" "$out/run_path.cmake"
"$(dirname "$0")/check_run_paths.sh" "$out"

(cd "$(dirname "$0")" && git describe --always --dirty 2>/dev/null || echo unknown) >"$out/commit"
mkdir -p "$out/share/paoding"
cp "$(dirname "$0")/fetch_data.sh" "$out/share/paoding/"

# Bytes of everything in OUTDIR.
total() { find "$out" -type f -printf '%s\n' | awk '{ sum += $1 } END { print sum + 0 }'; }

while (($(total) > most_bytes)); do
  largest=$(find "$out" -type f ! -name '*.gz' -size +64k -printf '%s %p\n' | sort -rn | head -n 1 | cut -d' ' -f2)
  if [[ -z $largest ]]; then
    echo "bundle: $(total) bytes, the most is $most_bytes" >&2
    exit 1
  fi
  gzip -6 -n "$largest"
done
if [[ -n $(find "$out" -name '*.gz' -print -quit) ]]; then
  printf '#!/bin/sh\n# Unpacks the files that were packed to keep the bundle small; harmless when run again.\n%s\n' \
    'find "$(dirname "$0")" -name "*.gz" -exec gzip -df {} +' >"$out/unpack.sh"
  chmod +x "$out/unpack.sh"
  echo "bundle: some files are packed: run sh $out/unpack.sh before the programs"
fi
find "$out" -type f -printf '%s %P\n' | sort -rn | awk '{ printf "%8.2f MiB  %s\n", $1 / 1048576, $2 }'
echo "bundle: $(awk -v bytes="$(total)" 'BEGIN { printf "%.1f", bytes / 1048576 }') MiB in $out"
