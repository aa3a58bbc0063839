// The operands and results of the ladders' rungs for a GPU, in the host's memory.
#pragma once

#include <vector>

#include "examples/kernel_ladder/attention/gpu_rungs.h"
#include "examples/kernel_ladder/attention/operands.h"
#include "examples/kernel_ladder/matmul/operands.h"
#include "examples/kernel_ladder/norm/gpu_rungs.h"
#include "examples/kernel_ladder/norm/operands.h"
#include "examples/kernel_ladder/softmax/gpu_rungs.h"
#include "examples/kernel_ladder/softmax/operands.h"

namespace tessera::test {

using kernel_ladder::attention::Attention;
using kernel_ladder::norm::Norm;
using kernel_ladder::softmax::Softmax;

template <typename T>
struct HostProduct {
  explicit HostProduct(const kernel_ladder::Operands& from)
      : M(from.c.size(0)),
        N(from.c.size(1)),
        K(from.a.size(1)),
        a(from.a.to_vector<T>()),
        b(from.b.to_vector<T>()),
        c(from.c.to_vector<float>()) {}

  kernel_ladder::Product<T> problem() { return {M, N, K, a.data(), b.data(), c.data(), nullptr}; }

  std::int64_t M, N, K;
  std::vector<T> a, b;
  std::vector<float> c;
};

struct HostNorm {
  explicit HostNorm(const kernel_ladder::norm::Operands& from)
      : N(from.x.size(0)),
        C(from.x.size(1)),
        x(from.x.to_vector<float>()),
        weight(from.weight.to_vector<float>()),
        y(from.y.to_vector<float>()),
        rstd(from.rstd.to_vector<float>()) {}

  Norm problem() { return {N, C, x.data(), weight.data(), y.data(), rstd.data()}; }

  std::int64_t N, C;
  std::vector<float> x, weight, y, rstd;
};

struct HostSoftmax {
  explicit HostSoftmax(const kernel_ladder::softmax::Operands& from)
      : N(from.x.size(0)),
        C(from.x.size(1)),
        x(from.x.to_vector<float>()),
        target(from.target.to_vector<std::int32_t>()),
        y(from.y.to_vector<float>()),
        loss(from.loss.to_vector<float>()) {}

  Softmax problem() { return {N, C, x.data(), target.data(), y.data(), loss.data()}; }

  std::int64_t N, C;
  std::vector<float> x;
  std::vector<std::int32_t> target;
  std::vector<float> y, loss;
};

struct HostAttention {
  explicit HostAttention(const kernel_ladder::attention::Operands& from)
      : H(from.q.size(0)),
        T(from.q.size(1)),
        D(from.q.size(2)),
        scale(from.scale),
        q(from.q.to_vector<float>()),
        k(from.k.to_vector<float>()),
        v(from.v.to_vector<float>()),
        o(from.o.to_vector<float>()) {}

  Attention problem() {
    return {H, T, D, q.data(), k.data(), v.data(), o.data(), scale, /*scores=*/nullptr};
  }

  std::int64_t H, T, D;
  float scale;
  std::vector<float> q, k, v, o;
};

}  // namespace tessera::test
