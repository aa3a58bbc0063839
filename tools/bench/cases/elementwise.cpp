#include <fmt/format.h>

#include "kernels/add/op.h"
#include "kernels/bias/op.h"
#include "kernels/cast/op.h"
#include "kernels/dropout/op.h"
#include "kernels/gelu/op.h"
#include "kernels/swiglu/op.h"
#include "tools/bench/cases/cases.h"
#include "tools/measure/noise.h"

namespace tessera {
namespace {

void add_activations(CaseList& list) {
  const std::int64_t N = list.rows, F = list.model.mlp_width;
  const DType dtype = list.dtype;
  const double wide = list.bytes(N, F);
  const std::string shape = fmt::format("{} x {}", N, F);
  list.memory_bound("gelu_forward", shape, 2 * wide, [=] {
    return [y = Tensor::empty({N, F}, dtype), x = noise({N, F}, dtype)] { gelu_forward(y, x); };
  });
  list.memory_bound("gelu_backward", shape, 3 * wide, [=] {
    return [dx = Tensor::empty({N, F}, dtype), dy = noise({N, F}, dtype),
            x = noise({N, F}, dtype)] { gelu_backward(dx, dy, x); };
  });
  list.memory_bound("swiglu_forward", shape, 3 * wide, [=] {
    return [y = Tensor::empty({N, F}, dtype), both = noise({N, 2 * F}, dtype)] {
      swiglu_forward(y, first_half(both), second_half(both));
    };
  });
  list.memory_bound("swiglu_backward", shape, 5 * wide, [=] {
    return [dboth = Tensor::empty({N, 2 * F}, dtype), dy = noise({N, F}, dtype),
            both = noise({N, 2 * F}, dtype)] {
      swiglu_backward(first_half(dboth), second_half(dboth), dy, first_half(both),
                      second_half(both));
    };
  });
  list.memory_bound("bias_backward", shape, wide, [=] {
    return [dbias = Tensor::empty({F}, DType::f32), dy = noise({N, F}, dtype)] {
      bias_backward(dbias, dy, Accumulate::no);
    };
  });
}

void add_casts(CaseList& list, const std::string& shape) {
  const std::int64_t N = list.rows, C = list.model.width;
  const DType dtype = list.dtype;
  if (dtype == DType::f32) return;
  const double bytes = list.bytes(N, C) + CaseList::bytes(N, C, DType::f32);
  list.memory_bound("cast_to_f32", shape, bytes, [=] {
    return [y = Tensor::empty({N, C}, DType::f32), x = noise({N, C}, dtype)] { cast(y, x); };
  });
  list.memory_bound("cast_from_f32", shape, bytes, [=] {
    return [y = Tensor::empty({N, C}, dtype), x = noise({N, C}, DType::f32)] { cast(y, x); };
  });
}

}  // namespace

void add_elementwise_cases(CaseList& list) {
  add_activations(list);
  const std::int64_t N = list.rows, C = list.model.width;
  const DType dtype = list.dtype;
  const std::string shape = fmt::format("{} x {}", N, C);
  list.memory_bound("add", shape, 3 * list.bytes(N, C), [=] {
    return [y = Tensor::empty({N, C}, dtype), a = noise({N, C}, dtype), b = noise({N, C}, dtype)] {
      add(y, a, b);
    };
  });
  list.memory_bound("dropout", shape, 2 * list.bytes(N, C), [=] {
    return [y = Tensor::empty({N, C}, dtype), x = noise({N, C}, dtype)] {
      dropout(y, x, 0.1f, RandomStream(1, "bench"));
    };
  });
  add_casts(list, shape);
}

}  // namespace tessera
