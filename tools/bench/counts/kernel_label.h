// Short names of kernels, and the phases of a step that launch them.
#pragma once

#include <string>

#include "runtime/enum_names.h"

namespace tessera {

/// "swiglu/forward_kernel" for a kernel of kernels/swiglu with the full name "void
/// tessera::cuda::(anonymous namespace)::forward_kernel<...>(...)". An elementwise kernel has its
/// functor's name: "elementwise/GeluForward". A product of 8-bit numbers has ", 8 bits" behind its name. Without
/// a file, the name itself.
std::string kernel_label(std::string name, const std::string& file);

enum class StepPhase { forward, backward, optimizer };

template <>
inline constexpr EnumNames<StepPhase> kEnumNames<StepPhase> = {
    "phase", {"forward", "backward", "optimizer"}};

/// The phase of a launch of the kernel with this label, if the launch before was in `phase`. The phases
/// are those that bench_step times. Forward includes the gradients of the head, which are computed with
/// the loss (kernels/linear_cross_entropy), and ends where the last norm's backward pass is launched.
/// The optimizer begins with the gradient norm.
StepPhase next_phase(StepPhase phase, const std::string& label);

}  // namespace tessera
