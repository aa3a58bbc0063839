// Ranks that share out the experts of a layer: threads here, each with experts and tokens of its own.
//
// Every rank's results and gradients must have the bits that it gets when it holds all experts. The
// weights' gradients are those of each rank's tokens alone (ExpertSums::exact), or of the tokens of all
// ranks on one rank (fast), at the rank that holds the expert. Of several pieces they are added in a tree.
#include "autograd/expert_exchange.h"

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "autograd/checkpoint.h"
#include "autograd/engine.h"
#include "autograd/experts.h"
#include "kernels/add/op.h"
#include "runtime/context.h"
#include "sharding/plan/expert_traffic.h"
#include "sharding/strategy/expert_axis.h"
#include "tests/sharding/ranks.h"
#include "tests/support/device.h"
#include "tests/support/findings.h"
#include "tests/support/random_tensor.h"

namespace tessera {

using test::Findings;
using test::normal_tensor;

namespace {

constexpr std::int64_t kChannels = 8, kWidth = 8, kPerToken = 2;

struct Setup {
  int ranks;
  std::int64_t experts;
  DType dtype;
  WeightLayout layout;
  WeighedInput weighed;
  bool checkpointed = false;
  ExpertChoices choices = {};
};

constexpr int kPasses = 2;

/// The tokens of one or several ranks.
struct Tokens {
  std::vector<Tensor> x, dy;  // of each pass
  Tensor logits;
};

/// Rank r's tokens: 5, 0, 7 and 1 of them. None chooses expert 1; rank 0's choose the last two only.
std::int64_t tokens_of(int rank) {
  constexpr std::int64_t kTokens[] = {5, 0, 7, 1};
  return kTokens[rank % 4];
}

Tensor logits_of(const Setup& setup, int rank) {
  const Shape shape{tokens_of(rank), setup.experts};
  std::vector<float> values;
  for (const double value :
       normal_tensor(shape, DType::f64, fmt::format("logits {}", rank)).to_vector<double>()) {
    const std::int64_t e = static_cast<std::int64_t>(values.size()) % setup.experts;
    const bool avoided = e == 1 || (rank == 0 && e < setup.experts - 2);
    values.push_back(static_cast<float>(value) - (avoided ? 50.0f : 0.0f));
  }
  return Tensor::from(values, shape);
}

Tokens tokens_of(const Setup& setup, int rank) {
  Tokens tokens{.logits = logits_of(setup, rank)};
  const Shape shape{tokens_of(rank), kChannels};
  for (int pass = 0; pass < kPasses; ++pass) {
    tokens.x.push_back(normal_tensor(shape, setup.dtype, fmt::format("x {} {}", rank, pass)));
    tokens.dy.push_back(normal_tensor(shape, setup.dtype, fmt::format("dy {} {}", rank, pass)));
  }
  return tokens;
}

Tensor joined(const std::vector<Tensor>& parts) {
  std::int64_t rows = 0, at = 0;
  for (const Tensor& part : parts) rows += part.size(0);
  const Tensor all = Tensor::empty(parts[0].shape().with(0, rows), parts[0].dtype());
  for (const Tensor& part : parts) {
    all.slice(at, at + part.size(0)).copy_from(part);
    at += part.size(0);
  }
  return all;
}

/// One piece of the tokens of several ranks, one rank after the other.
Tokens piece_of(const std::vector<Tokens>& ranks, std::int64_t piece, std::int64_t pieces) {
  const auto all = [&](const auto& member) {
    std::vector<Tensor> parts;
    for (const Tokens& one : ranks) {
      const std::int64_t n = member(one).size(0);
      parts.push_back(member(one).slice(piece * n / pieces, (piece + 1) * n / pieces));
    }
    return joined(parts);
  };
  Tokens tokens{.logits = all([](const Tokens& one) { return one.logits; })};
  for (int pass = 0; pass < kPasses; ++pass) {
    tokens.x.push_back(all([&](const Tokens& one) { return one.x[pass]; }));
    tokens.dy.push_back(all([&](const Tokens& one) { return one.dy[pass]; }));
  }
  return tokens;
}

struct Results {
  Tensor y, dx, dlogits;
  /// Rows of the tokens for each expert, in one pass.
  std::vector<std::int64_t> rows;
  /// Tokens with any expert on each rank, if ranks share them out.
  std::vector<std::int64_t> copies;
  /// One per sum that is formed.
  std::vector<Tensor> gate_up, down;
};

/// Passes of forward and backward, into the same gradients.
Results run(const Setup& setup, const Tokens& tokens, std::shared_ptr<ExpertExchange> exchange,
            int first_pass = 0, int end_pass = kPasses) {
  const bool out_in = setup.layout == WeightLayout::out_in;
  const std::int64_t E = setup.experts, C = kChannels, F = kWidth;
  const Parameter gate_up("gate_up", out_in ? Shape{E, 2 * F, C} : Shape{E, C, 2 * F}, {});
  const Parameter down("down", out_in ? Shape{E, C, F} : Shape{E, F, C}, {});
  Results results;
  const int parts = exchange == nullptr ? 1 : exchange->ranks();
  const std::int64_t held = E / parts, first = exchange == nullptr ? 0 : exchange->rank() * held;
  const auto open = [&](const Parameter& parameter, std::vector<Tensor>& gradients) {
    parameter.set_stacked();
    parameter.share_out(exchange);
    const Tensor all = normal_tensor(parameter.shape(), setup.dtype, parameter.name());
    parameter.open(all.slice(first, first + held));
    for (int s = 0; s < (setup.choices.sums == ExpertSums::exact ? parts : 1); ++s) {
      gradients.push_back(Tensor::full(parameter.held_shape(), DType::f32, 7.0));
    }
    parameter.open_gradients(gradients);
    parameter.reset_gradient();
  };
  open(gate_up, results.gate_up);
  open(down, results.down);
  for (int pass = first_pass; pass < end_pass; ++pass) {
    const Variable x = Variable::leaf(tokens.x[pass]);
    const Variable leaf = Variable::leaf(tokens.logits);
    const Variable used = setup.dtype == DType::f32 ? leaf : cast(leaf, setup.dtype);
    const auto layer = [&](const Variable& input) {
      const Routing routing = route(
          used, {.experts_per_token = kPerToken,
                 .weights = setup.weighed == WeighedInput::down ? RouterWeights::normalized_softmax
                                                                : RouterWeights::sigmoid,
                 .bias = {}});
      const auto ends = routing.order.offsets.to_vector<std::int32_t>();
      results.rows.clear();
      for (std::int64_t e = 0; e < E; ++e) results.rows.push_back(ends[e + 1] - ends[e]);
      results.copies.assign(static_cast<std::size_t>(setup.ranks), 0);
      const auto chosen = routing.experts.to_vector<std::int32_t>();
      for (std::size_t slot = 0; slot < chosen.size(); slot += kPerToken) {
        std::set<std::int64_t> ranks;
        for (std::int64_t s = 0; s < kPerToken; ++s) {
          ranks.insert(chosen[slot + s] / (E / setup.ranks));
        }
        for (const std::int64_t r : ranks) ++results.copies[r];
      }
      return experts(input, routing, gate_up, down, {setup.layout, setup.weighed});
    };
    const Variable y = setup.checkpointed ? checkpoint(layer, x) : layer(x);
    backward(y, tokens.dy[pass]);
    results.y = y.data(), results.dx = x.gradient();
    results.dlogits = setup.checkpointed ? Tensor() : leaf.gradient();
  }
  return results;
}

using WeightGradients = std::vector<Tensor> Results::*;

/// A weight's gradient from the tokens of some ranks, on one rank.
Tensor gradient_of(const Setup& setup, const std::vector<Tokens>& ranks, WeightGradients weight) {
  const std::int64_t pieces = setup.choices.pieces;
  if (pieces == 1) return (run(setup, piece_of(ranks, 0, 1), nullptr).*weight).front();
  Tensor total;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::vector<Tensor> sums;
    for (std::int64_t piece = 0; piece < pieces; ++piece) {
      const Results of_piece = run(setup, piece_of(ranks, piece, pieces), nullptr, pass, pass + 1);
      sums.push_back((of_piece.*weight).front());
    }
    for (; sums.size() > 1; sums.resize(sums.size() / 2)) {
      for (std::size_t i = 0; i < sums.size() / 2; ++i) {
        const Tensor both = Tensor::empty(sums[0].shape(), DType::f32);
        add(both, sums[2 * i], sums[2 * i + 1]);
        sums[i] = both;
      }
    }
    if (pass == 0) total = sums[0];
    if (pass > 0) add(total, total, sums[0]);
  }
  return total;
}

/// The rows that travel from and to a rank, by the rows of all ranks.
TravellingRows travelling_rows(const std::map<int, Results>& all, int rank, std::int64_t held) {
  TravellingRows rows;
  for (const auto& [from, results] : all) {
    for (std::size_t e = 0; e < results.rows.size(); ++e) {
      const auto to = static_cast<int>(static_cast<std::int64_t>(e) / held);
      if (from == to) continue;
      if (from == rank) rows.sent += results.rows[e];
      if (to == rank) rows.received += results.rows[e];
    }
    if (from != rank) continue;
    for (int to = 0; to < std::ssize(results.copies); ++to) {
      if (to != rank) rows.copies += results.copies[to];
    }
  }
  return rows;
}

/// Two passes of forward and backward.
std::int64_t expected_bytes(const Setup& setup, const TravellingRows& rows) {
  const ExpertTraffic traffic{.ranks = setup.ranks,
                              .experts = setup.experts,
                              .pieces = setup.choices.pieces,
                              .copies = setup.choices.copies,
                              .channels = kChannels,
                              .weighed = setup.weighed,
                              .dtype = setup.dtype};
  return 2 * ((setup.checkpointed ? 2 : 1) * traffic.forward(rows) + traffic.backward(rows));
}

/// Runs the layer on ranks that share out the experts, and on ranks that each have all of them.
std::vector<std::string> differences(const Setup& setup) {
  Findings findings;
  std::mutex mutex;
  std::map<int, Results> alone;
  test::on_ranks(setup.ranks, [&](Communicator& world) {
    const int rank = world.rank();
    const Tokens tokens = tokens_of(setup, rank);
    {
      Results mine = run(setup, tokens, nullptr);
      const std::lock_guard lock(mutex);
      alone[rank] = std::move(mine);
    }
    const std::shared_ptr<Communicator> group = world.split(0);
    context().side_stream("rows of experts").set_delay([] {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    });
    world.barrier(context().compute_stream()).synchronize();
    const std::int64_t sent = world.bytes_sent();
    const Results shared = run(setup, tokens, std::make_shared<ExpertAxis>(group, setup.choices));
    const Results& own = alone.at(rank);
    const auto expect = [&](const char* what, const Tensor& a, const Tensor& b) {
      findings.expect(test::same_bits(a, b), fmt::format("{} of rank {}", what, rank));
    };
    expect("y", shared.y, own.y);
    expect("dx", shared.dx, own.dx);
    if (!setup.checkpointed) expect("dlogits", shared.dlogits, own.dlogits);
    const std::int64_t held = setup.experts / world.size(), first = rank * held;
    const std::int64_t bytes = expected_bytes(setup, travelling_rows(alone, rank, held));
    findings.expect(world.bytes_sent() - sent == bytes, fmt::format("bytes of rank {}", rank));
    std::vector<Tokens> all;
    for (int r = 0; r < world.size(); ++r) all.push_back(tokens_of(setup, r));
    const bool exact = setup.choices.sums == ExpertSums::exact;
    for (int s = 0; s < (exact ? world.size() : 1); ++s) {
      const std::vector<Tokens> summed = exact ? std::vector<Tokens>{all[s]} : all;
      const auto part = [&](WeightGradients weight) {
        return gradient_of(setup, summed, weight).slice(first, first + held);
      };
      expect("gate_up's gradient", shared.gate_up[s], part(&Results::gate_up));
      expect("down's gradient", shared.down[s], part(&Results::down));
    }
    world.barrier(context().compute_stream()).synchronize();
  });
  return findings.wrong();
}

}  // namespace

