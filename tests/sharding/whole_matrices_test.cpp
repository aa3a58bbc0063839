// The exchange of whole matrices: under every placement the owner sees each element at its place, every rank
// gets its part of the result, and the bytes are as planned.
#include "sharding/plan/whole_matrices.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <mutex>
#include <numeric>
#include <set>

#include "kernels/newton_schulz/op.h"
#include "runtime/context.h"
#include "sharding/comm/stream.h"
#include "sharding/strategy/strategy.h"
#include "tests/sharding/ranks.h"
#include "tests/support/error_of.h"
#include "tests/support/findings.h"

namespace tessera {
namespace {

using test::Findings;

constexpr std::int64_t kExperts = 4;
/// Elements of parameter i are numbered from i * kStride on: exact in f32.
constexpr std::int64_t kStride = 1000;

Parameter parameter(const std::string& name, const Shape& shape, const Cut& cut = {},
                    bool stacked = false) {
  const Parameter result(name, shape, Initializer::zeros());
  result.set_cut(cut);
  if (stacked) result.set_stacked();
  return result;
}

/// Units with a weight of every kind; two layers.
Units make_units(bool experts) {
  Units units;
  for (const std::string layer : {"0.", "1."}) {
    std::vector<Parameter> parameters = {
        parameter(layer + "rows", {8, 5}, {Divided::outputs, 0, 1, 8}),
        parameter(layer + "joined", {6, 24}, {Divided::outputs, 1, 3, 8, "head"}),
        parameter(layer + "bias", {24}, {Divided::outputs, 0, 3, 8, "head"}),
        parameter(layer + "inputs", {8, 7}, {Divided::inputs, 0, 1, 8}),
        parameter(layer + "table", {13, 3}, {Divided::vocabulary, 0, 1, 13, "token"}),
        parameter(layer + "router", {3, 11}, {Divided::nothing, 1}),
        parameter(layer + "frozen", {4, 4}),
    };
    parameters.back().set_trainable(false);
    if (experts) {
      parameters.push_back(
          parameter(layer + "up", {kExperts, 16, 3}, {Divided::outputs, 1, 2, 8}, true));
      parameters.push_back(
          parameter(layer + "down", {kExperts, 3, 8}, {Divided::inputs, 2, 1, 8}, true));
    }
    units.push_back(std::make_unique<Unit>(layer, parameters));
  }
  return units;
}

std::map<std::string, std::int64_t> first_numbers(const Units& units) {
  std::map<std::string, std::int64_t> first;
  for (const auto& unit : units) {
    for (const Parameter& p : unit->parameters()) {
      const auto number = static_cast<std::int64_t>(first.size());
      first[p.name()] = number * kStride;
    }
  }
  return first;
}

std::optional<DType> all_matrices(const Parameter& parameter) {
  return parameter.shape().rank() > 1 ? std::optional(DType::f32) : std::nullopt;
}

/// The numbers of a piece's elements, by the shard's own account of them.
std::vector<float> numbers_of(const Shard& shard, const MatrixPiece& piece, std::int64_t first) {
  std::vector<float> numbers;
  shard.elements()
      .from(piece.first)
      .for_each_run(piece.count, [&](std::int64_t element, std::int64_t, std::int64_t count) {
        for (std::int64_t i = 0; i < count; ++i) {
          numbers.push_back(static_cast<float>(first + element + i));
        }
      });
  return numbers;
}

struct Arrangement {
  ShardingOptions options;
  int ranks = 1;
  bool experts = false;

