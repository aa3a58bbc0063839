#include "tools/config/kernel_options.h"

#include "kernels/attention/backend.h"
#include "kernels/linear_cross_entropy/options.h"
#include "kernels/matmul/options.h"
#include "kernels/options.h"
#include "runtime/check.h"
#include "runtime/context.h"

namespace tessera {

void choose_kernels(const Config& config, cpu::Isa best) {
  // A dry run multiplies nothing, and its memory does not depend on the instruction set.
  const cpu::Isa isa = context().is_dry() ? best : config.runtime.isa.value_or(best);
  check(cpu::has_isa(isa, best),
        "runtime.isa is {}, but this CPU's best level is {}; take that, or auto", enum_name(isa),
        enum_name(best));
  set_attention_backend(config.kernels.attention);
  set_cudnn_order(config.kernels.cudnn_order);
  matmul_options().library = config.kernels.matmul;
  matmul_options().isa = isa;
  matmul_options().choice = config.kernels.cublaslt;
  matmul_options().swiglu = config.kernels.swiglu;
  matmul_options().gelu = config.kernels.gelu;
  head_options().chunk = config.kernels.head_chunk;
  kernel_options().early_launch = config.kernels.early_launch;
}

}  // namespace tessera
