// runtime/step_values.h in device code.
#pragma once

#include "kernels/cuda/language.h"
#include "runtime/step_values.h"

namespace tessera::gpu {

/// The value in this step. All threads read one address.
template <typename T>
__device__ inline T current(const StepValue<T>& value) {
  return value.slot != nullptr ? *value.slot : value.value;
}

}  // namespace tessera::gpu
