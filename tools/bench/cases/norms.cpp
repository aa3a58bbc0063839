#include <fmt/format.h>

#include "kernels/layer_norm/op.h"
#include "kernels/rms_norm/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

constexpr float kEpsilon = 1e-5f;

struct Operands {
  Tensor x, residual, dy, weight, bias, sum, y, dx, mean, rstd, dweight, dbias;
};

Operands operands(std::int64_t N, std::int64_t C, DType dtype) {
  return {.x = noise({N, C}, dtype),
          .residual = noise({N, C}, dtype),
          .dy = noise({N, C}, dtype),
          .weight = noise({C}, dtype),
          .bias = noise({C}, dtype),
          .sum = Tensor::empty({N, C}, dtype),
          .y = Tensor::empty({N, C}, dtype),
          .dx = Tensor::empty({N, C}, dtype),
          .mean = Tensor::zeros({N}, DType::f32),
          .rstd = Tensor::full({N}, DType::f32, 1.0),
          .dweight = Tensor::empty({C}, DType::f32),
          .dbias = Tensor::empty({C}, DType::f32)};
}

void add_layer_norm(CaseList& list, const std::string& shape, double activations,
                    const std::function<Operands()>& make) {
  list.memory_bound("layer_norm_forward", shape, 2 * activations, [=] {
    return
        [t = make()] { layer_norm_forward(t.y, t.mean, t.rstd, t.x, t.weight, t.bias, kEpsilon); };
  });
  list.memory_bound("layer_norm_backward", shape, 3 * activations, [=] {
    return [t = make()] {
      layer_norm_backward(t.dx, t.dweight, t.dbias, t.dy, t.x, t.weight, t.mean, t.rstd,
                          Accumulate::no);
    };
  });
  list.memory_bound("add_layer_norm_forward", shape, 4 * activations, [=] {
    return [t = make()] {
      add_layer_norm_forward(t.y, t.sum, t.mean, t.rstd, t.x, t.residual, t.weight, t.bias,
                             kEpsilon);
    };
  });
  list.memory_bound("add_layer_norm_backward", shape, 4 * activations, [=] {
    return [t = make()] {
      add_layer_norm_backward(t.dx, {}, t.dweight, t.dbias, t.dy, t.residual, t.x, t.weight, t.mean,
                              t.rstd, Accumulate::no);
    };
  });
}

void add_rms_norm(CaseList& list, const std::string& shape, double activations,
                  const std::function<Operands()>& make) {
  list.memory_bound("rms_norm_forward", shape, 2 * activations, [=] {
    return [t = make()] { rms_norm_forward(t.y, t.rstd, t.x, t.weight, kEpsilon); };
  });
  list.memory_bound("rms_norm_backward", shape, 3 * activations, [=] {
    return [t = make()] {
      rms_norm_backward(t.dx, t.dweight, t.dy, t.x, t.weight, t.rstd, Accumulate::no);
    };
  });
  list.memory_bound("add_rms_norm_forward", shape, 4 * activations, [=] {
    return [t = make()] {
      add_rms_norm_forward(t.y, t.sum, t.rstd, t.x, t.residual, t.weight, kEpsilon);
    };
  });
  list.memory_bound("add_rms_norm_backward", shape, 4 * activations, [=] {
    return [t = make()] {
      add_rms_norm_backward(t.dx, t.dweight, t.dy, t.residual, t.x, t.weight, t.rstd,
                            Accumulate::no);
    };
  });
}

}  // namespace

void add_norm_cases(CaseList& list) {
  const std::int64_t N = list.rows, C = list.model.width;
  const std::string shape = fmt::format("{} x {}", N, C);
  const auto make = [N, C, dtype = list.dtype] { return operands(N, C, dtype); };
  add_layer_norm(list, shape, list.bytes(N, C), make);
  add_rms_norm(list, shape, list.bytes(N, C), make);
}

}  // namespace tessera
