#include "kernels/matmul/measured.h"

#include "runtime/backends.h"
#include "runtime/context.h"

namespace tessera {

MeasuredAlgorithms measured_algorithms() {
  if constexpr (kHasCuda) {
    if (!context().device().is_cpu()) return cuda::measured_algorithms();
  }
  return {};
}

bool use_measured_algorithms(const MeasuredAlgorithms& algorithms) {
  if constexpr (kHasCuda) {
    if (!context().device().is_cpu()) return cuda::use_measured_algorithms(algorithms);
  }
  return algorithms.made_by.empty();
}

}  // namespace tessera
