// Kernels other than products have the same bits on every instruction set.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "kernels/bias/op.h"
#include "kernels/cpu/lanes.h"
#include "kernels/cross_entropy/op.h"
#include "kernels/gelu/op.h"
#include "kernels/layer_norm/op.h"
#include "kernels/matmul/options.h"
#include "kernels/reduce/op.h"
#include "kernels/rms_norm/op.h"
#include "kernels/swiglu/op.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Results = std::vector<Tensor>;

/// 37 rows of 83 elements: no whole vectors.
constexpr std::int64_t kRows = 37, kColumns = 83;

Tensor input(DType dtype, const std::string& name) {
  return test::normal_tensor({kRows, kColumns}, dtype, name);
}
Tensor row(DType dtype, const std::string& name) {
  return test::normal_tensor({kColumns}, dtype, name);
}
Tensor like(const Tensor& x) {
  return Tensor::empty(x.shape(), x.dtype());
}
Tensor statistic(DType dtype) {
  return Tensor::empty({kRows}, statistics_dtype(dtype));
}

Results gelu(DType dtype) {
  const Tensor x = input(dtype, "x"), y = like(x), dx = like(x);
  gelu_forward(y, x);
  gelu_backward(dx, input(dtype, "dy"), x);
  return {y, dx};
}

Results swiglu(DType dtype) {
  const Tensor gate = input(dtype, "gate"), up = input(dtype, "up"), y = like(gate);
  const Tensor dgate = like(gate), dup = like(gate);
  swiglu_forward(y, all_columns(gate), all_columns(up));
  swiglu_backward(all_columns(dgate), all_columns(dup), input(dtype, "dy"), all_columns(gate),
                  all_columns(up));
  return {y, dgate, dup};
}

Results layer_norm(DType dtype) {
  const Tensor x = input(dtype, "x"), weight = row(dtype, "weight"), y = like(x);
  const Tensor mean = statistic(dtype), rstd = statistic(dtype), dx = like(x);
  const Tensor dweight = like(weight), dbias = like(weight);
  layer_norm_forward(y, mean, rstd, x, weight, row(dtype, "bias"), 1e-5f);
  layer_norm_backward(dx, dweight, dbias, input(dtype, "dy"), x, weight, mean, rstd,
                      Accumulate::no);
  return {y, mean, rstd, dx, dweight, dbias};
}

Results rms_norm(DType dtype) {
  const Tensor x = input(dtype, "x"), weight = row(dtype, "weight"), y = like(x);
  const Tensor rstd = statistic(dtype), dx = like(x), dweight = like(weight);
  rms_norm_forward(y, rstd, x, weight, 1e-5f);
  rms_norm_backward(dx, dweight, input(dtype, "dy"), x, weight, rstd, Accumulate::no);
  return {y, rstd, dx, dweight};
}

Results cross_entropy(DType dtype) {
  const Tensor logits = input(dtype, "logits"), dlogits = like(logits);
  std::vector<std::int32_t> ids;
  for (std::int64_t n = 0; n < kRows; ++n) ids.push_back(static_cast<std::int32_t>(2 * n));
  const Tensor targets = Tensor::from(ids, {kRows});
  const Tensor loss = statistic(dtype), logsumexp = statistic(dtype);
  cross_entropy_forward(loss, logsumexp, logits, targets);
  const Tensor dloss = test::normal_tensor({kRows}, statistics_dtype(dtype), "dloss");
  cross_entropy_backward(dlogits, dloss, logits, logsumexp, targets);
  return {loss, logsumexp, dlogits};
}

Results sums(DType dtype) {
  const Tensor total = Tensor::empty({1}, statistics_dtype(dtype)), dbias = row(dtype, "dbias");
  const Tensor x = input(dtype, "x");
  sum(total, x);
  bias_backward(dbias, x, Accumulate::yes);
  return {total, dbias};
}

}  // namespace

TEST_CASE("kernels have the same bits on every instruction set", "[cpu]") {
  const std::vector<std::pair<std::string, std::function<Results(DType)>>> operations = {
      {"gelu", gelu},
      {"swiglu", swiglu},
      {"layer_norm", layer_norm},
      {"rms_norm", rms_norm},
      {"cross_entropy", cross_entropy},
      {"sums", sums}};
  const test::Rank rank;
  for (const auto& [name, compute] : operations) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      matmul_options().isa = cpu::Isa::portable;
      const Results expected = compute(dtype);
      for (const cpu::Isa isa : cpu::available_isas()) {
        matmul_options().isa = isa;
        const Results results = compute(dtype);
        for (std::size_t i = 0; i < results.size(); ++i) {
          CAPTURE(name, name_of(dtype), enum_name(isa), i);
          CHECK(test::same_bits(results[i], expected[i]));
        }
      }
    }
  }
}

TEST_CASE("a sum adds 16 lanes in order, and then the lanes in pairs", "[cpu]") {
  // Next to 1, f32 rounds 2^-24 away, so the order decides the bits.
  const auto term = [](std::int64_t i) { return i % 16 == 0 ? 1.0f : 0x1p-24f; };
  for (const std::int64_t n : {0, 1, 15, 16, 17, 50}) {
    float lanes[16] = {};
    for (std::int64_t i = 0; i < n; ++i) lanes[i % 16] += term(i);
    for (int half = 8; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    CAPTURE(n);
    CHECK(cpu::sum_of<float>(n, term) == lanes[0]);
  }
}

}  // namespace tessera
