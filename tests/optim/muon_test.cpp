#include "optim/muon.h"

#include <catch2/catch.hpp>

#include "tests/support/paths.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using Values = std::vector<double>;

/// Shards that are whole on one rank: a matrix [outputs, inputs], or a stack of them.
class WholeShards final : public MatrixExchange {
 public:
  WholeShards(std::vector<std::pair<std::string, Shape>> shards, DType dtype)
      : shards_(std::move(shards)), dtype_(dtype) {}

  void run(const Work& work) override {
    std::vector<MatrixPiece> pieces;
    std::vector<Tensor> matrices;
    for (const auto& [name, shape] : shards_) {
      const std::int64_t count = shape[-2] * shape[-1];
      for (std::int64_t first = 0; first < shape.numel(); first += count) {
        matrices.push_back(Tensor::empty({shape[-2], shape[-1]}, dtype_));
        pieces.push_back(
            {name, first, count, shape[-2], shape[-1], matrices.back().reshape({count})});
      }
    }
    work.write(pieces);
    for (const Tensor& matrix : matrices) work.transform(matrix);
    work.read(pieces);
  }

 private:
  const std::vector<std::pair<std::string, Shape>> shards_;
  const DType dtype_;
};

Muon muon_of(const std::vector<ParameterShard>& shards, DType dtype,
             const MuonOptions& options = {}) {
  std::vector<std::pair<std::string, Shape>> shapes;
  for (const ParameterShard& shard : shards) shapes.emplace_back(shard.name, shard.data.shape());
  return Muon(shards, std::make_unique<WholeShards>(shapes, dtype), options);
}

ParameterShard shard(const Shape& shape, const std::string& name = "w") {
  return {.name = name,
          .data = normal_tensor(shape, DType::f32, name),
          .gradient = normal_tensor(shape, DType::f32, name + " gradient")};
}

/// A case of tests/golden/muon.py.
struct GoldenCase {
  std::string name;
  double learning_rate;
  MuonOptions options;
};
const std::vector<GoldenCase> kGoldenCases = {
    {"original", 0.02, {.momentum = 0.95, .nesterov = true, .weight_decay = 0.1}},
    {"match_rms",
     0.05,
     {.momentum = 0.8,
      .nesterov = false,
      .weight_decay = 0.3,
      .scale = UpdateScale::match_rms_adamw}}};

/// The parameter after ten steps.
Values ten_steps(const SafetensorsFile& file, const std::string& name, const GoldenCase& golden,
                 DType dtype) {
  const Tensor start = file.tensor("p." + name), gradients = file.tensor("gradients." + name);
  const Tensor data = Tensor::from(start.to_vector<float>(), start.shape());
  const Tensor gradient = Tensor::empty(start.shape(), DType::f32);
  Muon optimizer =
      muon_of({{.name = name, .data = data, .gradient = gradient}}, dtype, golden.options);
  for (std::int64_t step = 0; step < gradients.size(0); ++step) {
    Tensor next = gradients.slice(step, step + 1).reshape(start.shape());
    gradient.copy_from(Tensor::from(next.to_vector<float>(), start.shape()));
    optimizer.step(golden.learning_rate);
  }
  return to_doubles(data);
}

}  // namespace

TEST_CASE("Muon: ten steps agree with torch.optim.Muon: wide, tall, square, and a stack") {
  const test::Rank rank;
  const SafetensorsFile file(TESSERA_SOURCE_DIR "/tests/golden/muon/muon.safetensors");
  for (const GoldenCase& golden : kGoldenCases) {
    for (const std::string name : {"wide", "tall", "square", "stack"}) {
      CAPTURE(golden.name, name);
      const Tensor after = file.tensor(golden.name + ".p." + name);
      const Values expected = after.to_vector<double>();
      REQUIRE(relative_error(ten_steps(file, name, golden, DType::f32), expected) <= 1e-5);
      // In bf16: at most twice PyTorch's distance from the same steps in f64.
      const double update = file.tensor(golden.name + ".update." + name).item<double>();
      const double bound = file.tensor(golden.name + ".bf16_error." + name).item<double>();
      Values difference = ten_steps(file, name, golden, DType::bf16);
      for (std::size_t i = 0; i < difference.size(); ++i) difference[i] -= expected[i];
      REQUIRE(relative_error(difference, Values(difference.size(), 0.0)) <= 2 * bound * update);
    }
  }
}

TEST_CASE("Muon: the ratio of an update follows its layer's outputs and inputs") {
  REQUIRE(update_ratio(UpdateScale::original, 8, 2) == 2.0);
  REQUIRE(update_ratio(UpdateScale::original, 2, 8) == 1.0);
  REQUIRE(update_ratio(UpdateScale::match_rms_adamw, 25, 100) == 2.0);
  REQUIRE(update_ratio(UpdateScale::match_rms_adamw, 100, 25) == 2.0);
}

TEST_CASE("Muon: momentum costs 4 bytes per element and restores the optimizer") {
  test::Rank rank;
  const ParameterShard a = shard({6, 10}), b = shard({3, 4, 6}, "stack");
  const std::int64_t before = rank.context.allocator().account()[Category::optimizer].current;
  Muon optimizer = muon_of({a, b}, DType::bf16);
  REQUIRE(rank.context.allocator().account()[Category::optimizer].current - before ==
          4 * (60 + 72));
  const NamedTensors state = optimizer.state();
  REQUIRE(state.size() == 2);
  REQUIRE(state[0].first == "w.momentum");
  optimizer.step(0.1);
  const ParameterShard again = shard({6, 10}), of_stack = shard({3, 4, 6}, "stack");
  again.data.copy_from(a.data);
  of_stack.data.copy_from(b.data);
  Muon restored = muon_of({again, of_stack}, DType::bf16);
  for (std::size_t i = 0; i < state.size(); ++i) {
    restored.state()[i].second.copy_from(state[i].second);
  }
  optimizer.step(0.1);
  restored.step(0.1);
  REQUIRE(same_bits(a.data, again.data));
  REQUIRE(same_bits(b.data, of_stack.data));
}

TEST_CASE("Muon: a step with a scale that is not finite changes nothing, and copies follow") {
  const test::Rank rank;
  ParameterShard s = shard({6, 10});
  s.copy = Tensor::zeros({6, 10}, DType::bf16);
  Muon optimizer = muon_of({s}, DType::f32);
  const Values before = to_doubles(s.data);
  optimizer.step(0.1, Tensor::from(std::vector{NAN}, {1}));
  REQUIRE(to_doubles(s.data) == before);
  REQUIRE(to_doubles(optimizer.state()[0].second) == Values(60, 0.0));
  optimizer.step_was_skipped();
  optimizer.step(0.1, Tensor::from(std::vector{0.5f}, {1}));
  REQUIRE(to_doubles(s.data) != before);
  REQUIRE(same_bits(s.copy, test::tensor_of(to_doubles(s.data), {6, 10}, DType::bf16)));
}

TEST_CASE("Muon: a shard that does not decay keeps out of weight decay") {
  const test::Rank rank;
  ParameterShard s = shard({6, 10});
  s.decay = false;
  s.gradient.zero();
  const Values before = to_doubles(s.data);
  Muon optimizer = muon_of({s}, DType::f32, {.weight_decay = 0.5});
  optimizer.step(0.1);
  REQUIRE(to_doubles(s.data) == before);
}

TEST_CASE("Muon: masters in bf16 are refused") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(
      muon_of({{.name = "w", .data = Tensor::zeros({2, 2}, DType::bf16)}}, DType::f32),
      Contains("the data of w is bf16 [2, 2]; it must be f32"));
}

}  // namespace tessera
