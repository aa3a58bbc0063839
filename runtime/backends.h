// Which devices this build has kernels for.
#pragma once

namespace tessera {

/// Does this build have the CUDA backend (for GPUs, or emulated on the CPU)? Code for it stands
/// behind `if constexpr (kHasCuda)`: without the backend it is compiled and never linked.
#if defined(TESSERA_CUDA)
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

/// Does it have cuDNN's attention? Only builds for GPUs, where cuDNN and its frontend were found.
#if defined(TESSERA_CUDNN)
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

}  // namespace tessera
