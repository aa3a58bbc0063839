#!/usr/bin/env bash
# tools/test.sh [CTEST_OPTION...]: sets up, builds everything and runs every test, or those that the
# options choose, such as -R gelu or -L kernels.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
cmake --preset release
cmake --build --preset release
ctest --preset release --parallel "$(nproc)" "$@"
