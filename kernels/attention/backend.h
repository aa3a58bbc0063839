// The choice between this project's attention kernels and cuDNN's.
#pragma once

#include "runtime/enum_names.h"

namespace tessera {

/// On a GPU, cuDNN's kernels run where they support the arguments; otherwise tessera's do.
enum class AttentionBackend { tessera, cudnn };
template <>
inline constexpr EnumNames<AttentionBackend> kEnumNames<AttentionBackend> = {"attention",
                                                                             {"tessera", "cudnn"}};

/// The choice of the calling thread's rank.
AttentionBackend attention_backend();

/// Raises Error if this build or the rank's device has no such kernels.
void set_attention_backend(AttentionBackend backend);

/// Whether cuDNN's backward pass gives the same bits in every run. It does by default. In any order
/// it is faster and takes less memory; benchmarks compare with both.
enum class CudnnOrder { same, any };
template <>
inline constexpr EnumNames<CudnnOrder> kEnumNames<CudnnOrder> = {"order", {"same", "any"}};

CudnnOrder cudnn_order();
void set_cudnn_order(CudnnOrder order);

}  // namespace tessera
