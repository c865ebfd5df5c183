#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/check_run_paths.sh PATH..: where the programs and shared libraries in these files and folders look for the libraries
# that they need. An empty or relative entry of a run path is the current folder of whoever starts the program, and so is a
# needed library that is named by a relative path: whoever wrote that folder would have his code run. Prints every one;
# status 1 when there are any. Objects that are not linked yet are left out.
set -euo pipefail
(($#)) || { echo "usage: tools/check_run_paths.sh PATH.." >&2; exit 2; }
command -v readelf >/dev/null || { echo "check_run_paths: readelf is missing (make deps)" >&2; exit 1; }

find -H "$@" -name CMakeFiles -prune -o -type f \( -perm /111 -o -name '*.so*' \) ! -name '*.o' -print0 2>/dev/null |
  while IFS= read -r -d '' file; do
    [[ $(head -c 4 "$file" | tr -d '\0') == $'\x7fELF' ]] || continue
    LC_ALL=C readelf --wide -d "$file" 2>/dev/null | awk -v file="$file" '
      function value() { match($0, /\[.*\]/); return substr($0, RSTART + 1, RLENGTH - 2) }
      /\((RPATH|RUNPATH)\)/ {
        path = value(); count = split(path, entries, ":")
        for (i = 1; i <= (count ? count : 1); ++i) {
          if (entries[i] ~ /^(\/|\$ORIGIN(\/|$)|\$\{ORIGIN\}(\/|$))/) continue
          printf "%s:1: its run path is \"%s\": the entry \"%s\" is the current folder\n", file, path, entries[i]
          break
        }
      }
      /\(NEEDED\)/ && value() ~ /\// { printf "%s:1: it needs \"%s\", found from the current folder\n", file, value() }'
  done | awk '{ print } END { exit NR > 0 }'
