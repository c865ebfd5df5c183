#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/check.sh [--sources | --generated | --format | --ratchets update]: what a compiler does not check. Every problem is printed as
# file:line: what is wrong; any problem gives exit status 1. Without an option both kinds of checks run.
#   --sources    first line, #pragma once, file sizes, dependencies between folders, file names, what classes of the
#                public API say of threads, formatting; old words, and counts that may only fall (tools/check_words.py)
#   --generated  files that are written by a program and committed are fresh, links of documents lead somewhere and their
#                numbers are in the results that they cite (needs build/paoding, python3); a build without CUDA links whole
#                (needs the objects in build/); changed files compile without their unit; no program or library in build/ looks
#                for others in the current folder
#   --format     no check: formats every C++ file in place
#   --ratchets update
#                no check: writes counts that have fallen into tools/ratchets.txt
set -uo pipefail
cd "$(dirname "$0")/.."
build=${PAODING_BUILD:-build}

# The folders of src/, first to last: a file includes only from its own folder or one before it.
folders="base scalar graph ops text io autodiff nn group passes profile trace findings plan cpu gpu schedule runtime distributed debug capi data"
warn_lines=400
most_lines=600
forbidden="manager handler controller proxy generic helper util context impl data"
# Named for the folder data/ that they are the front of.
allowed="include/paoding/data.h tools/fetch_data.sh"
# Committed files that a command prints: "file|command", run in the repository with $build set.
generated=("python/paoding/ops.py|$build/paoding ops --python")

roots=()
for root in include src models cli tests examples benchmarks python; do [[ -d $root ]] && roots+=("$root"); done
cxx_files() { find "${roots[@]}" -name '*.h' -o -name '*.cpp' | sort; }
script_files() { find CMakeLists.txt Makefile cmake tools .ci python -type f \( -name '*.sh' -o -name '*.cmake' -o -name CMakeLists.txt \
  -o -name Makefile -o -name run \); }

clang_format=$(command -v clang-format-14 || true)

# Lines are counted, includes followed, first lines and #pragma once looked for in one pass over all files. An -inl.h is
# Highway's: it is included once per instruction set and guards itself in another way.
check_text() {
  { cxx_files; find src -name '*.cu'; script_files; } | tr '\n' '\0' | xargs -0 awk -v folders="$folders" -v warn="$warn_lines" -v most="$most_lines" '
    function problem(line, text) { printf "%s:%d: %s\n", FILENAME, line, text; failed = 1 }
    function finish() {
      if (name == "") return
      if (name ~ /\.h$/ && name !~ /-inl\.h$/ && !pragma) { printf "%s:1: #pragma once is missing\n", name; failed = 1 }
      if (!spdx) { printf "%s:1: first line must be SPDX-License-Identifier: Apache-2.0\n", name; failed = 1 }
      if (lines > most) { printf "%s:%d: %d lines, the most is %d: split it\n", name, lines, lines, most; failed = 1 }
      else if (lines > warn) printf "%s:%d: note: %d lines, more than %d\n", name, lines, lines, warn
    }
    BEGIN { count = split(folders, list, " "); for (i = 1; i <= count; ++i) rank[list[i]] = i }
    FNR == 1 {
      finish()
      name = FILENAME; pragma = 0; spdx = 0; lines = 0; own = ""
      crossing = name !~ /^src\// || name ~ /_(test|bench|fuzz)\.cpp$/   # these may include from every folder
      if (name ~ /^src\//) {
        split(name, parts, "/"); own = parts[2]
        if (!(own in rank)) problem(1, "src/" own " is not in the list of folders at the top of tools/check.sh")
      }
    }
    { lines = FNR }
    FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ && (FNR == 1 || name !~ /\.(h|cpp|cu)$/) { spdx = 1 }
    /^#pragma once/ { pragma = 1 }
    /^#include "/ {
      split($0, quoted, "\""); path = quoted[2]; split(path, parts, "/"); theirs = parts[1]
      if (path ~ /^\.\.?\//) problem(FNR, "#include \"" path "\": write it relative to src/ or include/")
      if (name ~ /^include\// && path !~ /^paoding\//) problem(FNR, "#include \"" path "\": public headers include public headers only")
      if (crossing || !(theirs in rank) || !(own in rank) || rank[theirs] <= rank[own]) next
      if (own == "ops" && theirs == "cpu" && name ~ /\/cpu\/|_cpu\.(h|cpp)$/) next
      if (own == "ops" && theirs == "gpu" && name ~ /\/gpu\/|_gpu\.(h|cpp)$/) next
      problem(FNR, "#include \"" path "\": src/" own " comes before src/" theirs " and may not use it")
    }
    END { finish(); exit failed }'
}

# Whether threads may use it at once is said of every class of the public API: in its comment or body, of a whole section
# ("// ---- layers ---- (..)"), or at the top of the file.
check_threads() {
  find include/paoding -name '*.h' | sort | xargs awk '
    function finish() {
      if (name != "" && !said) { printf "%s:%d: class %s: what threads may do with it is not said\n", file, line, name; failed = 1 }
      name = ""
    }
    FNR == 1 { finish(); top = 1; file_says = section_says = comment_says = 0 }
    top && !/^\/\// { top = 0 }
    top && /[Tt]hread/ { file_says = 1 }
    /^\/\/ ---- / { section_says = /[Tt]hread/ }
    /^\/\/\// { if (/[Tt]hread/) comment_says = 1; next }
    /^class [A-Za-z]+ / { name = $2; file = FILENAME; line = FNR; said = file_says || section_says || comment_says }
    /^$/ || /^};/ { comment_says = 0 }
    name != "" && /[Tt]hread/ { said = 1 }
    /^};/ { finish() }
    END { finish(); exit failed }'
}

