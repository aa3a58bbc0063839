#!/usr/bin/env bash
# kernel_registers.sh BUILD: the registers of the kernels in a build with nvcc, for bench_counts.
#
#   tools/bench/kernel_registers.sh build-cuda >registers.txt
#   build-counting/bin/bench_counts --model gpt2 --registers registers.txt
set -euo pipefail

find "$1" -path '*/kernels/*' -name '*.cu.o' | sort | while read -r object; do
  echo "File ${object#"$1"}"
  cuobjdump --dump-resource-usage "$object"
done
