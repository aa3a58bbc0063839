// The backward pass of SwiGLU, by the chain rule.
#include "examples/course/17_backward/swiglu.h"

#include <cmath>

namespace tessera::course {

void swiglu_backward(std::span<const float> gate, std::span<const float> up,
                     std::span<const float> dy, std::span<float> dgate, std::span<float> dup) {
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const float g = gate[i], u = up[i];  // dgate and dup may be their memory
    const float sigmoid = 1.0f / (1.0f + std::exp(-g));
    dup[i] = dy[i] * g * sigmoid;
    dgate[i] = dy[i] * u * sigmoid * (1.0f + g * (1.0f - sigmoid));
  }
}

}  // namespace tessera::course
