#include "kernels/matmul/options.h"

#include "runtime/context.h"

namespace tessera {

MatmulOptions& matmul_options() {
  return context().state<MatmulOptions>();
}

bool takes_swiglu_epilogue(SwigluChoice choice, std::int64_t channels) {
  if (choice == SwigluChoice::automatic) return channels < kSeparateSwigluDepth;
  return choice == SwigluChoice::epilogue;
}

}  // namespace tessera
