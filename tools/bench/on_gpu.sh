#!/usr/bin/env bash
# on_gpu.sh BUILD OUT [PART...]: runs all checks and benchmarks for a GPU, the most informative first.
#
# BUILD is a folder built with the preset cuda, or unpacked from what pack_for_gpu.sh packed. If another
# machine built it, tests that run Tessera's programs find them only in the folder where they were built.
# Every part has a time limit and writes OUT/PART.log, and OUT/PART.gpu.csv: every 100 ms the SM clock, the
# power, the reasons for a lower clock, the memory's clock and the temperature. OUT/summary.txt has a line
# for each part. A part that stands there as ok is not run again. Parts that need a missing tool (PyTorch,
# compute-sanitizer, MPI, NCCL) are skipped with a line that says so. Exits with 1 if a part failed.
#
#   kernel_tests   tests of the kernels                                   5 min
#   kernels        bench_kernels, against copies, cuBLASLt and cuDNN      5 min
#   step           bench_step of three models, both attentions            5 min
#   step_choices   the same as a graph, and by other kernels              7 min
#   torch_step     the same steps in PyTorch, eager and compiled         10 min
#   torch_large    llama3.2-1b and 8B, and a mixture of experts, in both  10 min
#   torch_llmq     a step of 524,288 tokens in both, as llmq measures     10 min
#   memcheck       tests of attention and norms under compute-sanitizer  10 min
#   racecheck      the same, races in shared memory                      10 min
#   tests          all other tests                                       10 min
#   strategies     four ranks that share the GPU                          5 min
#   collectives    two ranks that share the GPU                           3 min
#   nccl           two processes that share the GPU, through NCCL         3 min
#   torch_kernels  the kernels in PyTorch                                10 min
#   memcheck_all   tests of all kernels under compute-sanitizer          30 min
#   racecheck_all  the same, races in shared memory                      30 min
#
# PYTHON names a Python that has PyTorch; by default python3.
#
# shellcheck disable=SC2317 # the parts' functions are called by name
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/bench/gpu_parts.sh
source "$here/gpu_parts.sh"

kernel_tests() { each '/test_kernels_'; }
other_tests() { each '/test_(runtime|autograd|sharding|optim|models|tools)_'; }

# sanitized TOOL PATTERN
sanitized() {
  need compute-sanitizer
  each "$2" compute-sanitizer --tool "$1" --error-exitcode 9
}

kernels() { "$bin/bench_kernels" --device cuda --json "$out/kernels.json"; }

# The steps to compare: model, rows of 1024 tokens.
steps=("gpt2 16" "gpt2-xl 4" "llama3.2-1b 4")

# steps_with NAME ARGUMENT...: bench_step of every model, with further arguments.
steps_with() {
  local name=$1 status=0 pair model batch
  shift
  for pair in "${steps[@]}"; do
    read -r model batch <<<"$pair"
    "$bin/bench_step" --device cuda --dtype bf16 --model "$model" --batch "$batch" --sequence 1024 \
      --steps 20 --sustained 10 --json "$out/step_${model}_$name.json" "$@" || status=1
  done
  return "$status"
}

step() {
  local status=0
  steps_with tessera || status=1
  steps_with cudnn --attention cudnn # a build need not have cuDNN
  return "$status"
}

step_choices() {
  local status=0
  steps_with graph runtime.graph=true || status=1
  steps_with measured kernels.cublaslt=measured || status=1
  steps_with early kernels.early_launch=true || status=1
  local steps=("gpt2 16") # the one with GELU
  steps_with early_graph kernels.early_launch=true runtime.graph=true || status=1
  steps_with own_gelu kernels.gelu=own || status=1
  steps=("llama3.2-1b 4") # the one with SwiGLU
  steps_with separate kernels.swiglu=separate || status=1
  return "$status"
}

torch_kernels() {
  need_torch
  [[ -e $out/kernels.json ]] || { echo "kernels.json is not there: the part kernels writes it"; exit 77; }
  "$python" "$here/torch_kernels.py" "$out/kernels.json" --json "$out/torch_kernels.json"
}

torch_step() {
  need_torch
  local status=0 model batch
  for pair in "${steps[@]}"; do
    read -r model batch <<<"$pair"
    "$python" "$here/torch_step.py" --model "$model" --batch "$batch" --sequence 1024 \
      --ours "$bin/bench_step" --json "$out/torch_step_$model.json" || status=1
  done
  return "$status"
}

# against_torch NAME ARGUMENT...: torch_step.py, compiled only: eager steps would need more memory and time.
against_torch() {
  local name=$1
  shift
  "$python" "$here/torch_step.py" --variants compile --warmup 2 --ours "$bin/bench_step" \
    --json "$out/torch_step_$name.json" "$@"
}

torch_large() {
  need_torch
  local status=0
  against_torch llama3.2-1b_2048 --model llama3.2-1b --batch 8 --sequence 2048 || status=1
  against_torch llama3-8b --model llama3-8b --batch 2 --sequence 4096 --masters bf16 || status=1
  against_torch qwen3-30b-a3b_8_layers --model qwen3-30b-a3b --batch 4 --sequence 4096 --masters bf16 \
    --steps 10 model.layers=8 || status=1
  return "$status"
}

torch_llmq() {
  need_torch
  against_torch qwen2.5-1.5b_524288 --model qwen2.5-1.5b --batch 512 --sequence 1024 --accumulation 16 \
    --steps 2
}

strategies() {
  "$bin/bench_strategies" --device cuda --ranks 4 --steps 3 --json "$out/strategies_tiny.json" &&
    "$bin/bench_strategies" --device cuda --ranks 4 --model gpt2 --dtype bf16 --batch 16 \
      --sequence 512 --strategies ddp,zero3,fsdp --json "$out/strategies_gpt2.json"
}

collectives() { "$bin/bench_collectives" --device cuda --ranks 2 --json "$out/collectives.json"; }

nccl() {
  need mpirun
  ldd "$bin/bench_strategies" | grep -q libnccl || { echo "the build has no NCCL"; exit 77; }
  "$here/nccl_one_gpu.sh" 2 "$bin/bench_strategies" --device cuda --steps 3 \
    --json "$out/nccl.json"
}

export bin out here python
export -f sanitized kernel_tests other_tests kernels steps_with step \
  step_choices torch_kernels torch_step against_torch torch_large torch_llmq strategies collectives nccl

begin
part kernel_tests 5 kernel_tests
part kernels 5 kernels
part step 5 "$(declare -p steps); step"
part step_choices 7 "$(declare -p steps); step_choices"
part torch_step 10 "$(declare -p steps); torch_step"
part torch_large 10 torch_large
part torch_llmq 10 torch_llmq
part memcheck 10 "sanitized memcheck '/test_kernels_(attention|norms|qk_norm)'"
part racecheck 10 "sanitized racecheck '/test_kernels_(attention|norms|qk_norm)'"
part tests 10 other_tests
part strategies 5 strategies
part collectives 3 collectives
part nccl 3 nccl
part torch_kernels 10 torch_kernels
part memcheck_all 30 'sanitized memcheck /test_kernels_'
part racecheck_all 30 'sanitized racecheck /test_kernels_'
exit $failed
