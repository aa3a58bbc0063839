// Every differentiable operation, forward and backward: the same bits under every schedule. In f32
// and 16 bits, on this build's device, the results are also compared with the CPU's in f64. On the
// CPU the sizes are large enough to be cut into several chunks.
#include <catch2/catch.hpp>
#include <functional>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/experts.h"
#include "autograd/operations.h"
#include "kernels/cast/op.h"
#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"
#include "tests/support/schedules.h"

namespace tessera {

using test::index_tensor;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;

namespace {

const std::int64_t kRows = test::kOnGpu ? 37 : 700;
const std::int64_t kTokens = test::kOnGpu ? 33 : 150;  // of a sequence

/// The setting of a computation: its dtype and its values.
struct Mode {
  DType dtype;
  /// Random values are rounded to this first, so that several dtypes can work on the same.
  DType rounded_to;
};

Tensor random_tensor(const Shape& shape, const Mode& mode, const std::string& name) {
  const Tensor rounded = normal_tensor(shape, mode.rounded_to, name);
  if (mode.dtype == mode.rounded_to) return rounded;
  const Tensor tensor = Tensor::empty(shape, mode.dtype);
  cast(tensor, rounded);
  return tensor;
}

/// A parameter with windows open on random data, the gradient's in f32 (f64 for f64).
struct OpenParameter {
  OpenParameter(const std::string& name, const Shape& shape, const Mode& mode)
      : parameter(name, shape, Initializer::zeros()),
        data(random_tensor(shape, mode, name)),
        gradient(Tensor::zeros(shape, statistics_dtype(mode.dtype))) {
    parameter.open(data);
    parameter.open_gradient(gradient);
    parameter.reset_gradient();
  }

