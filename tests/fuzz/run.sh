#!/usr/bin/env bash
# tests/fuzz/run.sh [SECONDS [TARGET...]]: builds the fuzz targets with clang 14 and runs each for so many
# seconds (10 if none are given), one at a time.
#
# Inputs found earlier stay in build-fuzz/corpus and are used again. An input that crashes is kept as
# build-fuzz/crashes/TARGET-...: once the cause is mended, it belongs in tests/fuzz/inputs/TARGET/broken.
# Files go to TMPDIR, which is /dev/shm if it is not set.
set -euo pipefail
export TMPDIR=${TMPDIR:-/dev/shm}
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=${1:-10}
shift || true
targets=("$@")
((${#targets[@]})) ||
  targets=(checkpoint dcp gpt2_files manifest model_config run_config safetensors samples tasks token_file
    tokenizer_json weights_index)

[ -f build-fuzz/build.ninja ] || cmake --preset fuzz
cmake --build --preset fuzz --target "${targets[@]/#/fuzz_}"
mkdir -p build-fuzz/crashes

failed=0
for target in "${targets[@]}"; do
  corpus=build-fuzz/corpus/$target
  mkdir -p "$corpus"
  mapfile -t seeds < <(grep . build-fuzz/tests/fuzz/"$target".seeds)
  # Named by their contents, as libFuzzer names them.
  for seed in "${seeds[@]}"; do cp -- "$seed" "$corpus/$(sha1sum <"$seed" | cut -c1-40)"; done
  # The words of the seeds are the dictionary.
  grep -ahoE '[A-Za-z_][A-Za-z0-9_.]+' "${seeds[@]}" | sort -u | sed 's/.*/"&"/' |
    head -400 >build-fuzz/"$target".dict || true
  # libFuzzer refuses an empty dictionary: the seeds of some targets have no words.
  [ -s build-fuzz/"$target".dict ] || echo '"\x00"' >build-fuzz/"$target".dict
  printf '\n=== %s: %s s ===\n' "$target" "$seconds"
  # An input that takes 20 seconds or 2 GiB is a failure too.
  nice -n 19 build-fuzz/bin/fuzz_"$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=2048 \
    -max_len=8192 -dict=build-fuzz/"$target".dict -print_final_stats=1 -close_fd_mask=1 \
    -artifact_prefix=build-fuzz/crashes/"$target"- "$corpus" >build-fuzz/"$target".log 2>&1 ||
    { failed=1 && tail -30 build-fuzz/"$target".log; }
  grep -aE '^#[0-9]+.*(DONE|INITED)|number_of_executed_units|peak_rss' build-fuzz/"$target".log || true
done
exit "$failed"
