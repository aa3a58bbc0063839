// The part of NCCL's device interface that Tessera uses.
#pragma once

#include <cstddef>

#include <nccl.h>

struct ncclTeam_t {
  int nRanks, rank, stride;
};

/// The ranks whose windows this one loads from and stores to: neighbours in the communicator.
ncclTeam_t ncclTeamLsa(ncclComm_t comm);

/// The CUDA runtime's. Whether it is device memory, such as a window that kernels read.
enum cudaMemoryType { cudaMemoryTypeUnregistered = 0, cudaMemoryTypeDevice = 2 };
struct cudaPointerAttributes {
  cudaMemoryType type;
};
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data);

/// For kernels: the address, here, of byte `offset` of the window of a rank of the team.
void* ncclGetLsaPointer(ncclWindow_t window, std::size_t offset, int peer);
