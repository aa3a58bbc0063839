#!/bin/bash
# nccl_one_gpu.sh RANKS PROGRAM [ARGUMENTS...]: runs several processes that share one GPU and talk
# through NCCL, to try its calls on a machine with one GPU.
#
# NCCL refuses two ranks of one host on one GPU ("Duplicate GPU detected"). It tells hosts apart by a
# hash that NCCL_HOSTID replaces, once per process; so each process claims to be a separate host.
# Between "hosts" NCCL uses the network: here sockets over the loopback interface. That tests NCCL's
# interface, not its transports within a machine. The ranks' kernels take turns on the GPU. They have few
# thread blocks, so that the blocks of all ranks fit on it at once and none waits for a block that is
# not running. The speed says nothing. It needs NCCL below 2.30; later versions have
# NCCL_MULTI_RANK_GPU_ENABLE.
set -euo pipefail

if [ $# -lt 2 ]; then
  sed -n '2,3s/^# //p' "$0" >&2
  exit 2
fi
ranks=$1
shift
export NCCL_NET=Socket NCCL_IB_DISABLE=1 NCCL_SOCKET_IFNAME=lo NCCL_MAX_CTAS=1 NCCL_MNNVL_ENABLE=0
# Borrowed machines often have no other user than root, as whom mpirun does not start unasked.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}
exec mpirun -np "$ranks" --oversubscribe \
  bash -c 'NCCL_HOSTID="rank-$OMPI_COMM_WORLD_RANK" exec "$@"' rank "$@"
