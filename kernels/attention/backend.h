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

}  // namespace tessera
