#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tools/deps.sh build|docs|browser|fuzz|tsan|gpu|python|torch|aarch64: installs what is needed, quietly, and only what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

# Needed to build and test; then what the checks and speed gain from.
build_needs=(cmake ninja-build g++ libdnnl-dev libhwy-dev libsleef-dev libxbyak-dev libcli11-dev libfmt-dev
  libsimdjson-dev zlib1g-dev libzstd-dev libsqlite3-dev libsentencepiece-dev libgtest-dev)
build_likes=(ccache clang-format-14 libbenchmark-dev libisal-dev libgloo-dev)
docs_needs=(doxygen)
docs_likes=(doxygen-awesome-css)
browser_needs=(chromium-headless-shell)
browser_likes=(fonts-dejavu-core)
fuzz_needs=(clang-16 libclang-rt-16-dev)
tsan_needs=("${fuzz_needs[@]}" libomp-16-dev)

installed() { [[ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" == installed ]]; }

missing_of() {
  local package
  for package in "$@"; do installed "$package" || echo "$package"; done
}

install() {  # install <needs...> -- <likes...>
  local needs=() likes=()
  while (($#)) && [[ $1 != -- ]]; do needs+=("$1"); shift; done
  shift
  likes=("$@")
  if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "deps: no apt here; these Debian packages, or the same by another name, are needed: ${needs[*]}" >&2
    return 0
  fi
  local missing
  mapfile -t missing < <(missing_of "${needs[@]}" "${likes[@]}")
  ((${#missing[@]})) || return 0
  local as_root=()
  [[ $(id -u) == 0 ]] || as_root=(sudo)
  echo "deps: installing ${missing[*]}"
  local log
  log=$(mktemp)
  from_apt() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >"$log" 2>&1
  }
  "${as_root[@]}" apt-get update -qq >"$log" 2>&1 || tail -n 5 "$log" >&2
  # One package that this system does not have makes apt install none of them.
  if ! from_apt "${missing[@]}"; then
    local package
    for package in "${missing[@]}"; do from_apt "$package" || tail -n 2 "$log" >&2; done
  fi
  rm -f "$log"
  mapfile -t missing < <(missing_of "${needs[@]}")
  if ((${#missing[@]})); then
    echo "deps: could not install ${missing[*]}" >&2
    return 1
  fi
}

install_gpu() {
  # Headers for the build; cublas, nvrtc and cupti bring the libraries that are loaded at run time. No nvcc.
  local packages=('nvidia-cuda-runtime==13.0.*' 'nvidia-cuda-crt==13.0.*' 'nvidia-cuda-cccl==13.0.*'
    'nvidia-cuda-nvrtc==13.0.*' 'nvidia-cublas==13.1.*' 'nvidia-cuda-cupti==13.0.*')
  local stamp=.deps/installed
  [[ -f $stamp && "$(cat $stamp)" == "${packages[*]}" ]] && return 0
  python3 -m pip --version >/dev/null 2>&1 || install python3-pip -- 
  echo "deps: ${packages[*]} into .deps/"
  python3 -m pip install -q --disable-pip-version-check --root-user-action=ignore --no-deps --upgrade \
    --target .deps "${packages[@]}"
  echo "${packages[*]}" >$stamp
}

environment() {  # environment FOLDER PACKAGE..: a Python of our own with python/requirements.txt and these in it
  local folder=$1 wanted
  wanted=$(cat python/requirements.txt; printf '%s\n' "${@:2}")
  [[ -f $folder/installed && "$(cat "$folder/installed")" == "$wanted" ]] && return 0
  python3 -c 'import ensurepip' 2>/dev/null || install python3-venv --
  echo "deps: python/requirements.txt ${*:2} into $folder/"
  rm -f "$folder/installed"
  if ! { python3 -m venv "$folder" &&
         "$folder/bin/python3" -m pip install -q --disable-pip-version-check -r python/requirements.txt "${@:2}"; }; then
    echo "deps: could not install python/requirements.txt ${*:2} into $folder/" >&2
    return 1
  fi
  echo "$wanted" >"$folder/installed"
}

install_python() {
  # Headers, where Python is the system's.
  if [[ ! -e "$(python3 -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ]]; then
    install python3-dev -- python3-venv
  fi
  environment .venv
}

# PyPI's PyTorch, which is for GPUs too and so brings NVIDIA's libraries along: 4.8 GB.
install_torch() { environment .venv-torch 'torch==2.11.*' 'transformers==4.57.*' expecttest; }

install_aarch64() {
  # A cross compiler and qemu; the libraries' packages of arm64 are unpacked into .deps-aarch64/, not installed: some
  # would take the place of this machine's own.
  install g++-aarch64-linux-gnu qemu-user --
  local packages=(libdnnl2 libdnnl-dev libhwy1 libhwy-dev libsleef3 libsleef-dev libfmt9 libfmt-dev libsimdjson14
    libsimdjson-dev zlib1g zlib1g-dev libzstd1 libzstd-dev libsqlite3-0 libsqlite3-dev libsentencepiece0 libsentencepiece-dev libgtest-dev
    libcli11-dev)
  local to=$PWD/.deps-aarch64
  [[ -f $to/installed && "$(cat "$to/installed")" == "${packages[*]}" ]] && return 0
  echo "deps: ${packages[*]} of arm64 into .deps-aarch64/"
  rm -rf "$to"
  mkdir -p "$to"/apt/{lists/partial,cache/archives/partial,debs}
  local apt=(apt-get -qq -o Dir::State::lists="$to/apt/lists" -o Dir::Cache="$to/apt/cache" -o Dir::State::status=/dev/null
    -o APT::Architecture=arm64 -o APT::Architectures::=arm64 -o APT::Sandbox::User=root)
  "${apt[@]}" update
  (cd "$to/apt/debs" && "${apt[@]}" download "${packages[@]}")
  local file
  for file in "$to"/apt/debs/*.deb; do dpkg -x "$file" "$to"; done
  # Links that begin at / mean the folder.
  find "$to/usr/lib" -type l -lname '/*' | while read -r file; do ln -sfr "$to$(readlink "$file")" "$file"; done
  rm -rf "$to/apt"
  echo "${packages[*]}" >"$to/installed"
}

case "${1:-}" in
  build) install "${build_needs[@]}" -- "${build_likes[@]}" ;;
  docs) install "${docs_needs[@]}" -- "${docs_likes[@]}" ;;
  browser) install "${browser_needs[@]}" -- "${browser_likes[@]}" ;;
  fuzz) install "${fuzz_needs[@]}" -- ;;
  tsan) install "${tsan_needs[@]}" -- ;;
  gpu) install_gpu ;;
  python) install_python ;;
  torch) install_torch ;;
  aarch64) install_aarch64 ;;
  *) echo "usage: tools/deps.sh build|docs|browser|fuzz|tsan|gpu|python|torch|aarch64" >&2; exit 2 ;;
esac
