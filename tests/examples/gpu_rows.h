// Rows on a GPU for the rungs of the ladders, and their results.
#pragma once

#include <vector>

#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "examples/kernel_ladder/softmax/operands.h"
#include "tests/support/random_tensor.h"

namespace tessera::test {

using kernel_ladder::norm::Norm;
using kernel_ladder::softmax::Softmax;

struct HostNorm {
  std::int64_t N, C;
  std::vector<float> x, weight, y, rstd;

  Norm problem() { return {N, C, x.data(), weight.data(), y.data(), rstd.data()}; }
};

struct GpuNorm {
  GpuNorm(std::int64_t N, std::int64_t C)
      : x(normal_tensor({N, C}, DType::f32, "x")),
        weight(normal_tensor({C}, DType::f32, "weight")),
        y(Tensor::zeros({N, C}, DType::f32)),
        rstd(Tensor::zeros({N}, DType::f32)) {}

  Norm problem() const {
    return {x.size(0),       x.size(1),         x.data<float>(), weight.data<float>(),
            y.data<float>(), rstd.data<float>()};
  }
  HostNorm results() const {
    return {x.size(0),
            x.size(1),
            x.to_vector<float>(),
            weight.to_vector<float>(),
            y.to_vector<float>(),
            rstd.to_vector<float>()};
  }

  Tensor x, weight, y, rstd;
};

struct HostSoftmax {
  std::int64_t N, C;
  std::vector<float> x;
  std::vector<std::int32_t> target;
  std::vector<float> y, loss;

  Softmax problem() { return {N, C, x.data(), target.data(), y.data(), loss.data()}; }
};

struct GpuSoftmax {
  GpuSoftmax(std::int64_t N, std::int64_t C)
      : x(normal_tensor({N, C}, DType::f32, "x", 3.0)),
        target(index_tensor({N}, C, "target")),
        y(Tensor::zeros({N, C}, DType::f32)),
        loss(Tensor::zeros({N}, DType::f32)) {}

  Softmax problem() const {
    return {x.size(0),       x.size(1),         x.data<float>(), target.data<std::int32_t>(),
            y.data<float>(), loss.data<float>()};
  }
  HostSoftmax results() const {
    return {x.size(0),
            x.size(1),
            x.to_vector<float>(),
            target.to_vector<std::int32_t>(),
            y.to_vector<float>(),
            loss.to_vector<float>()};
  }

  Tensor x, target, y, loss;
};

}  // namespace tessera::test
