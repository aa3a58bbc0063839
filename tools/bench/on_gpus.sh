#!/usr/bin/env bash
# on_gpus.sh BUILD OUT [PART...]: runs all checks and benchmarks for 2 to 8 GPUs of one machine, correctness
# first.
#
# BUILD, OUT and the parts are as for on_gpu.sh. Every rank is a process with a GPU of its own, and NCCL moves
# the tensors; the programs start their ranks themselves. It uses the GPUs of CUDA_VISIBLE_DEVICES, or all, and
# 2, 4 or 8 of them. Exits with 1 if a part failed, or with 77 and the reason if there are not two GPUs or the build
# has no NCCL.
#
#   bits         all strategies: the same bits, memory and bytes sent as predicted   5 min
#   bits_threads the same bits from ranks that are threads, without NCCL             3 min
#   bits_ranks   the same bits on fewer ranks (train.elastic)                        3 min
#   bits_cuts    the same bits with tensor, context and pipeline parallelism         4 min
#   tests        tests of NCCL, whose ranks are threads                              5 min
#   collectives  bandwidths by size, on two GPUs and on all                          5 min
#   strategies   steps in NCCL's order: memory, time, exposed communication          6 min
#   ctas         fsdp with 8, 16, 32 thread blocks of NCCL                           5 min
#   windows      deterministic sums with windows and without: bits and time         5 min
#   prediction   the same steps as tessera plan predicts them                        3 min
#   torch        the same steps by PyTorch's DDP and FSDP, in f32                    8 min
#   graph        NCCL's calls in a graph: the same bits                              3 min
#
# PYTHON names a Python; torch needs one with PyTorch and Transformers. By default python3.
#
# shellcheck disable=SC2317 # the parts' functions are called by name
set -uo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tools/bench/gpu_parts.sh
source "$here/gpu_parts.sh"

# The number of GPUs to use: a power of two, for equal bits.
count_gpus() {
  local all count=1
  if [[ -n ${CUDA_VISIBLE_DEVICES:-} ]]; then
    all=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
  else
    all=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU')
  fi
  while ((2 * count <= all && count < 8)); do ((count *= 2)); done
  echo $((all < 2 ? all : count))
}

# compared NAME ARGUMENT...: bench_strategies on all GPUs.
compared() {
  local name=$1
  shift
  "$bin/bench_strategies" --device cuda --ranks "$gpus" --json "$out/$name.json" "$@"
}

bits() {
  compared bits_tiny --steps 3 --batch $((2 * gpus)) &&
    compared bits_gpt2 --model gpt2 --dtype bf16 --steps 3 --batch $((2 * gpus)) --sequence 512
}

# results FILE.json: every row's loss, gradient norm and weights.
results() {
  "$python" -c 'import json, sys
for row in json.load(open(sys.argv[1]))["strategies"]:
    print(row["name"], row["loss"], row["gradient_norm"], row["weights_checksum"])' "$1"
}

bits_threads() {
  [[ -e $out/bits_tiny.json ]] || { echo "bits_tiny.json is not there: the part bits writes it"; exit 77; }
  compared bits_threads --steps 3 --batch $((2 * gpus)) sharding.communicator=threads &&
    diff <(results "$out/bits_tiny.json") <(results "$out/bits_threads.json")
}

bits_ranks() {
  local ranks rows="fsdp"
  for ((ranks = gpus / 2; ranks > 0; ranks /= 2)); do rows+="; fsdp ranks=$ranks"; done
  compared bits_ranks --steps 3 --batch $((2 * gpus)) train.elastic="$gpus" --rows "$rows"
}

bits_cuts() {
  compared bits_cuts --model llama3.2-1b --dtype bf16 --steps 3 --batch $((2 * gpus)) --sequence 512 \
    sharding.grid=2 train.elastic="$gpus" model.layers=4 --rows "fsdp; fsdp tensor_parallel=2; fsdp context_parallel=2"
  local status=$?
  compared bits_pipeline --model gpt2 --dtype bf16 --steps 3 --batch $((4 * gpus)) --sequence 512 \
    train.elastic="$gpus" --rows "fsdp; fsdp pipeline_parallel=2" || status=1
  return "$status"
}

