// The backward pass of SwiGLU.
#pragma once

#include <span>

namespace tessera::course {

/// The gradients of y[i] = silu(gate[i]) up[i], silu(g) = g / (1 + e^-g), from dy. All have one length.
/// dgate may be the memory of gate, and dup that of up.
void swiglu_backward(std::span<const float> gate, std::span<const float> up,
                     std::span<const float> dy, std::span<float> dgate, std::span<float> dup);

}  // namespace tessera::course