# A forbidden word counts as a part of a name between separators, in singular or plural: context.h, string_utils.cpp.
check_names() {
  { cxx_files; find src -name '*.cu'; script_files; } | awk -v words="$forbidden" -v allowed="$allowed" '
    BEGIN {
      split(words, list, " "); for (i in list) { bad[list[i]]; bad[list[i] "s"] }
      split(allowed, list, " "); for (i in list) good[list[i]]
    }
    !($0 in good) {
      path_count = split($0, path, "/"); count = split(path[path_count], parts, /[^A-Za-z]+/)
      for (i = 1; i < count; ++i) if (tolower(parts[i]) in bad) { printf "%s:1: \"%s\" says nothing: name it for what it is\n", $0, parts[i]; failed = 1 }
    }
    END { exit failed }'
}

# Words that the glossary replaced, and counts that may only fall.
check_words() {
  command -v python3 >/dev/null || { echo "check: words not checked, python3 is missing" >&2; return 0; }
  python3 tools/check_words.py
}

# Only what changed since the last clean run is formatted again: clang-format needs about 30 ms a file.
check_format() {
  if [[ -z $clang_format ]]; then
    echo "check: formatting not checked, clang-format-14 is missing (make deps)" >&2
    return 0
  fi
  local stamp=$build/format_checked newer=() started
  started=$(mktemp)
  [[ -f $stamp && $stamp -nt .clang-format ]] && newer=(-newer "$stamp")
  find "${roots[@]}" \( -name '*.h' -o -name '*.cpp' \) "${newer[@]}" -print0 |
    xargs -0 -r -P "$(nproc)" -n 12 bash -c 'report=$("$@" 2>&1 | sed -n "s/: error: code should be.*//p" | sort -t: -uk1,1)
      [[ -z $report ]] || printf "%s\n" "$report"' format "$clang_format" --dry-run -Werror |
    sed 's/$/: not as clang-format writes it (make format)/' |
    awk '{ print } END { exit NR > 0 }'
  local status=$?
  if ((status == 0)) && [[ -d $build ]]; then touch -r "$started" "$stamp"; fi
  rm -f "$started"
  return $status
}

