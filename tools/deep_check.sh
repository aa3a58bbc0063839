#!/usr/bin/env bash
# tools/deep_check.sh [--sample]: the full check of a change, in a fresh clone. It takes hours on two cores:
#   - all tests, with warnings as errors, many random combinations of options and meshes, many kills, and the wheel
#   - the rungs of the ladder with the faults of their labs, and the solutions of the assignments, right and wrong
#   - all tests under the address and undefined-behaviour sanitizers, on the CPU and on the emulated GPU
#   - the tests of threads under the thread sanitizer; the full check also runs a few of every kernel
#   - a build for GPUs and its registers, where nvcc is installed, and its instructions, where cuobjdump is
#   - the book's site and calculator, where Emscripten is installed, and in a browser where Chromium is
#   - the CPU seconds of a build from nothing, and a build of every source alone, without precompiled headers
#   - all planted faults, and the kernels of AArch64 under qemu
#   - the layout of the sources
# With --sample, which .ci/run takes, it leaves out those combinations, the site and the parts after it, and the
# others have only the tests that find most.
#
# Every part runs, even after a failure. At the end there is an excerpt of each failed part. The last lines
# give the result of each part with its seconds and its limit, and each test that failed.
# A part that takes longer does not fail: machines differ, and other programs may run on them. The seconds of its
# processors, "CPU", depend less on that.
#
# shellcheck disable=SC2317 # the functions are called through part
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit 1

sample=
case ${1-} in
  '') ;;
  --sample) sample=yes ;;
  *) echo "deep_check.sh: unknown option $1; the only one is --sample" >&2; exit 2 ;;
esac

results=()
failed=()
logs=$(mktemp --directory)
trap 'rm -rf "$logs"' EXIT

# The time of every child that has ended.
cpu_seconds() { awk '{ print int(($16 + $17) / 100) }' "/proc/$$/stat"; }

part() { # part NAME LIMIT COMMAND...: LIMIT is in seconds, on two cores without a compiler's cache
  local name=$1 limit=$2 begin=$SECONDS begin_cpu outcome=passed
  begin_cpu=$(cpu_seconds)
  shift 2
  printf '\n=== %s ===\n' "$name"
  "$@" 2>&1 | tee "$logs/$name" || { outcome=FAILED failed+=("$name"); }
  results+=("$(printf '%-12s %s in %d s of %d, %d s of CPU' "$name" "$outcome" $((SECONDS - begin)) "$limit" \
    $(($(cpu_seconds) - begin_cpu)))")
  mapfile -t -O "${#results[@]}" results < <(grep --fixed-strings '***' "$logs/$name")
}

# excerpt NAME: errors of compilers and failed assertions, then the part's last lines.
excerpt() {
  printf '\n=== failed: %s ===\n' "$1"
  grep --text --extended-regexp --after-context=12 'error:|\*\*\*|FAILED:|^FAULT|Error:|Sanitizer' "$logs/$1" | head -60
  echo ...
  tail -15 "$logs/$1"
}

all_tests() {
  # The setting stays in the build folder, where test.sh finds it.
  tools/setup.sh && cmake --preset release -D TESSERA_WERROR=ON && tools/test.sh
}

# More of the random combinations that the tests draw.
random_options() { TESSERA_RANDOM_CASES=2000 build/bin/test_sharding --warn NoTests 'random options*'; }
random_meshes() { TESSERA_RANDOM_CASES=10000 build/bin/test_tools --warn NoTests 'random meshes*'; }

# Half of the kills are of runs on the first mesh of a test.
kills() { TESSERA_KILLS=100 build/bin/test_tools --warn NoTests '*that is killed*'; }

# sanitized PRESET TARGET...: configures the preset and builds the targets.
sanitized() {
  local preset=$1
  shift
  cmake --preset "$preset" -D TESSERA_WERROR=ON && cmake --build --preset "$preset" --target "$@"
}

# tests_of PRESET CTEST_OPTION...: runs tests that are built.
tests_of() {
  local preset=$1
  shift
  # Twice as many tests as cores: some only wait.
  "${fixed_addresses[@]}" ctest --preset "$preset" --parallel "$((2 * $(nproc)))" --no-tests=error "$@"
}

# GCC 12's thread sanitizer does not know the address layout of kernels with more random bits.
fixed_addresses=()
if setarch --addr-no-randomize true 2>/dev/null; then
  fixed_addresses=(setarch --addr-no-randomize)
fi

# Tests that need a GPU, real or emulated.
about_gpus='^emulation/|/(cuda|emulated)_'
# Tests that run on the backend that was built; the others would do the same again.
on_device='^emulation|:device$'

# The sample has the folders with planted faults about memory and threads. The tests of models and tools train for
# minutes under a sanitizer, and their sources take minutes to compile.
sampled=(runtime kernels autograd sharding optim)
if [[ $sample ]]; then
  sanitized_targets=("${sampled[@]/#/tests_}" tests_emulation)
else
  sanitized_targets=(all)
fi

