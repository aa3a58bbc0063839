// The part of NCCL's interface that Tessera uses, for threads of one process.
//
// It is stricter than the library. Communicators must be non-blocking, and finalized before they are
// destroyed. A busy communicator takes no calls, and is split only when its calls have ended. Ranks
// that split and call in different orders get an error. The buffers of a call are in place as documented,
// or disjoint. A call that the ranks disagree about is an error; the library would hang. Sums are
// formed in an order of their own and rounded at every step, and maxima lose NaN, as in the library.
// Memory is registered once with a communicator, and deregistered before it is freed and before the
// communicator is finalized. Gathers into windows are at the same offset on all ranks. Memory is not
// freed while its device has work.
#pragma once

#include <climits>
#include <cstddef>

#include <cuda_runtime_api.h>

#define NCCL_VERSION(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
#define NCCL_VERSION_CODE NCCL_VERSION(2, 28, 9)

struct ncclComm;
using ncclComm_t = ncclComm*;
struct ncclWindow_vidmem;
using ncclWindow_t = ncclWindow_vidmem*;

inline constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};

enum ncclResult_t {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
enum ncclDataType_t {
  ncclUint8 = 1,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclBfloat16 = 9,
};

#define NCCL_CONFIG_UNDEF_INT INT_MIN
#define NCCL_SPLIT_NOCOLOR -1
#define NCCL_CTA_POLICY_ZERO 0x02
#define NCCL_WIN_COLL_SYMMETRIC 0x01

struct ncclConfig_t {
  int blocking;
  int maxCTAs;
  int splitShare;
  int CTAPolicy;
};
#define NCCL_CONFIG_INITIALIZER                                                           \
  {                                                                                       \
    .blocking = 1, .maxCTAs = NCCL_CONFIG_UNDEF_INT, .splitShare = NCCL_CONFIG_UNDEF_INT, \
    .CTAPolicy = NCCL_CONFIG_UNDEF_INT                                                    \
  }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
/// `config` must be null: the child has its parent's. `*child` is null until the parent's state is success.
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
const char* ncclGetErrorString(ncclResult_t result);
/// The reason for the calling thread's last refused call, or for the communicator's failure.
const char* ncclGetLastError(ncclComm_t comm);

/// Device memory that may be registered. It is taken in multiples of 2 MiB.
ncclResult_t ncclMemAlloc(void** data, std::size_t bytes);
ncclResult_t ncclMemFree(void* data);
/// All ranks register memory of one size. `*window` is null until the communicator's state is success.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, std::size_t bytes,
                                    ncclWindow_t* window, int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window);

ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);