TEST_CASE("ranks that share out experts get the bits of ranks that each hold all of them") {
  for (const int ranks : {1, 2, 4}) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      for (const WeighedInput weighed : {WeighedInput::down, WeighedInput::gate_up}) {
        CAPTURE(ranks, name_of(dtype), static_cast<int>(weighed));
        const bool down = weighed == WeighedInput::down;
        const Setup setup{.ranks = ranks,
                          .experts = down ? 8 : 4,
                          .dtype = dtype,
                          .layout = down ? WeightLayout::out_in : WeightLayout::in_out,
                          .weighed = weighed};
        CHECK(differences(setup) == std::vector<std::string>{});
      }
    }
  }
}

TEST_CASE("the choices of an exchange have the sums that they promise, and the bytes") {
  const ExpertChoices all[] = {
      {.sums = ExpertSums::fast},
      {.pieces = 2},
      {.sums = ExpertSums::fast, .pieces = 2},
      {.pieces = 4},
      {.copies = ExpertCopies::each_rank},
      {.sums = ExpertSums::fast, .copies = ExpertCopies::each_rank, .pieces = 2}};
  for (const ExpertChoices& choices : all) {
    for (const WeighedInput weighed : {WeighedInput::down, WeighedInput::gate_up}) {
      CAPTURE(enum_name(choices.sums), choices.pieces, static_cast<int>(weighed));
      const bool down = weighed == WeighedInput::down;
      const Setup setup{.ranks = down ? 4 : 2,
                        .experts = 8,
                        .dtype = down ? DType::bf16 : DType::f32,
                        .layout = down ? WeightLayout::out_in : WeightLayout::in_out,
                        .weighed = weighed,
                        .checkpointed = down && choices.pieces == 2,
                        .choices = choices};
      CHECK(differences(setup) == std::vector<std::string>{});
    }
  }
}