asan_build() { sanitized emulated "${sanitized_targets[@]}"; }
asan_cpu() { # all but four that take minutes: two train, two encode megabytes
  local long="^tools/finetune_example|^tools/isa:.*the presets|^(models/bpe|tools/prepare):a long text"
  local labels='^(runtime|kernels|autograd|sharding|optim|models|tools|examples)'
  [[ $sample ]] && labels='^(runtime|autograd|sharding|optim)'
  TESSERA_TEST_DEVICE=cpu tests_of emulated --exclude-regex "$about_gpus|$long|_not_built$" --label-regex "$labels"
}
asan_gpu() { # all but the longest: they take minutes on the emulated GPU
  local labels=$on_device
  [[ $sample ]] && labels='^emulation|^(runtime|kernels|autograd|optim):device$'
  tests_of emulated --exclude-regex '^sharding/strategy:.*(resharding|untied|evaluation)' --label-regex "$labels"
}

if [[ $sample ]]; then
  tsan_targets=(tests_{runtime,sharding})
else
  tsan_targets=(tests_{emulation,runtime,kernels,sharding} test_tools_cut_sessions)
fi
tsan_build() { sanitized tsan "${tsan_targets[@]}"; }
tsan_cpu() {
  local exclude=$about_gpus tests='^runtime/|^sharding/|^kernels/.*thread'
  if [[ $sample ]]; then
    exclude+='|^sharding/(random_options|strategy|checkpoint|whole_matrices)' # a minute and more
  else
    tests+='|^tools/cut_sessions'
  fi
  TESSERA_TEST_DEVICE=cpu tests_of tsan --exclude-regex "$exclude" --tests-regex "$tests"
}
tsan_gpu() { # for each kernel a test or two that run its threads in every order
  tests_of tsan --tests-regex '^emulation/|^runtime/|^kernels/.*(schedule|(more|many) tensors)' \
    --label-regex "$on_device"
}

for_gpus() {
  if ! command -v nvcc >/dev/null; then
    echo "skipped: nvcc is not on PATH"
    return
  fi
  local targets=(tessera bench_kernels bench_step tessera_gpu_ladder) options=()
  if [[ $sample ]]; then # two of the five architectures, which have all kernels
    targets=(tessera_kernels)
    options=(-D "CMAKE_CUDA_ARCHITECTURES=80;90a")
  fi
  cmake --preset cuda -D TESSERA_WERROR=ON "${options[@]}" && cmake --build --preset cuda --target "${targets[@]}" || return
  [[ $sample ]] && return
  tools/check_ptxas.py build-cuda kernels kernel_ladder || return
  if ! command -v cuobjdump >/dev/null; then
    echo "skipped the count of instructions: cuobjdump is not on PATH"
    return
  fi
  tools/check_sass.py build-cuda
}

site() {
  if ! command -v emcc >/dev/null; then
    echo "skipped: emcc is not on PATH"
    return
  fi
  tools/site.sh && tests/tools/calculator_check.py build/bin/tessera --count 20 &&
    tests/tools/player_test.py build/bin/tessera --calculator build/calculator/calculator.js &&
    tests/tools/site_check.py build/bin/tessera && tests/tools/player_check.py build/bin/tessera &&
    tests/tools/slides_check.py
}

# The solutions pass and the wrong ones fail: on the CPU, and on the emulated GPU.
assignments() {
  cmake --preset release -D TESSERA_WERROR=ON && cmake --preset emulated -D TESSERA_WERROR=ON &&
    tools/course.py verify ${sample:+--sample}
}

alone() { # every source includes all that it uses
  cmake --preset release -B build-alone -D TESSERA_WERROR=ON -D CMAKE_DISABLE_PRECOMPILE_HEADERS=ON \
    -D TESSERA_TOGETHER=OFF && cmake --build build-alone
}

planted() {
  local status=0 folder
  for folder in sharding models tools kernels; do "tests/$folder/planted_faults.py" || status=1; done
  return "$status"
}

format() {
  git ls-files -z '*.h' '*.cpp' '*.cu' '*.cuh' | xargs -0 -r clang-format-14 --dry-run -Werror
}

part "format" 60 format
part "tests" 780 all_tests
part "rung labs" 60 tools/lab.py verify rungs
part "asan build" 600 asan_build
part "assignments" 420 assignments
part "asan, CPU" 240 asan_cpu
part "asan, GPU" 300 asan_gpu
part "tsan build" 300 tsan_build
part "tsan, CPU" 240 tsan_cpu
part "wheel" 300 tests/tools/wheel_test.sh TESSERA_WERROR=ON
if [[ ! $sample ]]; then
  part "tsan, GPU" 300 tsan_gpu
  part "random" 300 random_options
  part "meshes" 1800 random_meshes
  part "kills" 600 kills
  part "site" 900 site
  part "compile times" 480 tools/compile_times.py
  part "alone" 900 alone
  part "AArch64" 2400 tools/test_aarch64.sh
  part "planted" 14400 planted
fi
part "for GPUs" 600 for_gpus

for name in "${failed[@]}"; do excerpt "$name"; done
printf '\n=== summary ===\n'
printf '%s\n' "${results[@]}"
printf '%d s in all, %d s of CPU\n' "$SECONDS" "$(cpu_seconds)"
if ((${#failed[@]})); then
  echo "CHECK FAILED"
  exit 1
fi
echo "CHECK PASSED"
