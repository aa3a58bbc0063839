#!/usr/bin/env bash
# tools/test.sh [CTEST_OPTION...]: installs packages, builds everything and runs every test, or the
# tests that the options select, such as -R gelu or -L kernels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
cmake --preset release
cmake --build --preset release
ctest --preset release --parallel "$(nproc)" "$@"
