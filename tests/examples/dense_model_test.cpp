// The model of rungs 10 and 11 agrees with autograd's operations, to rounding: its sums have other orders.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "autograd/engine.h"
#include "autograd/operations.h"
#include "examples/ladder/dense.h"
#include "tests/support/rank.h"

namespace tessera::ladder {
namespace {

constexpr int kRows = 2;

/// A parameter of this shape with a weight's values, and its gradient.
Parameter parameter_of(const Weight& weight, const Tensor& values, const Shape& shape) {
  const Parameter parameter(weight.name, shape, Initializer::zeros());
  parameter.open(values.clone().reshape(shape));
  parameter.open_gradient(Tensor::zeros(shape, DType::f32));
  parameter.reset_gradient();
  return parameter;
}

Parameter parameter_of(const Weight& weight, const Shape& shape) {
  return parameter_of(weight, weight.value, shape);
}

/// The rows of a matrix [slices, kinds * rows, columns], kind by kind: all heads' queries, then all keys.
Tensor kind_by_kind(const Tensor& matrix, std::int64_t kinds) {
  const std::int64_t rows = matrix.size(1) / kinds * matrix.size(2);
  const Tensor from = matrix.reshape({kSlices * kinds, rows});
  const Tensor to = Tensor::empty(from.shape(), DType::f32);
  for (std::int64_t slice = 0; slice < kSlices; ++slice) {
    for (std::int64_t kind = 0; kind < kinds; ++kind) {
      const std::int64_t i = kind * kSlices + slice, j = slice * kinds + kind;
      to.slice(i, i + 1).copy_from(from.slice(j, j + 1));
    }
  }
  return to;
}

/// The largest difference over the largest number.
double difference(const Tensor& expected, const Tensor& result) {
  const std::vector<float> a = expected.to_vector<float>(), b = result.to_vector<float>();
  REQUIRE(a.size() == b.size());
  double most = 0.0, largest = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(a[i])));
  }
  REQUIRE(largest > 0.0);
  return most / largest;
}

/// A weight of the model and its twin, with the number of kinds of rows in a slice.
struct Twin {
  const Weight& weight;
  Parameter parameter;
  std::int64_t kinds = 1;
};

struct Twins {
  std::vector<Twin> all;

  Parameter matrix(const Weight& weight, const Shape& shape, std::int64_t kinds) {
    all.push_back({weight, parameter_of(weight, kind_by_kind(weight.value, kinds), shape), kinds});
    return all.back().parameter;
  }
  Parameter vector(const Weight& weight, const Shape& shape) {
    all.push_back({weight, parameter_of(weight, shape)});
    return all.back().parameter;
  }
};

/// The loss by autograd's operations, over whole rows in their order.
Variable loss_of_twins(const DenseModel& model, Twins& twins) {
  std::vector<std::int32_t> inputs, targets;
  for (int part = 0; part < kRows; ++part) {
    const std::vector<std::int32_t> tokens = row(/*step=*/0, part);
    inputs.insert(inputs.end(), tokens.begin(), tokens.end() - 1);
    targets.insert(targets.end(), tokens.begin() + 1, tokens.end());
  }
  const Shape shape = {kRows, kTokens};
  const Shape one = {kWidth}, vocabulary = {kVocabulary, kWidth};
  Variable x = embedding(Tensor::from(inputs, shape), twins.vector(model.embedding, vocabulary));
  const auto normed = [&](const Weight& weight) {
    return rms_norm(x, twins.vector(weight, one), 1e-6f);
  };
  for (const DenseBlock& block : model.blocks) {
    const Parameter qkv = twins.matrix(block.qkv, {3 * kWidth, kWidth}, 3);
    const Variable o = attention(linear(normed(block.norm), qkv, Parameter()), kSlices, kSlices);
    x = linear(o, twins.matrix(block.out, {kWidth, kWidth}, 1), Parameter(), WeightLayout::in_out,
               x);
    const Parameter gate_up = twins.matrix(block.gate_up, {2 * kSlices * kInner, kWidth}, 2);
    const Variable inner = swiglu(linear(normed(block.mlp_norm), gate_up, Parameter()));
    x = linear(inner, twins.matrix(block.down, {kSlices * kInner, kWidth}, 1), Parameter(),
               WeightLayout::in_out, x);
  }
  return linear_cross_entropy(normed(model.norm), twins.vector(model.head, vocabulary),
                              Tensor::from(targets, shape), 1.0 / (kRows * kTokens));
}

/// The loss of all pieces, as in 1_dense.cpp.
Variable loss_of(const DenseModel& model, const Tensor& losses) {
  const PieceTokens tokens = tokens_of(/*step=*/0, kRows, 0, kPieces);
  Variable x = embed(tokens.inputs, model.embedding);
  for (const DenseBlock& block : model.blocks) {
    const Variable qkv = by_columns(norm(x, block.norm), block.qkv);
    x = add(x, by_rows(attend(third(qkv, 0), third(qkv, 1), third(qkv, 2), 0), block.out));
    x = add(x, by_rows(gated(by_columns(norm(x, block.mlp_norm), block.gate_up)), block.down));
  }
  return loss(by_columns(norm(x, model.norm), model.head), tokens.targets, losses);
}

TEST_CASE("the ladder's dense model has the loss and the gradients of autograd's operations",
          "[cpu]") {
  const test::Rank rank;
  const DenseModel model(0, kSlices);
  // Norms that are not all one, and matrices that are large enough to matter.
  for (const ParameterShard& shard : model.shards()) {
    const Parameter initial(shard.name + ".test", shard.data.shape(), Initializer::normal(0.2));
    initial.initialize(shard.data, 0, /*seed=*/3);
  }
  Twins twins;
  const Variable expected = loss_of_twins(model, twins);
  backward(expected);
  const Tensor losses = Tensor::empty({kRows}, DType::f32);
  const Variable result = loss_of(model, losses);
  backward(result);

  CHECK(difference(expected.data(), result.data()) < 1e-6);
  const std::vector<float> of_rows = losses.to_vector<float>();
  CHECK(of_rows[0] + of_rows[1] == result.data().item<float>());
  REQUIRE(twins.all.size() == model.shards().size());
  for (const Twin& twin : twins.all) {
    const Tensor& gradient = twin.weight.gradient;
    const bool sliced = gradient.rank() == 3 && gradient.size(0) == kSlices;
    INFO(twin.weight.name);
    CHECK(difference(twin.parameter.gradient(),
                     sliced ? kind_by_kind(gradient, twin.kinds) : gradient) < 2e-5);
  }
}

}  // namespace
}  // namespace tessera::ladder
