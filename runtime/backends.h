// The devices that this build has kernels for.
#pragma once

namespace tessera {

/// Does this build have the CUDA backend (for GPUs, or emulated on the CPU)? Code for it stands
/// behind `if constexpr (kHasCuda)`: builds without the backend compile it and do not link it.
#if defined(TESSERA_CUDA)
inline constexpr bool kHasCuda = true;
#else
inline constexpr bool kHasCuda = false;
#endif

/// Does this build have cuDNN's attention? Only builds for GPUs that found cuDNN and its frontend.
#if defined(TESSERA_CUDNN)
inline constexpr bool kHasCudnn = true;
#else
inline constexpr bool kHasCudnn = false;
#endif

}  // namespace tessera
