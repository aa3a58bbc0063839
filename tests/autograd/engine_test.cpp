// The graph and the engine: order, accumulation, lifetimes.
#include "autograd/engine.h"

#include <catch2/catch.hpp>

#include "autograd/checkpoint.h"
#include "autograd/operations.h"
#include "kernels/add/op.h"
#include "tests/support/gradient_check.h"
#include "tests/support/rank.h"

namespace tessera {

using test::normal_tensor;
using test::OwnedParameter;
using test::same_bits;

namespace {

std::int64_t live_activations() {
  return context().allocator().account()[Category::activations].current;
}

Tensor ones(const Shape& shape) {
  return Tensor::from(std::vector<float>(static_cast<std::size_t>(shape.numel()), 1.0f), shape);
}

struct RecordingScope final : BackwardScope {
  RecordingScope(std::string name, std::vector<std::string>& log) : name(name), log(log) {}
  void before_backward() override { log.push_back("before " + name); }
  void after_backward() override { log.push_back("after " + name); }
  std::string name;
  std::vector<std::string>& log;
};

}  // namespace

TEST_CASE("a value used three times gets the sum of three gradients") {
  const test::Rank rank;
  const Variable x = Variable::leaf(ones({4}));
  backward(add(add(scale(x, 2.0), scale(x, 3.0)), x), ones({4}));
  CHECK(x.gradient().to_vector<float>() == std::vector<float>(4, 6.0f));
}

TEST_CASE("a second backward adds to a leaf's gradient") {
  const test::Rank rank;
  const Variable x = Variable::leaf(ones({2}));
  backward(scale(x, 2.0), ones({2}));
  backward(scale(x, 5.0), ones({2}));
  CHECK(x.gradient().to_vector<float>() == std::vector<float>(2, 7.0f));
}

TEST_CASE("the seed is never overwritten") {
  const test::Rank rank;
  const Variable x = Variable::leaf(normal_tensor({8}, DType::f32, "x"));
  const Tensor seed = ones({8});
  backward(gelu(scale(x, 2.0)), seed);
  CHECK(seed.to_vector<float>() == std::vector<float>(8, 1.0f));
}

TEST_CASE("an operation that adds up its input's gradients is given those that came before") {
  const test::Rank rank;
  std::vector<std::vector<float>> seen;
  int runs = 0;
  const auto doubled = [&](const Variable& x) {
    return adding_differentiable(ones({2}), x, false, [&seen](Tensor dy, Tensor received) {
      seen.push_back(received.defined() ? received.to_vector<float>() : std::vector<float>{});
      const Tensor dx = Tensor::empty({2}, DType::f32);
      add(dx, dy, dy);
      if (received.defined()) add(dx, dx, received);
      return dx;
    });
  };
  const auto counted = [&](const Variable& x) {
    return differentiable(ones({2}), {x}, false, [&runs](Tensor dy) -> Gradients {
      ++runs;
      return {dy};
    });
  };
  const Variable x = Variable::leaf(ones({2}));
  const Variable y = counted(x);
  const Variable first = doubled(y), second = doubled(y);
  backward(add(add(first, second), scale(y, 3.0)), ones({2}));
  CHECK(seen == std::vector<std::vector<float>>{{3.0f, 3.0f}, {5.0f, 5.0f}});
  CHECK(runs == 1);
  CHECK(x.gradient().to_vector<float>() == std::vector<float>(2, 7.0f));

  seen.clear();
  backward(doubled(x), ones({2}));  // adds to the gradient that the leaf has
  CHECK(seen == std::vector<std::vector<float>>{{7.0f, 7.0f}});
  CHECK(x.gradient().to_vector<float>() == std::vector<float>(2, 9.0f));
  backward(doubled(counted(Variable::leaf(ones({2})))), ones({2}));
  CHECK(seen.back().empty());
}

TEST_CASE("a parameter's first gradient overwrites and the following ones add") {
  const test::Rank rank;
  OwnedParameter weight("weight", {3, 2}, 1.0, DType::f32);  // its gradient starts as NaN
  const Variable x(normal_tensor({5, 2}, DType::f32, "x"));
  const Tensor seed = normal_tensor({5, 3}, DType::f32, "seed");
  backward(linear(x, weight.parameter, Parameter()), seed);
  const auto once = weight.gradient.to_vector<float>();
  backward(linear(x, weight.parameter, Parameter()), seed);
  const auto twice = weight.gradient.to_vector<float>();
  for (std::size_t i = 0; i < once.size(); ++i) CHECK(twice[i] == 2.0f * once[i]);
  weight.parameter.reset_gradient();
  backward(linear(x, weight.parameter, Parameter()), seed);
  CHECK(weight.gradient.to_vector<float>() == once);
}

TEST_CASE("only the root's node knows that its gradient is 1") {
  const test::Rank rank;
  std::vector<bool> known;
  const auto probe = [&](const Variable& x) {
    return differentiable(x.data(), {x}, false, [&](Tensor dy) -> Gradients {
      known.push_back(gradient_is_known_one());
      return {dy};
    });
  };
  const Variable x = Variable::leaf(ones({1}));
  backward(probe(probe(x)));
  CHECK(known == std::vector{true, false});
  known.clear();
  backward(probe(probe(x)), ones({1}));
  CHECK(known == std::vector{false, false});
  known.clear();
  backward(probe(checkpoint(probe, x)));  // whose backward runs another
  CHECK(known == std::vector{true, false});
  CHECK_FALSE(gradient_is_known_one());
}

TEST_CASE("a graph runs backward once") {
  const test::Rank rank;
  const Variable x = Variable::leaf(ones({2}));
  const Variable y = scale(x, 2.0);
  backward(y, ones({2}));
  REQUIRE_THROWS_WITH(backward(y, ones({2})), Catch::Contains("once"));
}

TEST_CASE("misuse of backward is named") {
  const test::Rank rank;
  const Variable constant(ones({2}));
  REQUIRE_THROWS_WITH(backward(scale(constant, 2.0)), Catch::Contains("does not depend on a leaf"));
  const Variable x = Variable::leaf(ones({2}));
  REQUIRE_THROWS_WITH(backward(scale(x, 2.0)), Catch::Contains("seed"));
  REQUIRE_THROWS_WITH(backward(scale(x, 2.0), ones({3})), Catch::Contains("the seed is f32 [3]"));
  REQUIRE_THROWS_WITH(scale(x, 2.0).gradient(), Catch::Contains("leaves only"));
  REQUIRE_THROWS_WITH(Variable::leaf(Tensor::zeros({2}, DType::i32)), Catch::Contains("floating"));
  const Parameter closed("closed", {2, 2}, Initializer::zeros());
  REQUIRE_THROWS_WITH(linear(x, closed, Parameter()), Catch::Contains("'closed'"));
}

TEST_CASE("inside NoGradient nothing is recorded and nothing is saved") {
  const test::Rank rank;
  const Variable x = Variable::leaf(ones({1024}));
  const NoGradient scope;
  const std::int64_t before = live_activations();
  {
    const Variable y = gelu(gelu(gelu(x)));
    CHECK_FALSE(y.requires_gradient());
    CHECK(live_activations() - before == 4096);  // y alone
  }
  CHECK(live_activations() == before);
}

TEST_CASE("backward frees each saved tensor as soon as it has been used") {
  const test::Rank rank;
  constexpr std::int64_t kBytes = 4 * 1000;
  constexpr int kLayers = 10;
  const std::int64_t before = live_activations();
  const Variable x = Variable::leaf(ones({1000}));  // not charged to activations
  std::vector<std::string> log;
  {
    Variable y = x;
    for (int i = 0; i < kLayers; ++i) y = gelu(y);
    // Each gelu saves its input; the first one's is x itself. The last result is held by y.
    CHECK(live_activations() - before == kLayers * kBytes);
    Tensor seed;
    {
      const CategoryScope category(Category::activations);
      seed = ones({1000});
    }
    current_stream().synchronize();  // a copy to a GPU holds it until then
    context().allocator().record_history(true);
    context().allocator().reset_peaks();
    const std::int64_t at_start = live_activations();
    backward(y, std::move(seed));
    // gelu writes its gradient over the one it consumed and then drops its input: memory never
    // grows.
    CHECK(context().allocator().account()[Category::activations].peak == at_start);
    int freed = 0;
    for (const MemoryEvent& event : context().allocator().history()) {
      CHECK(event.bytes == -kBytes);
      ++freed;
    }
    CHECK(freed == kLayers - 1);
  }
  // Only the gradient of x is left. It took over the seed's memory.
  CHECK(live_activations() - before == kBytes);
}

TEST_CASE("scopes open before their first node and close after their last") {
  const test::Rank rank;
  std::vector<std::string> log;
  const Variable x = Variable::leaf(ones({2}));
  Variable y;
  {
    const BackwardScopeGuard guard(std::make_shared<RecordingScope>("first", log));
    y = gelu(gelu(x));
  }
  {
    const BackwardScopeGuard guard(std::make_shared<RecordingScope>("second", log));
    y = add(y, gelu(y));
  }
  y = scale(y, 2.0);
  backward(y, ones({2}));
  CHECK(log ==
        std::vector<std::string>{"before second", "after second", "before first", "after first"});
}

TEST_CASE("checkpoint: same bits as without, dropout included, and less memory") {
  const test::Rank rank;
  OwnedParameter weight("weight", {64, 64}, 0.1, DType::f32);
  const Tensor input = normal_tensor({32, 64}, DType::f32, "input");
  const Tensor seed = normal_tensor({32, 64}, DType::f32, "seed");
  const auto block = [&](const Variable& h) {
    return add(h, dropout(gelu(linear(h, weight.parameter, Parameter())), 0.3f,
                          RandomStream(1, "site", 4, 2)));
  };

  struct Outcome {
    Tensor result, dx, dweight;
    std::int64_t saved;
  };
  const auto run = [&](bool checkpointed) {
    weight.parameter.reset_gradient();
    const Variable x = Variable::leaf(input);
    const std::int64_t before = live_activations();
    Variable y = x;
    for (int i = 0; i < 4; ++i) y = checkpointed ? checkpoint(block, y) : block(y);
    Outcome outcome{.result = y.data(), .saved = live_activations() - before};
    backward(y, seed.clone());
    outcome.dx = x.gradient();
    outcome.dweight = weight.gradient.clone();
    return outcome;
  };
  const Outcome kept = run(false);
  const Outcome recomputed = run(true);
  CHECK(same_bits(kept.result, recomputed.result));
  CHECK(same_bits(kept.dx, recomputed.dx));
  CHECK(same_bits(kept.dweight, recomputed.dweight));
  // Four results of 32 x 64 floats; without checkpointing, gelu also saves one input per block.
  CHECK(recomputed.saved == 4 * 32 * 64 * 4);
  CHECK(kept.saved == 2 * recomputed.saved);
}

TEST_CASE("checkpoint: dropout of two micro-batches in flight, same bits as without") {
  test::Rank rank;
  const Tensor input = normal_tensor({32, 64}, DType::f32, "input");
  // Reads the random position when it runs, as models do.
  const auto block = [&](const Variable& h) {
    const RandomPosition& at = context().random();
    return dropout(gelu(h), 0.3f, RandomStream(at.seed, "site", at.step, at.micro_batch));
  };
  // Two forward passes, then two backward passes.
  const auto gradients = [&](bool checkpointed) {
    std::vector<Variable> inputs, results;
    for (const std::uint64_t micro_batch : {0, 1}) {
      rank.context.random() = {.seed = 7, .step = 3, .micro_batch = micro_batch};
      inputs.push_back(Variable::leaf(input));
      results.push_back(checkpointed ? checkpoint(block, inputs.back()) : block(inputs.back()));
    }
    for (const Variable& result : results) backward(result, ones({32, 64}));
    CHECK(rank.context.random().micro_batch == 1);  // backward leaves the position as it was
    return std::vector<Tensor>{inputs[0].gradient(), inputs[1].gradient()};
  };
  const std::vector<Tensor> kept = gradients(false);
  const std::vector<Tensor> recomputed = gradients(true);
  CHECK_FALSE(same_bits(kept[0], kept[1]));
  CHECK(same_bits(kept[0], recomputed[0]));
  CHECK(same_bits(kept[1], recomputed[1]));
}

TEST_CASE("checkpoint: with nothing to train, nothing is recorded or kept") {
  const test::Rank rank;
  OwnedParameter weight("weight", {2, 2}, 1.0, DType::f32);
  const Variable x(normal_tensor({3, 2}, DType::f32, "x"));
  const auto function = [&](const Variable& h) {
    return gelu(linear(h, weight.parameter, Parameter()));
  };
  const auto nested = [&](const Variable& h) { return checkpoint(function, h); };
  CHECK(checkpoint(function, x).requires_gradient());
  CHECK(checkpoint(nested, x).requires_gradient());
  const auto without_weights = [](const Variable& h) { return gelu(h); };
  CHECK(checkpoint(without_weights, Variable::leaf(x.data())).requires_gradient());
  CHECK_FALSE(checkpoint(without_weights, x).requires_gradient());
  weight.parameter.set_trainable(false);
  CHECK_FALSE(checkpoint(function, x).requires_gradient());
  CHECK_FALSE(checkpoint(nested, x).requires_gradient());
}

TEST_CASE("checkpoint: a function that stops the gradient is fine in backward") {
  const test::Rank rank;
  const Variable x = Variable::leaf(ones({2}));
  backward(checkpoint([](const Variable& h) { return Variable(h.data()); }, x), ones({2}));
  CHECK_FALSE(x.gradient().defined());
}

}  // namespace tessera
