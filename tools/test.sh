#!/usr/bin/env bash
# tools/test.sh [CTEST_OPTION...]: installs packages, builds everything and runs every test, or the
# tests that the options select, such as -R gelu or -L kernels. It fails, too, if a test leaves a process
# behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/setup.sh
cmake --preset release
cmake --build --preset release

ours() { pgrep --full "$PWD/build/bin/" | sort || true; } # pgrep fails if it finds none
before=$(ours)
status=0
# Four times as many tests as cores: many only wait, for processes or for a deadline.
ctest --preset release --parallel "$((4 * $(nproc)))" "$@" || status=$?
left=
for _ in {1..50}; do # processes that were told to end may need a moment
  left=$(comm -13 <(echo "$before") <(ours))
  [[ -n $left ]] || break
  sleep 0.1
done
if [[ -n $left ]]; then
  echo "test.sh: a test has left these processes behind:" >&2
  ps --format pid,etime,args --pid "$(paste --serial --delimiters=, <<<"$left")" >&2
  status=1
fi
exit "$status"
