#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/check_install.sh BUILD: installs what was built in BUILD under a prefix that is gone afterwards, moves the
# prefix, builds examples/outside/ against it with CMake and, where it is there, with pkg-config, and runs that and the
# installed program. Nothing may come from BUILD itself.
set -euo pipefail
build=$(realpath "${1:?usage: tools/check_install.sh BUILD}")
root=$(realpath "$(dirname "$0")/..")
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

# of_cache NAME: what BUILD was configured with.
of_cache() { sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"; }
compiler=$(of_cache CMAKE_CXX_COMPILER)
sanitize=$(of_cache PAODING_SANITIZE)
flags=${sanitize:+-fsanitize=$sanitize}

env -u DESTDIR cmake --install "$build" --prefix "$made/first" >"$made/log" || { cat "$made/log"; exit 1; }
mv "$made/first" "$made/moved"
for file in bin/paoding include/paoding/paoding.h include/paoding/version.h; do
  [[ -e $made/moved/$file ]] || { echo "check_install: $file was not installed" >&2; exit 1; }
done
if grep -rlF -e "$build" -e "$root/src" "$made/moved" --include='*.cmake' --include='*.pc' --include='*.h'; then
  echo "check_install: the files above name the build or the sources" >&2
  exit 1
fi

cmake -S "$root/examples/outside" -B "$made/outside" -DCMAKE_PREFIX_PATH="$made/moved" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_CXX_FLAGS="$flags" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF >"$made/log" 2>&1 &&
  cmake --build "$made/outside" >>"$made/log" 2>&1 || { cat "$made/log"; exit 1; }
"$root/tools/check_run_paths.sh" "$made/moved" "$made/outside/outside"
"$made/outside/outside"
"$made/moved/bin/paoding" ops lerp >/dev/null
# What the program, the library, its headers, scripts and the document on data tell a user to run must have been
# installed with them.
for script in $(find "$made/moved" -type f \( -name 'libpaoding.so*' -o -path '*/bin/paoding' -o -name '*.h' -o -name '*.sh' \
  -o -path '*/docs/reference/data.md' \) -print0 | xargs -0 grep -aohE '[a-z_./]*[a-z_]+\.sh\b' | sort -u); do
  [[ -n $(find "$made/moved" -path "*/${script#/}") ]] || { echo "check_install: $script is named, but not installed" >&2; exit 1; }
done
if grep -aohE 'make deps[a-z-]*' "$made"/moved/bin/paoding; then
  echo "check_install: the program names a target of the sources' Makefile" >&2
  exit 1
fi
[[ $("$made/moved/bin/paoding" --help) == *"docs/ and examples/ are in $made/moved/share/doc/paoding"* ]] ||
  { echo "check_install: --help does not say where the documents are" >&2; exit 1; }
PAODING_DATA_DIR=/proc/paoding "$made/moved/bin/paoding" fetch g2p >"$made/log" 2>&1 ||
  grep -q '^fetch_data: ' "$made/log" || { cat "$made/log"; exit 1; }
if ldd "$made/moved/bin/paoding" "$made/outside/outside" | grep -F "$build"; then
  echo "check_install: the libraries above are not the installed ones" >&2
  exit 1
fi

pc=$(find "$made/moved" -name paoding.pc)
if [[ -n $pc ]] && command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH=${pc%/*}
  # shellcheck disable=SC2046,SC2086
  "$compiler" $flags "$root/examples/outside/main.cpp" -o "$made/by_pkg_config" $(pkg-config --cflags --libs paoding)
  LD_LIBRARY_PATH=$(pkg-config --variable=libdir paoding) "$made/by_pkg_config"
  # What the README shows first of C++, built without a warning and run: it learns sin(x).
  awk '/^```cpp$/ { is_in = 1; next } is_in && /^```$/ { exit } is_in' "$root/README.md" >"$made/readme.cpp"
  grep -q 'int main' "$made/readme.cpp" || { echo "check_install: README.md has no program in C++" >&2; exit 1; }
  # shellcheck disable=SC2046,SC2086
  "$compiler" $flags -Wall -Wextra -Wpedantic -Werror "$made/readme.cpp" -o "$made/readme" $(pkg-config --cflags --libs paoding)
  printed=$(LD_LIBRARY_PATH=$(pkg-config --variable=libdir paoding) "$made/readme")
  awk -v printed="$printed" 'BEGIN { exit !(printed ~ /^loss [0-9.e-]+$/ && substr(printed, 6) + 0 < 0.01) }' ||
    { echo "check_install: README.md's program prints '$printed', not a loss below 0.01" >&2; exit 1; }
fi
echo "check_install: ok"
