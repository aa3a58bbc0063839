// One loss: every strategy trains to the same bits. Every byte: the footprint equals the
// measurement. Both are tested over the options that strategies have.
#include "sharding/strategy/strategy.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "tests/sharding/toy_run.h"

namespace tessera {

using test::Findings;
using test::ToyNet;
using test::ToyTraining;
using test::Trained;

namespace {

ShardingOptions options_of(StrategyKind strategy) {
  return {.strategy = strategy};
}

using Named = std::pair<std::string, ShardingOptions>;

/// Every way to shard, by name.
std::vector<Named> all_strategies() {
  std::vector<Named> all;
  for (const auto kind : test::kSeveralRanks) {
    all.emplace_back(name_of(kind), options_of(kind));
    if (kind < StrategyKind::fsdp) continue;
    all.push_back(all.back());
    all.back().first += " flat";
    all.back().second.flatten_parameters = true;
  }
  return all;
}

bool gathers(const ShardingOptions& options) {
  return options.strategy >= StrategyKind::zero3;
}

/// Prepares a net: freezes, checkpoints.
using Prepare = std::function<void(ToyNet&)>;

Trained train(int ranks, const ShardingOptions& options, Findings& findings,
              const Prepare& prepare = {}, bool tied = true) {
  return test::train({.ranks = ranks, .tied = tied, .prepare = prepare}, options, findings);
}

/// Trains with all strategies, each with the options `vary` gives it, and compares with ddp.
void expect_equal_bits(int ranks, const std::function<void(ShardingOptions&)>& vary = {},
                       const Prepare& prepare = {}, bool tied = true) {
  Findings findings;
  Trained ddp;
  for (auto& [name, options] : all_strategies()) {
    ShardingOptions varied = options;
    if (vary) vary(varied);
    INFO(name << " on " << ranks << " ranks");
    const Trained trained = train(ranks, varied, findings, prepare, tied);
    if (ddp.losses.empty()) ddp = trained;
    CHECK(trained.losses == ddp.losses);
    CHECK(trained.norms == ddp.norms);
    CHECK(trained.weights == ddp.weights);
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
  CHECK(ddp.norms.front() > 0.1);  // clipping is active
}

}  // namespace

TEST_CASE("equal bits, predicted bytes: 1 to 8 ranks") {
  for (const int ranks : {1, 2, 3, 4, 6, 8}) expect_equal_bits(ranks);
}

TEST_CASE("hsdp on 2 x 3 ranks sums in another order than ddp on 6: equal to 1e-6") {
  Findings findings;
  const Trained ddp = train(6, options_of(StrategyKind::ddp), findings);
  const Trained hsdp = train(6, {.strategy = StrategyKind::hsdp, .shard_size = 3}, findings);
  CHECK_FALSE(hsdp == ddp);
  for (std::size_t i = 0; i < ddp.losses.size(); ++i) {
    CHECK(hsdp.losses[i] == Approx(ddp.losses[i]).epsilon(1e-6));
    CHECK(hsdp.norms[i] == Approx(ddp.norms[i]).epsilon(1e-6));
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("hsdp's default shard size is a power of two, about half of all ranks") {
  const std::vector<std::pair<int, int>> expected = {
      {1, 1}, {2, 1}, {3, 1}, {4, 2}, {6, 2}, {8, 4}, {10, 2}, {12, 4}, {48, 16}, {1024, 512}};
  for (const auto& [ranks, row] : expected) {
    const Mesh mesh = mesh_of(options_of(StrategyKind::hsdp), {.ranks = ranks});
    CHECK(mesh == Mesh{{{"replica", ranks / row}, {"shard", row}}});
  }
}

TEST_CASE("equal bits, predicted bytes: activation checkpointing") {
  Findings findings;
  const Trained kept = train(4, options_of(StrategyKind::fsdp), findings);
  const Prepare recompute = [](ToyNet& net) {
    for (const auto& unit : net.units) unit->set_checkpointing(true);
  };
  expect_equal_bits(4, {}, recompute);
  CHECK(train(4, options_of(StrategyKind::fsdp), findings, recompute) == kept);
}

TEST_CASE("equal bits, predicted bytes: micro-batches, each reduced or their sum") {
  for (const bool every : {true, false}) {
    expect_equal_bits(4, [&](ShardingOptions& options) {
      options.micro_batches = 3;
      options.reduce_every_micro_batch = every;
    });
  }
}

TEST_CASE("equal bits, predicted bytes: resharding and the number of live gathers") {
  using Counts = std::vector<int>;  // emulated GPUs take long
  for (const int reshard_group : {0, 1, 2}) {
    for (const int live_gathers : test::kOnGpu ? Counts{1, 10} : Counts{1, 3, 10}) {
      expect_equal_bits(4, [&](ShardingOptions& options) {
        options.micro_batches = 2;
        options.live_gathers = live_gathers;
        const bool groups = options.strategy == StrategyKind::fsdp;
        if (gathers(options) && (reshard_group < 2 || groups)) {
          options.reshard_group = reshard_group;
        }
      });
    }
  }
}

TEST_CASE("equal bits, predicted bytes: larger buckets") {
  for (const char* buckets : {"200", "100000", "layer.1,layer.3"}) {
    expect_equal_bits(4, [&](ShardingOptions& options) { options.buckets = buckets; });
  }
}

TEST_CASE("equal bits, predicted bytes: untied embeddings") {
  for (const auto& [live_gathers, micro_batches] : {std::pair(1, 2), {2, 1}, {6, 2}}) {
    expect_equal_bits(
        4,
        [&, live_gathers = live_gathers, micro_batches = micro_batches](ShardingOptions& options) {
          options.live_gathers = live_gathers;
          options.micro_batches = micro_batches;
        },
        {}, /*tied=*/false);
  }
}

TEST_CASE("equal bits, predicted bytes: no prefetching") {
  expect_equal_bits(4, [](ShardingOptions& options) {
    options.prefetch_in_forward = false;
    options.prefetch_in_backward = false;
  });
}

TEST_CASE("equal bits, predicted bytes: frozen parameters") {
  const std::vector<Prepare> frozen = {
      [](ToyNet& net) { net.layers[1].up.set_trainable(false); },
      [](ToyNet& net) {  // a whole bucket in the middle
        for (const Parameter& parameter : net.units[2]->parameters()) {
          parameter.set_trainable(false);
        }
      },
  };
  for (const Prepare& prepare : frozen) {
    expect_equal_bits(4, {}, prepare);
    expect_equal_bits(
        2, [](ShardingOptions& options) { options.micro_batches = 2; }, prepare);
  }
}

TEST_CASE("equal bits, predicted bytes: parameters gathered and computed with in 16 bits") {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    expect_equal_bits(4, [&](ShardingOptions& options) { options.compute_dtype = dtype; });
  }
}

TEST_CASE("16-bit reductions: bits agree where each sum is rounded once") {
  Findings findings;
  Trained first;
  for (auto& [name, options] : all_strategies()) {
    INFO(name);
    ShardingOptions narrow = options;
    narrow.reduce_dtype = DType::bf16;
    const Trained trained = train(4, narrow, findings);
    CHECK(findings.wrong() == std::vector<std::string>{});
    if (first.losses.empty()) first = trained;
    if (options.strategy == StrategyKind::hsdp) continue;  // rounds in the group, then across
    CHECK(trained == first);
  }
}

TEST_CASE("four micro-batches on one rank have the gradients of four ranks, to rounding") {
  const auto gradients_of = [](int ranks, int micro_batches) {
    std::map<std::string, std::vector<float>> gradients;
    test::on_ranks(ranks, [&](Communicator& world) {
      ToyNet net;
      const auto strategy = make_strategy(
          net.units, {.strategy = StrategyKind::ddp, .micro_batches = micro_batches}, 3, &world);
      const ToyTraining training;
      training.differentiate(net, *strategy, world, micro_batches, 0);
      if (world.rank() != 0) return;
      for (const Shard& shard : strategy->shards()) {
        gradients[shard.parameter.name()] = shard.gradient.to_vector<float>();
      }
    });
    return gradients;
  };
  const auto alone = gradients_of(1, 4);
  for (const auto& [name, together] : gradients_of(4, 1)) {
    INFO(name);
    double largest = 0.0;
    double difference = 0.0;
    for (std::size_t i = 0; i < together.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(together[i])));
      difference = std::max(difference, std::abs(static_cast<double>(together[i]) -
                                                 static_cast<double>(alone.at(name)[i])));
    }
    CHECK(difference <= 1e-6 * largest);
  }
}

TEST_CASE("every strategy's gradient is the sum of the ranks' gradients") {
  // Each rank's own gradients by a strategy of its own, added up in the documented tree.
  constexpr int kRanks = 4;
  std::map<std::string, std::vector<std::vector<float>>> local;
  for (int r = 0; r < kRanks; ++r) {
    test::on_ranks(kRanks, [&](Communicator& world) {
      if (world.rank() != r) return;
      ToyNet net;
      const auto strategy = make_single_strategy(net.units, 3);
      ToyTraining().differentiate(net, *strategy, world, 1, 0);
      for (const Shard& shard : strategy->shards()) {
        local[shard.parameter.name()].push_back(shard.gradient.to_vector<float>());
      }
    });
  }
  for (const auto& [name, options] : all_strategies()) {
    Findings findings;
    test::on_ranks(kRanks, [&, options = options](Communicator& world) {
      ToyNet net;
      const auto strategy = make_strategy(net.units, options, 3, &world);
      ToyTraining().differentiate(net, *strategy, world, 1, 0);
      for (const Shard& shard : strategy->shards()) {
        const auto& all = local.at(shard.parameter.name());
        const auto mine = shard.gradient.to_vector<float>();
        for (std::size_t i = 0; i < mine.size(); ++i) {
          const auto at = static_cast<std::size_t>(shard.first) + i;
          const float expected = (all[0][at] + all[1][at]) + (all[2][at] + all[3][at]);
          findings.expect(mine[i] == expected, shard.parameter.name());
        }
      }
    });
    INFO(name);
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("evaluation between steps uses the new weights and leaves training unchanged") {
  for (const auto& [name, options] : all_strategies()) {
    for (const int reshard_group : {0, 1}) {
      ShardingOptions varied = options;
      if (gathers(options)) varied.reshard_group = reshard_group;
      std::vector<Trained> runs;
      std::vector<std::vector<float>> evaluations(2);
      for (const bool evaluates : {false, true}) {
        Trained result;
        test::on_ranks(4, [&](Communicator& world) {
          ToyNet net;
          const ToyTraining training;
          const auto strategy = make_strategy(net.units, varied, 3, &world);
          Trained trained;
          for (int step = 0; step < training.steps; ++step) {
            training.step(net, *strategy, world, 1, step, trained);
            if (!evaluates) continue;
            const NoGradient no_gradient;
            const float here =
                net.loss(training.tokens("ids", 99, 0), training.tokens("targets", 99, 0), 1.0)
                    .data()
                    .item<float>();
            // The same on a net of its own with the weights as they are now.
            ToyNet fresh;
            const auto whole = make_single_strategy(fresh.units, 1);
            std::map<std::string, std::vector<float>> now;
            strategy->visit_whole([&](const Parameter& parameter, const Tensor& data) {
              now[parameter.name()] = data.to_vector<float>();
            });
            whole->write_masters([&] {
              for (const Shard& shard : whole->shards()) {
                shard.data.copy_from(
                    Tensor::from(now.at(shard.parameter.name()), shard.data.shape()));
              }
            });
            const float expected =
                fresh.loss(training.tokens("ids", 99, 0), training.tokens("targets", 99, 0), 1.0)
                    .data()
                    .item<float>();
            if (world.rank() == 0) {
              evaluations[0].push_back(here);
              evaluations[1].push_back(expected);
            }
          }
          training.collect_weights(*strategy, trained);
          if (world.rank() == 0) result = trained;
        });
        runs.push_back(result);
      }
      INFO(name);
      CHECK(runs[0] == runs[1]);
      CHECK(evaluations[0].size() == 4);
      CHECK(evaluations[0] == evaluations[1]);
    }
  }
}

TEST_CASE("a visit of some whole parameters gathers no other") {
  for (const auto& [name, options] : all_strategies()) {
    Findings findings;
    test::on_ranks(4, [&, options = options](Communicator& world) {
      ToyNet net;
      const std::string trained = net.layers.back().up.name();
      for (const auto& unit : net.units) {
        for (const Parameter& parameter : unit->parameters())
          parameter.set_trainable(parameter.name() == trained);
      }
      const auto strategy = make_strategy(net.units, options, 3, &world);
      std::map<std::string, std::vector<float>> all, some;
      const auto add_to = [](auto& values) {
        return [&](const Parameter& parameter, const Tensor& whole) {
          values[parameter.name()] = whole.to_vector<float>();
        };
      };
      strategy->visit_whole(add_to(all));  // waits for the first gathers
      const std::int64_t before = world.bytes_sent();
      strategy->visit_whole(add_to(some), [&](const Parameter& p) { return p.name() == trained; });
      const std::int64_t sent = world.bytes_sent() - before;
      findings.expect(some.size() == 1 && some[trained] == all[trained], "the values");
      const std::int64_t most = 3 * 4 * (net.layers.back().up.numel() + 4 * Partition::kAlignment);
      findings.expect(sent <= most, fmt::format("{} bytes were sent of {}", sent, most));
    });
    INFO(name);
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("a parameter that no rank uses in a step gets a gradient of zero") {
  for (const auto& [name, options] : all_strategies()) {
    Findings findings;
    test::on_ranks(4, [&, options = options](Communicator& world) {
      ToyNet net;
      const ToyTraining training;
      const auto strategy = make_strategy(net.units, options, 3, &world);
      training.differentiate(net, *strategy, world, 1, 0);
      const auto unused = net.layers.back();
      net.layers.pop_back();
      training.differentiate(net, *strategy, world, 1, 1);
      for (const Shard& shard : strategy->shards()) {
        const auto values = shard.gradient.to_vector<float>();
        const bool zero = std::all_of(values.begin(), values.end(), [](float v) { return v == 0; });
        const bool of_unused = shard.parameter == unused.up || shard.parameter == unused.bias ||
                               shard.parameter == unused.down;
        findings.expect(zero == of_unused || values.empty(), shard.parameter.name());
      }
    });
    INFO(name);
    CHECK(findings.wrong() == std::vector<std::string>{});
  }
}

TEST_CASE("a layer that only the first micro-batch uses keeps that micro-batch's gradient") {
  for (auto [name, options] : all_strategies()) {
    for (const bool every : {true, false}) {
      options.reduce_every_micro_batch = every;
      Findings findings;
      test::on_ranks(4, [&](Communicator& world) {
        // The gradients of the last layer, after a step of so many micro-batches.
        const auto gradients = [&](int micro_batches) {
          ToyNet net;
          ShardingOptions own = options;
          own.micro_batches = micro_batches;
          const auto strategy = make_strategy(net.units, own, 3, &world);
          const auto last = net.layers.back();
          Step step = strategy->start_step();
          for (int i = 0; i < micro_batches; ++i) {
            if (i == 1) net.layers.pop_back();
            const std::int64_t number = i * world.size() + world.rank();
            backward(net.loss(ToyTraining::tokens("ids", 0, number),
                              ToyTraining::tokens("targets", 0, number), 1.0));
            step.finish_micro_batch();
          }
          step.discard();
          std::vector<std::vector<float>> all;
          for (const Shard& shard : strategy->shards()) {
            const bool of_last = shard.parameter == last.up || shard.parameter == last.bias ||
                                 shard.parameter == last.down;
            if (of_last) all.push_back(shard.gradient.to_vector<float>());
          }
          return all;
        };
        findings.expect(gradients(2) == gradients(1), fmt::format("rank {}", world.rank()));
      });
      INFO(name << (every ? ", each reduced" : ", their sum"));
      CHECK(findings.wrong() == std::vector<std::string>{});
    }
  }
}

TEST_CASE("offload: the bits of a run without offload, and the predicted bytes") {
  Findings findings;
  for (const auto& [name, options] : all_strategies()) {
    for (const auto& [dtype, micro_batches, reduce_every] : {std::tuple{DType::f32, 1, true},
                                                             {DType::f32, 2, true},
                                                             {DType::bf16, 2, true},
                                                             {DType::f32, 2, false}}) {
      ShardingOptions varied = options;
      varied.compute_dtype = dtype;
      varied.micro_batches = micro_batches;
      varied.reduce_every_micro_batch = reduce_every;
      const Trained expected = train(2, varied, findings);
      for (const Offload offload : {Offload::optimizer, Offload::all}) {
        if (offload == Offload::all && !gathers(options)) continue;
        varied.offload = offload;
        INFO(name << ", offload " << name_of(offload) << ", " << name_of(dtype) << ", "
                  << micro_batches << " micro-batches, reduced "
                  << (reduce_every ? "each" : "once"));
        CHECK(train(2, varied, findings) == expected);
      }
      CHECK(findings.wrong() == std::vector<std::string>{});
    }
  }
}

TEST_CASE("offload: rules offload some parameters, and the norm covers both memories") {
  Findings findings;
  for (const int micro_batches : {1, 2}) {
    ShardingOptions options{.strategy = StrategyKind::fsdp, .micro_batches = micro_batches};
    const Trained expected = train(2, options, findings);
    options.rules = parse_placement_rules(
        "layer.0.* -> fsdp offload=all, layer.1.* -> zero2 offload=optimizer, norm.* -> ddp");
    CHECK(train(2, options, findings) == expected);
    options.offload = Offload::all;
    options.rules = parse_placement_rules("layer.*.up -> fsdp offload=none, table -> ddp");
    CHECK(train(2, options, findings) == expected);
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("offload: one rank without a communicator") {
  Findings findings;
  const auto train_alone = [&](Offload offload) {
    ShardingOptions options;
    options.micro_batches = 2;
    options.offload = offload;
    return train(1, options, findings);
  };
  CHECK(train_alone(Offload::optimizer) == train_alone(Offload::none));
  CHECK(findings.wrong() == std::vector<std::string>{});
}

TEST_CASE("offload: frozen parameters in 16 bits have the bits of a run without offload") {
  Findings findings;
  const Prepare freeze = [](ToyNet& net) { net.layers[1].up.set_trainable(false); };
  for (const StrategyKind kind : {StrategyKind::ddp, StrategyKind::zero2, StrategyKind::fsdp}) {
    ShardingOptions options{.strategy = kind, .compute_dtype = DType::bf16};
    const Trained expected = train(2, options, findings, freeze);
    options.offload = Offload::optimizer;
    INFO(name_of(kind));
    CHECK(train(2, options, findings, freeze) == expected);
  }
  CHECK(findings.wrong() == std::vector<std::string>{});
}

}  // namespace tessera
