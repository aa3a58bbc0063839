#include "kernels/attention/backend.h"

#include "runtime/backends.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {

AttentionBackend attention_backend() {
  return context().state<AttentionBackend>();
}

void set_attention_backend(AttentionBackend backend) {
  if (backend == AttentionBackend::cudnn) {
    check(!context().device().is_cpu(),
          "cuDNN's attention needs a GPU, but this rank runs on {}; use tessera's",
          to_string(context().device()));
    check(kHasCudnn,
          "this build has no cuDNN; use tessera's attention, or build with TESSERA_CUDA=on where "
          "cmake finds cudnn.h and cudnn_frontend.h");
  }
  context().state<AttentionBackend>() = backend;
}

CudnnOrder cudnn_order() {
  return context().state<CudnnOrder>();
}
void set_cudnn_order(CudnnOrder order) {
  context().state<CudnnOrder>() = order;
}

}  // namespace tessera
