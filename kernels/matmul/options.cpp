#include "kernels/matmul/options.h"

#include "runtime/context.h"

namespace tessera {

MatmulOptions& matmul_options() {
  return context().state<MatmulOptions>();
}

}  // namespace tessera