  std::string name() const {
    return fmt::format("{}{} on {} ranks, tensor {}, experts {} over {}", name_of(options.strategy),
                       options.flatten_parameters ? " flat" : "", ranks, options.tensor_parallel,
                       experts, options.expert_parallel);
  }
};

std::vector<Arrangement> arrangements() {
  std::vector<Arrangement> all;
  for (const StrategyKind strategy : test::kSeveralRanks) {
    const bool is_fsdp = strategy == StrategyKind::fsdp || strategy == StrategyKind::hsdp;
    for (const bool flat : {false, true}) {
      if (flat && !is_fsdp) continue;
      for (const int data : {1, 2, 3, 4}) {
        for (const int tensors : {1, 2, 4}) {
          for (const int experts : {0, 1, 2}) {
            if (data * tensors > 8 || data % std::max(1, experts) != 0) continue;
            if (data == 1 && experts == 2) continue;
            Arrangement arrangement{.ranks = data * tensors, .experts = experts > 0};
            arrangement.options.strategy = strategy;
            arrangement.options.flatten_parameters = flat;
            arrangement.options.tensor_parallel = tensors;
            arrangement.options.expert_parallel = std::max(1, experts);
            arrangement.options.matrix_dtype = all_matrices;
            if (strategy == StrategyKind::hsdp)
              arrangement.options.shard_size = data % 2 == 0 ? 2 : 1;
            all.push_back(arrangement);
          }
        }
      }
    }
  }
  return all;
}

/// Matrices that all ranks of the plan transform: each exchange group transforms all of its matrices.
std::int64_t transforms_of(const Plan& plan) {
  std::int64_t count = 0;
  for (const GroupPlan& group : plan.groups) {
    count += std::ssize(group.matrices.matrices) * plan.mesh.world_size() / group.matrices.ranks;
  }
  return count;
}

/// Differences go to `findings`.
void exchange(const Arrangement& arrangement, Findings& findings) {
  std::atomic<std::int64_t> transformed = 0, expected = 0;
  test::on_ranks(arrangement.ranks, [&](Communicator& world) {
    const Units units = make_units(arrangement.experts);
    const auto first = first_numbers(units);
    const auto strategy = make_strategy(units, arrangement.options, 1, &world);
    expected = transforms_of(strategy->plan());
    std::map<std::string, const Shard*> shards;
    for (const Shard& shard : strategy->shards()) shards[shard.parameter.name()] = &shard;
    std::set<std::string> read;
    const auto expect = [&](bool holds, const std::string& what) {
      findings.expect(holds,
                      fmt::format("{}: rank {}: {}", arrangement.name(), world.rank(), what));
    };
    const auto matrices =
        strategy->make_matrix_exchange([](const Parameter& p) { return p.shape().rank() > 1; });
    communication_stream().synchronize();
    const auto write = [&](const std::vector<MatrixPiece>& pieces) {
      for (const MatrixPiece& piece : pieces) {
        if (!piece.values.defined()) continue;
        const std::vector<float> numbers =
            numbers_of(*shards.at(piece.parameter), piece, first.at(piece.parameter));
        piece.values.copy_from(Tensor::from(numbers, {piece.count}));
      }
    };
    const auto transform = [&](const Tensor& matrix) {
      std::vector<float> values = matrix.to_vector<float>();
      bool in_order = true;
      for (std::size_t i = 0; i < values.size(); ++i) {
        in_order = in_order && values[i] == values[0] + static_cast<float>(i);
      }
      expect(in_order, fmt::format("a matrix has {}", fmt::join(values, " ")));
      for (float& value : values) value += 0.5f;
      matrix.copy_from(Tensor::from(values, matrix.shape()));
      ++transformed;
    };
    const auto check_result = [&](const std::vector<MatrixPiece>& pieces) {
      for (const MatrixPiece& piece : pieces) {
        std::vector<float> numbers =
            numbers_of(*shards.at(piece.parameter), piece, first.at(piece.parameter));
        for (float& number : numbers) number += 0.5f;
        expect(piece.values.to_vector<float>() == numbers, "a result of " + piece.parameter);
        read.insert(piece.parameter);
      }
    };
    strategy->write_masters(
        [&] { matrices->run({.write = write, .transform = transform, .read = check_result}); });
    communication_stream().synchronize();
    std::int64_t moved = 0;
    for (const GroupPlan& group : strategy->plan().groups) {
      const int place = strategy->plan().mesh.position_along(world.rank(), group.matrices.axes);
      moved += matrix_bytes_sent(group, place);
    }
    const std::int64_t by_exchange = world.bytes_sent(Collective::all_to_all);
    expect(by_exchange == moved, fmt::format("{} bytes sent, planned {}", by_exchange, moved));
    for (const Shard& shard : strategy->shards()) {
      const bool is_matrix = shard.parameter.trainable() && shard.parameter.shape().rank() > 1;
      expect(read.contains(shard.parameter.name()) == (is_matrix && shard.count() > 0),
             "reads " + shard.parameter.name());
    }
  });
  findings.expect(transformed == expected, fmt::format("{}: {} matrices transformed, expected {}",
                                                       arrangement.name(), transformed, expected));
}

/// GPT-2's block of width 768, twelve times.
Units gpt2_units() {
  Units units;
  for (int i = 0; i < 12; ++i) {
    const std::string layer = fmt::format("h.{}.", i);
    units.push_back(std::make_unique<Unit>(
        layer,
        std::vector{parameter(layer + "c_attn", {768, 2304}),
                    parameter(layer + "c_proj", {768, 768}), parameter(layer + "c_fc", {768, 3072}),
                    parameter(layer + "mlp", {3072, 768})}));
  }
  return units;
}

ShardingOptions options_of(StrategyKind strategy) {
  ShardingOptions options;
  options.strategy = strategy;
  options.matrix_dtype = all_matrices;
  return options;
}

std::int64_t bytes_of_matrices(const Plan& plan, int rank) {
  std::int64_t bytes = 0;
  for (const GroupPlan& group : plan.groups) {
    bytes += matrix_bytes_sent(group, plan.mesh.position_along(rank, group.matrices.axes));
  }
  return bytes;
}

}  // namespace

TEST_CASE("whole matrices: owners see every element at its place, and ranks get their parts back") {
  Findings findings;
  for (const Arrangement& arrangement : arrangements()) exchange(arrangement, findings);
  INFO(fmt::format("{}", fmt::join(findings.wrong(), "\n")));
  REQUIRE(findings.wrong().empty());
}

TEST_CASE("whole matrices: a layer's outputs are its rows or its columns, as its cut says") {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> extents;
  test::on_ranks(1, [&](Communicator& world) {
    const Units units = make_units(true);
    const auto strategy = make_strategy(units, options_of(StrategyKind::ddp), 1, &world);
    const auto matrices = strategy->make_matrix_exchange([](const Parameter&) { return true; });
    matrices->run({.write =
                       [&](const auto& pieces) {
                         for (const MatrixPiece& piece : pieces) {
                           extents[piece.parameter] = {piece.outputs, piece.inputs};
                         }
                       },
                   .transform = [](const Tensor&) {},
                   .read = [](const auto&) {}});
  });
  using Extents = std::pair<std::int64_t, std::int64_t>;
  CHECK(extents.at("0.rows") == Extents{8, 5});
  CHECK(extents.at("0.joined") == Extents{24, 6});
  CHECK(extents.at("0.inputs") == Extents{7, 8});
  CHECK(extents.at("0.router") == Extents{3, 11});
  CHECK(extents.at("0.up") == Extents{16, 3});
  CHECK(extents.at("0.down") == Extents{3, 8});
  CHECK_FALSE(extents.contains("0.frozen"));
  CHECK_FALSE(extents.contains("0.bias"));
}

TEST_CASE("whole matrices: owners have nearly equal work") {
  const Units units = gpt2_units();
  for (const int ranks : {2, 4, 8}) {
    for (const StrategyKind strategy :
         {StrategyKind::ddp, StrategyKind::zero1, StrategyKind::fsdp}) {
      const Plan plan = make_plan(units, options_of(strategy), {.ranks = ranks});
      const std::vector<double> flops = matrix_flops(plan.groups.front().matrices);
      const double all = std::accumulate(flops.begin(), flops.end(), 0.0);
      const double of_block = newton_schulz_flops(768, 2304) + newton_schulz_flops(768, 768) +
                              2 * newton_schulz_flops(768, 3072);
      CHECK(all == Approx(12 * of_block));
      CHECK(*std::max_element(flops.begin(), flops.end()) <= 1.1 * all / ranks);
    }
  }
}

TEST_CASE(
    "whole matrices: under zero3 nothing travels, under fsdp all but the owners' parts, twice") {
  const Units units = gpt2_units();
  const std::int64_t elements = 12 * 768 * (2304 + 768 + 3072 + 3072);
  for (const int ranks : {2, 4}) {
    std::int64_t zero3 = 0, fsdp = 0, ddp = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto bytes = [&](StrategyKind strategy) {
        return bytes_of_matrices(make_plan(units, options_of(strategy), {.ranks = ranks}), rank);
      };
      zero3 += bytes(StrategyKind::zero3);
      fsdp += bytes(StrategyKind::fsdp);
      ddp += bytes(StrategyKind::ddp);
    }
    CHECK(zero3 == 0);
    CHECK(fsdp == 2 * 4 * elements / ranks * (ranks - 1));  // every matrix has 1/ranks at its owner
    CHECK(ddp == 4 * elements * (ranks - 1));
  }
}

TEST_CASE("whole matrices: a parameter that is no matrix is named") {
  ShardingOptions options = options_of(StrategyKind::ddp);
  options.matrix_dtype = [](const Parameter&) { return std::optional(DType::bf16); };
  const Units units = make_units(false);
  const std::string error = test::error_of([&] { make_plan(units, options, {.ranks = 2}); });
  CHECK(error.find("parameter '0.bias' has the shape [24]; only matrices and stacks") !=
        std::string::npos);
}

}  // namespace tessera