TEST_CASE("experts that are shared out have the same bits when they are computed again") {
  const Setup setup{.ranks = 4,
                    .experts = 8,
                    .dtype = DType::f32,
                    .layout = WeightLayout::out_in,
                    .weighed = WeighedInput::down,
                    .checkpointed = true};
  CHECK(differences(setup) == std::vector<std::string>{});
}

TEST_CASE("only stacked parameters are shared out, and a layer's two over the same ranks") {
  test::on_ranks(1, [](Communicator& world) {
    const Parameter plain("plain", {4, 3}, {});
    const std::shared_ptr<Communicator> group = world.split(0);
    CHECK_THROWS_WITH(plain.share_out(std::make_shared<ExpertAxis>(group, ExpertChoices())),
                      Catch::Contains("'plain' has no experts to share out"));
    const Parameter gate_up("gate_up", {4, 4, 3}, {}), down("down", {4, 3, 2}, {});
    gate_up.set_stacked();
    gate_up.share_out(std::make_shared<ExpertAxis>(group, ExpertChoices()));
    const Routing routing =
        route(Variable(Tensor::zeros({2, 4}, DType::f32)), {.experts_per_token = 2, .bias = {}});
    CHECK_THROWS_WITH(
        experts(Variable(Tensor::zeros({2, 3}, DType::f32)), routing, gate_up, down, {}),
        Catch::Contains("'gate_up' and 'down' are shared out over different ranks"));
  });
}

}  // namespace tessera
