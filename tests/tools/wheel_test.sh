#!/usr/bin/env bash
# tests/tools/wheel_test.sh [CMAKE_DEFINE...]: builds the wheel and installs it into a fresh environment, where
# the program tests itself and the module's tests run. It skips where Python has no venv or no packages.
#
# A definition such as TESSERA_WERROR=ON lets the compiler's cache serve the objects of another build.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
sources=$PWD

work=$(mktemp --directory)
trap 'rm -rf "$work"' EXIT
skip() {
  echo "skipped: $1"
  exit 0
}

python3 -m venv "$work/build" 2>/dev/null || skip "python3 has no venv with pip"
"$work/build/bin/pip" install --quiet --disable-pip-version-check scikit-build-core ||
  skip "pip cannot install scikit-build-core"
defines=("${@/#/--config-settings=cmake.define.}")
"$work/build/bin/pip" wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation "${defines[@]}" \
  --wheel-dir "$work" .
wheels=("$work"/tessera-*.whl)
echo "built ${wheels[0]##*/}"

python3 -m venv "$work/fresh"
"$work/fresh/bin/pip" install --quiet --disable-pip-version-check "${wheels[@]}" || skip "pip cannot install NumPy"
# manylinux promises less than this: the program needs no library of the system at all.
if readelf --program-headers "$work/fresh/bin/tessera" | grep INTERP; then
  echo "the wheel's program is linked to shared libraries" >&2
  exit 1
fi
cd "$work" # away from the sources
export PATH=$work/fresh/bin:$PATH
tessera selftest
python "$sources/tests/tools/python_module_test.py"