check_generated() {
  local status=0 entry file command
  for entry in "${generated[@]}"; do
    file=${entry%%|*} command=${entry#*|}
    [[ -x ${command%% *} && -f $file ]] || continue
    if ! $command 2>&1 | diff -q - "$file" >/dev/null; then
      local line
      line=$($command 2>&1 | cmp - "$file" 2>&1 | sed -n 's/.*line \([0-9]*\).*/\1/p')
      echo "$file:${line:-1}: not what the program prints now; write it anew: $command > $file"
      status=1
    fi
  done
  if command -v python3 >/dev/null; then
    python3 benchmarks/performance.py --check || status=1
    python3 benchmarks/ladder.py --check || status=1
    [[ ! -x $build/paoding ]] || python3 tools/write_reference.py "$build/paoding" --check || status=1
    python3 tools/check_docs.py || status=1
  else
    echo "check: documents not checked, python3 is missing" >&2
  fi
  return $status
}

# What a build without CUDA is linked from uses nothing that only a build with it has: no symbol of folders gpu/ and *_gpu.cpp,
# but in files that ask PAODING_WITH_CUDA, and those that cuda_missing.cpp answers. Looked for in the objects of $build, which
# are of units of files (cmake/unity.cmake: those of the GPU are apart) or of single ones.
check_without_cuda() {
  local objects=$build/CMakeFiles/paoding.dir present
  mapfile -t present < <(cd "$objects" 2>/dev/null && find src unity -name '*.o' 2>/dev/null | while read -r file; do
    [[ -f $OLDPWD/${file%.o} || -f $OLDPWD/$build/${file%.o} ]] && echo "$file"; done)
  ((${#present[@]})) || return 0
  (cd "$objects" && nm --print-file-name --format=posix "${present[@]}") 2>/dev/null | awk '
    { file = $1; sub(/\.o:$/, "", file)
      ours = file ~ /^unity\// ? file !~ /_gpu(_cold)?_[0-9]+\.cpp$/ : file !~ /^src\/(.*\/)?gpu\// && file !~ /_gpu\.cpp$/ }
    $3 ~ /^[A-TV-Zu]$/ { if (ours) defined[$2]; else of_gpu[$2] }
    $3 == "U" && ours { user[$2] = file }
    END { for (s in user) if ((s in of_gpu) && !(s in defined)) print user[s], s }' | sort | c++filt |
    while read -r object symbol; do
      local name=${symbol%%(*} files=("$object") file scope
      name=${name%%[*} scope=${name%::*} name=${name##*::}
      scope=${scope##*::}  # a class, or a namespace, which need not stand where the name does
      [[ $scope == [A-Z]* ]] || scope=$name
      if [[ $object == unity/* ]]; then
        mapfile -t files < <(sed -n 's|^#include "\(.*\)"|src/\1|p' "$build/$object" | xargs grep -lw -- "$name" | xargs -r grep -lw -- "$scope")
        ((${#files[@]})) || files=("$build/$object")
      fi
      for file in "${files[@]}"; do
        grep -q PAODING_WITH_CUDA "$file" || grep -qw "$name" src/runtime/cuda_missing.cpp ||
          echo "$file:1: $symbol is not there without CUDA: put the file into a folder gpu/, or answer in src/runtime/cuda_missing.cpp"
      done
    done | awk '{ print } END { exit NR > 0 }'
}

# Names that units of several files share.
check_unit_names() {
  command -v python3 >/dev/null || { echo "check: names of unnamed namespaces not checked, python3 is missing" >&2; return 0; }
  python3 tools/check_unit_names.py
}

# A unit may hide that a file does not include what it uses: files that differ from the commit before the last (PAODING_SINCE;
# all: every file) are compiled by themselves, as $build compiles their units.
check_includes() {
  [[ -f $build/compile_commands.json && -d $build/unity ]] || return 0
  command -v python3 >/dev/null || { echo "check: includes not checked, python3 is missing" >&2; return 0; }
  python3 tools/check_includes.py "$build" "${PAODING_SINCE:-HEAD~1}"
}

status=0
case "${1:-}" in
  --format)
    [[ -n $clang_format ]] || { echo "check: clang-format-14 is missing (make deps)" >&2; exit 1; }
    cxx_files | xargs -r -P "$(nproc)" -n 8 "$clang_format" -i
    exit ;;
  --ratchets)
    [[ ${2:-} == update ]] || { echo "usage: tools/check.sh --ratchets update" >&2; exit 2; }
    exec python3 tools/check_words.py update ;;
  --sources | --generated | "") ;;
  *) echo "usage: tools/check.sh [--sources | --generated | --format | --ratchets update]" >&2; exit 2 ;;
esac
if [[ ${1:-} != --generated ]]; then
  check_text || status=1
  check_names || status=1
  check_unit_names || status=1
  check_threads || status=1
  check_words || status=1
  check_format || status=1
fi
if [[ ${1:-} != --sources ]]; then
  check_generated || status=1
  check_without_cuda || status=1
  check_includes || status=1
  [[ ! -d $build ]] || tools/check_run_paths.sh "$build" || status=1
fi
((status == 0)) && echo "check: ok"
exit $status
