// GPT-2 with frozen parameters: the others get the same bits, and the units below have no backward.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "autograd/freeze.h"
#include "tests/models/whole_model.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using test::index_tensor;
using test::relative_error;
using test::same_bits;
using test::to_doubles;
using test::WholeModel;

constexpr Gpt2Config kTiny{
    .vocab_size = 53, .context = 12, .layers = 3, .heads = 3, .width = 24, .dropout = 0.1};

const std::string kNorms =
    "transformer.h.0.ln_1.weight,transformer.h.1.ln_2.bias,transformer.ln_f.weight";

Tensor inputs() {
  return index_tensor({3, 11}, kTiny.vocab_size, "inputs");
}
Tensor targets() {
  return index_tensor({3, 11}, kTiny.vocab_size, "targets");
}

void checkpoint_all(const WholeModel& whole) {
  for (const auto& unit : whole.model->units()) unit->set_checkpointing(true);
}

/// Which units go backward, in order.
struct BackwardLog final : UnitHooks {
  void before_forward(Unit&) override {}
  void after_forward(Unit&) override {}
  void before_backward(Unit& unit) override { before.push_back(unit.name()); }
  void after_backward(Unit& unit) override { after.push_back(unit.name()); }

  std::vector<std::string> before, after;
};

/// A GPU adds up a linear's bias gradient within the product for its weight's gradient, or alone.
bool is_bias_of_frozen_weight(const std::string& name, const std::string& frozen) {
  const std::size_t dot = name.rfind('.');
  return name.substr(dot) == ".bias" &&
         frozen.find(name.substr(0, dot) + ".weight") != std::string::npos;
}

}  // namespace

TEST_CASE("freezing changes no bit of the other gradients, and writes none of its own") {
  const test::Rank rank;
  const std::string frozen = GENERATE(
      // the tied embedding, from below and from the head
      std::string("transformer.wte"), "transformer.wpe", "transformer.wte,transformer.wpe",
      // whole blocks
      "transformer.h.0.", "transformer.h.1.", "transformer.h.2.",
      "transformer.wte,transformer.wpe,transformer.h.0.,transformer.h.1.",
      // weights or biases of linears
      "transformer.h.0.attn.c_attn.weight,transformer.h.1.mlp.c_fc.weight",
      "transformer.h.0.attn.c_proj.bias,transformer.h.2.mlp.c_proj.bias",
      // one half of a norm
      kNorms,
      // all but the lowest
      "transformer.wte,transformer.h.,transformer.ln_f");
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const bool checkpointing = GENERATE(false, true);
  CAPTURE(frozen, name_of(dtype), checkpointing);
  const WholeModel all(kTiny), some(kTiny, /*seed=*/1, frozen);
  if (checkpointing) checkpoint_all(some);
  for (const WholeModel* whole : {&all, &some}) whole->compute_in(dtype);
  REQUIRE(some.differentiate(inputs(), targets()) == all.differentiate(inputs(), targets()));
  int trained = 0;
  for (const Shard& shard : some.shards()) {
    const std::string& name = shard.parameter.name();
    CAPTURE(name);
    REQUIRE(shard.gradient.defined() == shard.parameter.trainable());
    if (!shard.parameter.trainable()) continue;
    ++trained;
    const Tensor& expected = all.shard(name).gradient;
    if (test::kOnGpu && is_bias_of_frozen_weight(name, frozen)) {
      REQUIRE(relative_error(to_doubles(shard.gradient), to_doubles(expected)) <= 2e-6);
    } else {
      REQUIRE(same_bits(shard.gradient, expected));
    }
  }
  REQUIRE(trained > 0);
}

TEST_CASE("units below the lowest trained parameter have no backward and keep no activations") {
  test::Rank rank;
  const bool checkpointing = GENERATE(false, true);
  const auto kept = [&](const WholeModel& whole) {
    const auto live = [&] {
      return rank.context.allocator().account()[Category::activations].current;
    };
    const std::int64_t before = live();
    const Variable loss = whole.model->loss(inputs(), targets(), 1.0, /*training=*/true);
    return live() - before;
  };
  const auto run = [&](const std::string& frozen, std::vector<std::string> expected) {
    CAPTURE(frozen, checkpointing);
    const WholeModel whole(kTiny, /*seed=*/1, frozen);
    if (checkpointing) checkpoint_all(whole);
    BackwardLog log;
    for (const auto& unit : whole.model->units()) unit->attach(&log);
    backward(whole.model->loss(inputs(), targets(), 1.0, /*training=*/true));
    CHECK(log.before == expected);
    // Every unit is told once that it is done.
    std::sort(expected.begin(), expected.end());
    expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
    std::sort(log.after.begin(), log.after.end());
    CHECK(log.after == expected);
    return kept(whole);
  };
  const std::string ends = "transformer.wte,transformer.wpe,transformer.h.0.";
  const std::int64_t all = run("", {"embedding", "h.2", "h.1", "h.0", "embedding"});
  run("transformer.wte,transformer.wpe", {"embedding", "h.2", "h.1", "h.0"});
  const std::int64_t two = run(ends, {"embedding", "h.2", "h.1"});
  // The upper half of a block counts: the trained parameter lies in h.1's second branch.
  run(ends + ",transformer.h.1.ln_1,transformer.h.1.attn", {"embedding", "h.2", "h.1"});
  const std::int64_t head = run(ends + ",transformer.h.1.,transformer.h.2.", {"embedding"});
  CHECK(all > two);
  CHECK(two > head);
  // ln_f keeps its input and two numbers per row; the loss its dx and itself.
  CHECK(head == 4 * (2 * 33 * 24 + 2 * 33 + 1));
}

TEST_CASE("a linear layer with a frozen weight does not keep its input") {
  test::Rank rank;
  const WholeModel all(kTiny), some(kTiny, /*seed=*/1, "transformer.h.1.mlp.c_proj.weight");
  const auto kept = [&](const WholeModel& whole) {
    const std::int64_t before = rank.context.allocator().account()[Category::activations].current;
    const Variable loss = whole.model->loss(inputs(), targets(), 1.0, /*training=*/true);
    return rank.context.allocator().account()[Category::activations].current - before;
  };
  CHECK(kept(all) - kept(some) == 4 * 33 * 4 * 24);
}

}  // namespace tessera