# Their ranks are threads, which may wait for each other's GPUs for ever: the part's limit ends them.
tests() { "$bin/test_sharding" "nccl: *~[cpu]~[.]" --use-colour no; }

collectives() {
  local ranks
  for ranks in 2 "$gpus"; do
    "$bin/bench_collectives" --device cuda --ranks "$ranks" --kib 64,1024,16384,65536,262144 \
      --json "$out/collectives_$ranks.json" || return 1
    ((gpus > 2)) || return 0
  done
}

# The steps to compare and to predict: model, rows of 1024 tokens of a rank, strategies.
steps=("gpt2 16 ddp,fsdp" "gpt2-xl 4 fsdp,zero3" "llama3.2-1b 4 fsdp,zero2")

strategies() {
  local step model batch names status=0
  for step in "${steps[@]}"; do
    read -r model batch names <<<"$step"
    compared "strategies_$model" --any-order --model "$model" --dtype bf16 --steps 10 \
      --batch $((batch * gpus)) --sequence 1024 --strategies "$names" || status=1
  done
  return "$status"
}

ctas() {
  local count status=0
  for count in 8 16 32; do
    compared "ctas_$count" --any-order --model llama3.2-1b --dtype bf16 --steps 10 --batch $((4 * gpus)) \
      --sequence 1024 --strategies fsdp sharding.nccl_ctas="$count" || status=1
  done
  return "$status"
}

windows() {
  local on
  for on in false true; do
    compared "windows_$on" --model llama3.2-1b --dtype bf16 --steps 10 --batch $((4 * gpus)) \
      --sequence 1024 --strategies fsdp,ddp sharding.nccl_windows="$on" || return 1
  done
  diff <(results "$out/windows_false.json") <(results "$out/windows_true.json")
}

prediction() {
  local step model batch names machine=h100 status=0
  nvidia-smi --query-gpu=name --format=csv,noheader | grep -q H200 && machine=h200-sustained
  for step in "${steps[@]}"; do
    read -r model batch names <<<"$step"
    "$bin/tessera" plan "$model" --ranks "$gpus" --machine "$machine" runtime.compute_dtype=bf16 \
      data.batch_size=$((batch * gpus)) data.sequence_length=1024 || status=1
    [[ ! -e $out/strategies_$model.json ]] || "$python" -c 'import json, sys
for row in json.load(open(sys.argv[1]))["strategies"]:
    print("measured: {name:<12} {step_ms:11.2f} ms, exposed {exposed_communication_ms:.2f} ms".format(**row))' \
      "$out/strategies_$model.json"
  done
  return "$status"
}

torch() {
  need_torch
  "$python" "$here/torch_strategies.py" --device cuda --launch threads --ranks "$gpus" \
    --batch $((8 * gpus)) --sequence 1024 --steps 10 --tessera "$bin/tessera" --json "$out/torch.json"
}

graph() {
  compared graph --steps 6 --batch $((2 * gpus)) --model gpt2 --dtype bf16 --sequence 512 \
    --rows "fsdp; fsdp graph=true; ddp graph=true"
}

gpus=$(count_gpus)
if ((gpus < 2)); then
  echo "on_gpus.sh needs 2 GPUs, and this machine shows $gpus: on_gpu.sh is for one"
  exit 77
fi
if ! ldd "$bin/tessera" 2>/dev/null | grep -q libnccl; then
  echo "the build in ${bin%/bin} has no NCCL: install libnccl-dev and build with the preset cuda"
  exit 77
fi

export bin out here python gpus
export -f compared bits results bits_threads bits_ranks bits_cuts tests collectives strategies ctas windows \
  prediction torch graph

begin
say "$gpus GPUs"
part bits 5 bits
part bits_threads 3 bits_threads
part bits_ranks 3 bits_ranks
part bits_cuts 4 bits_cuts
part tests 5 tests
part collectives 5 collectives
part strategies 6 "$(declare -p steps); strategies"
part ctas 5 ctas
part windows 5 windows
part prediction 3 "$(declare -p steps); prediction"
part torch 8 torch
part graph 3 graph
exit $failed
