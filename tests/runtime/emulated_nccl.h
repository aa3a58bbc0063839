// What tests of the emulated NCCL share.
#pragma once

#include <nccl.h>

namespace tessera::test {

/// The communicator's state after the call that is under way.
inline ncclResult_t settled(ncclComm_t comm) {
  ncclResult_t state = ncclInProgress;
  do ncclCommGetAsyncError(comm, &state);
  while (state == ncclInProgress);
  return state;
}

}  // namespace tessera::test