  Parameter parameter;
  Tensor data;
  Tensor gradient;
};

struct Operation {
  std::string name;
  Shape input;
  std::vector<Shape> parameters;
  std::function<Variable(const Variable&, const std::vector<OpenParameter>&)> run;
};

std::vector<Operation> operations() {
  using P = std::vector<OpenParameter>;
  const auto ids = [] { return index_tensor({kRows}, 300, "ids"); };
  return {
      {"linear",
       {kRows, 96},
       {{200, 96}, {200}},
       [](const Variable& x, const P& p) { return linear(x, p[0].parameter, p[1].parameter); }},
      {"matmul",
       {4, kTokens, kTokens},
       {},
       [](const Variable& x, const P&) { return matmul(x, x, Transpose::no, Transpose::yes); }},
      {"embedding",
       {1},
       {{300, 130}},
       [=](const Variable&, const P& p) { return embedding(ids(), p[0].parameter); }},
      {"layer_norm",
       {kRows, 130},
       {{130}, {130}},
       [](const Variable& x, const P& p) {
         return layer_norm(x, p[0].parameter, p[1].parameter, 1e-5f);
       }},
      {"rms_norm",
       {kRows, 130},
       {{130}},
       [](const Variable& x, const P& p) { return rms_norm(x, p[0].parameter, 1e-5f); }},
      {"rms_norm without a weight",
       {kRows, 130},
       {},
       [](const Variable& x, const P&) { return rms_norm(x, 1e-5f); }},
      {"add_layer_norm",
       {kRows, 130},
       {{130}, {130}},
       [](const Variable& x, const P& p) {
         const auto [sum, norm] = add_layer_norm(x, gelu(x), p[0].parameter, p[1].parameter, 1e-5f);
         return add(sum, norm);
       }},
      {"add_rms_norm",
       {kRows, 130},
       {{130}},
       [](const Variable& x, const P& p) {
         const auto [sum, norm] = add_rms_norm(x, gelu(x), p[0].parameter, 1e-5f);
         return add(sum, norm);
       }},
      {"gelu", {kRows, 130}, {}, [](const Variable& x, const P&) { return gelu(x); }},
      {"swiglu", {kRows, 130}, {}, [](const Variable& x, const P&) { return swiglu(x); }},
      {"swiglu_mlp",
       {kRows, 96},
       {{260, 96}, {260}, {96, 130}},
       [](const Variable& x, const P& p) {
         return swiglu_mlp(x, p[0].parameter, p[1].parameter, p[2].parameter, Parameter(), x);
       }},
      {"route",
       {kRows, 40},
       {},
       [](const Variable& x, const P&) {
         return route(x, {.experts_per_token = 5, .weights = RouterWeights::softmax, .bias = {}})
             .weights;
       }},
      {"router_loss",
       {kRows, 40},
       {},
       [](const Variable& x, const P&) {
         const Tensor factors = normal_tensor({40}, statistics_dtype(x.dtype()), "factors");
         return router_loss(x, factors, 0.01);
       }},
      {"experts",
       {kRows, 48},
       {{9, 64, 48}, {9, 48, 32}},
       [=](const Variable& x, const P& p) {
         const Variable logits(normal_tensor({kRows, 9}, DType::bf16, "logits"));
         const Routing routing =
             route(cast(logits, x.dtype()),
                   {.experts_per_token = 2, .weights = RouterWeights::sigmoid, .bias = {}});
         return experts(scale(x, 0.125), routing, p[0].parameter, p[1].parameter, {});
       }},
      {"rope",
       {3, kTokens, 130},
       {},
       [](const Variable& x, const P&) {
         const RopeTable table = rope_table(kTokens, rope_frequencies(32, 10'000.0),
                                            RopePairs::half_split, statistics_dtype(x.dtype()));
         return rope(x, 3, 32, table);
       }},
      {"add", {kRows, 130}, {}, [](const Variable& x, const P&) { return add(x, gelu(x)); }},
      {"scale", {kRows, 130}, {}, [](const Variable& x, const P&) { return scale(x, 0.3); }},
      {"cast", {kRows, 130}, {}, [](const Variable& x, const P&) { return cast(x, DType::bf16); }},
      {"dropout",
       {kRows, 130},
       {},
       [](const Variable& x, const P&) { return dropout(x, 0.3f, RandomStream(1, "site")); }},
      {"attention",
       {3, kTokens, (4 + 2 * 2) * 20},
       {},
       [](const Variable& x, const P&) { return attention(x, 4, 2); }},
      {"attention with norms of queries and keys",
       {3, kTokens, (4 + 2 * 2) * 20},
       {{20}, {20}},
       [](const Variable& x, const P& p) {
         const RopeTable table = rope_table(kTokens, rope_frequencies(20, 10'000.0),
                                            RopePairs::half_split, statistics_dtype(x.dtype()));
         const JoinedParameters weights({p[0].parameter, p[1].parameter});
         return attention(x, 4, 2, Tensor(), {table}, {weights, 1e-6f});
       }},
      {"attention with first keys",
       {3, kTokens, (4 + 2 * 2) * 20},
       {},
       [](const Variable& x, const P&) {
         std::vector<std::int32_t> first_key;
         for (std::int64_t i = 0; i < 3 * kTokens; ++i) {
           first_key.push_back(static_cast<std::int32_t>(i % kTokens / 37 * 37));
         }
         return attention(x, 4, 2, Tensor::from(first_key, {3, kTokens}));
       }},
      {"cross_entropy",
       {kRows, 300},
       {},
       [=](const Variable& x, const P&) { return cross_entropy(x, ids()); }},
      {"linear_cross_entropy",
       {kRows, 64},
       {{300, 64}},
       [=](const Variable& x, const P& p) {
         return linear_cross_entropy(x, p[0].parameter, ids(), 1.0 / 700.0);
       }},
  };
}

/// The result, the input's gradient and the parameters' gradients.
std::vector<Tensor> results_of(const Operation& operation, const Mode& mode) {
  std::vector<OpenParameter> parameters;
  for (std::size_t i = 0; i < operation.parameters.size(); ++i) {
    parameters.emplace_back("parameter " + std::to_string(i), operation.parameters[i], mode);
  }
  const Variable x = Variable::leaf(random_tensor(operation.input, mode, "x"));
  const Variable y = operation.run(x, parameters);
  const bool is_loss = y.data().numel() == 1;
  const Mode seed = {y.dtype(), mode.rounded_to};
  backward(y, is_loss ? Tensor{} : random_tensor(y.shape(), seed, "seed"));
  std::vector<Tensor> results = {y.data()};
  if (x.gradient().defined()) results.push_back(x.gradient());
  for (const OpenParameter& parameter : parameters) results.push_back(parameter.gradient);
  return results;
}

}  // namespace

TEST_CASE("every operation has the same bits under every schedule, forward and backward") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Operation& operation : operations()) {
      INFO(operation.name << " in " << name_of(dtype));
      const auto all = test::under_every_schedule([&] {
        return results_of(operation, {dtype, dtype});
      });
      for (const std::vector<Tensor>& results : all) {
        REQUIRE(results.size() == all[0].size());
        for (std::size_t i = 0; i < results.size(); ++i) CHECK(same_bits(results[i], all[0][i]));
      }
    }
  }
}

TEST_CASE("every operation takes f32 and 16 bits, and is exact to its rounding") {
  const test::Rank rank(3);
  RankContext cpu({.threads = 3});
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const Operation& operation : operations()) {
      const std::vector<Tensor> expected = [&] {
        const ContextGuard guard(cpu);
        return results_of(operation, {DType::f64, dtype});
      }();
      const std::vector<Tensor> results = results_of(operation, {dtype, dtype});
      REQUIRE(results.size() == expected.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        INFO(operation.name << " in " << name_of(dtype) << ", result " << i << ", "
                            << to_string(results[i]));
        // In 16 bits a few results are rounded twice or more: gradients of both uses added up,
        // attention's backward from a rounded output, a loss head's on a GPU, from rounded logits.
        // In f32 sums over a row are.
        const DType rounded_to = operation.name == "cast" ? DType::bf16 : dtype;
        const int times = test::kOnGpu && operation.name == "linear_cross_entropy" ? 3 : 2;
        const double bound =
            rounded_to == DType::f32 ? 2e-6 : times * test::unit_roundoff(rounded_to);
        CHECK(relative_error(to_doubles(results[i]), to_doubles(expected[i])) <= bound);
      }
    }
  }
}

}  // namespace tessera
