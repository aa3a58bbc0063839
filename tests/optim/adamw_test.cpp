#include "optim/adamw.h"

#include <catch2/catch.hpp>

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

ParameterShard shard(const std::string& name, std::int64_t count, bool decay = true) {
  return {.name = name,
          .data = normal_tensor({count}, DType::f32, name),
          .gradient = normal_tensor({count}, DType::f32, name + ".gradient"),
          .decay = decay};
}

Tensor on_host(const Tensor& tensor) {
  const Tensor copy = Tensor::empty_on_host(tensor.shape(), tensor.dtype());
  copy.copy_from(tensor);
  return copy;
}

}  // namespace

TEST_CASE("AdamW: five steps agree with torch.optim.AdamW") {
  const test::Rank rank;
  const std::vector<float> start = {1.0f, -2.0f, 0.5f, 3.0f};
  const Tensor data = Tensor::from(start, {4});
  AdamW optimizer({{.name = "w", .data = data, .gradient = Tensor::zeros({4}, DType::f32)}},
                  {.beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1});
  // In PyTorch, with float64 tensors:
  //   p = torch.tensor([1., -2., .5, 3.], requires_grad=True)
  //   o = torch.optim.AdamW([p], lr=.01, betas=(.9, .95), eps=1e-8, weight_decay=.1)
  //   for t in range(1, 6):
  //     p.grad = torch.tensor([.5, -.25, 1e-4, 2.]) * t * (-1)**t * .5 + .1 * p.detach(); o.step()
  const std::vector<float> direction = {0.5f, -0.25f, 1e-4f, 2.0f};
  for (int t = 1; t <= 5; ++t) {
    std::vector<float> gradient = data.to_vector<float>();
    for (int i = 0; i < 4; ++i) {
      const float sign = t % 2 == 0 ? 0.5f : -0.5f;
      gradient[i] = direction[i] * static_cast<float>(t) * sign + 0.1f * gradient[i];
    }
    optimizer.shards()[0].gradient.copy_from(Tensor::from(gradient, {4}));
    optimizer.step(0.01);
  }
  REQUIRE(optimizer.steps() == 5);
  REQUIRE(relative_error(to_doubles(data), {0.9985046585511118, -1.959183216303262,
                                            0.44766350344546, 2.9900194719286928}) <= 1e-6);
}

TEST_CASE("AdamW: state is two zeroed tensors per shard, exactly 8 bytes per element") {
  test::Rank rank;
  const std::int64_t before = rank.context.allocator().account()[Category::optimizer].current;
  const AdamW optimizer({shard("a", 1000), shard("empty", 0), shard("b", 37)});
  const MemoryAccount account = rank.context.allocator().account();
  REQUIRE(account[Category::optimizer].current - before == 8 * 1037);

  const NamedTensors state = optimizer.state();
  REQUIRE(state.size() == 6);
  REQUIRE(state[0].first == "a.m");
  REQUIRE(state[1].first == "a.v");
  REQUIRE(state[5].first == "b.v");
  for (const auto& [name, tensor] : state) {
    for (const double value : to_doubles(tensor)) REQUIRE(value == 0.0);
  }
}

TEST_CASE("AdamW: steps allocate nothing that stays") {
  test::Rank rank;
  AdamW optimizer({shard("a", 1000)});
  const std::int64_t before = rank.context.allocator().account().total.current;
  optimizer.step(0.1);
  REQUIRE(rank.context.allocator().account().total.current == before);
}

TEST_CASE("AdamW: without decay a zero gradient leaves the parameter alone, with it shrinks") {
  const test::Rank rank;
  std::vector<ParameterShard> shards = {shard("matrix", 10, true), shard("norm", 10, false)};
  for (const ParameterShard& s : shards) s.gradient.zero();
  const Values matrix = to_doubles(shards[0].data), norm = to_doubles(shards[1].data);
  AdamW optimizer(shards, {.weight_decay = 0.5});
  optimizer.step(0.1);
  REQUIRE(to_doubles(shards[1].data) == norm);
  Values shrunk = matrix;
  for (double& value : shrunk) value *= 1.0 - 0.1 * 0.5;
  REQUIRE(relative_error(to_doubles(shards[0].data), shrunk) <= 1e-7);
}

TEST_CASE("AdamW: a run continued from saved state has the bits of one that was never stopped") {
  const test::Rank rank;
  const ParameterShard original = shard("w", 77);
  AdamW straight({original});
  for (int i = 0; i < 3; ++i) straight.step(0.01);

  const Tensor resumed_data = original.data.clone();
  AdamW resumed({{.name = "w", .data = resumed_data, .gradient = original.gradient}});
  resumed.set_steps(straight.steps());
  const NamedTensors saved = straight.state(), restored = resumed.state();
  for (std::size_t i = 0; i < saved.size(); ++i) restored[i].second.copy_from(saved[i].second);
  straight.step(0.01);
  resumed.step(0.01);
  REQUIRE(resumed.steps() == 4);
  REQUIRE(same_bits(resumed_data, original.data));
}

TEST_CASE("AdamW: the gradient may be another tensor at every step, in 16 bits too") {
  const test::Rank rank;
  AdamW optimizer({shard("w", 5)}, {.epsilon = 0.0, .weight_decay = 0.0});
  optimizer.shards()[0].gradient = Tensor::from(std::vector<bfloat16>(5, bfloat16(-2.0f)), {5});
  Values expected = to_doubles(optimizer.shards()[0].data);
  for (double& value : expected) value += 0.25;  // the first step moves by the learning rate
  optimizer.step(0.25);
  REQUIRE(relative_error(to_doubles(optimizer.shards()[0].data), expected) <= 3e-7);
}

TEST_CASE("AdamW: bf16 shards, in the mean, go where f32 masters go") {
  const test::Rank rank;
  // 300 updates of 1e-5 are 0.003, less than the distance of bf16 numbers near 1: rounded to
  // nearest nothing would move.
  constexpr std::int64_t kCount = 5000;
  const Tensor data = Tensor::from(std::vector<bfloat16>(kCount, bfloat16(1.0f)), {kCount});
  const Tensor gradient = Tensor::full({kCount}, DType::f32, 1.0);
  AdamW optimizer({{.name = "w", .data = data, .gradient = gradient}},
                  {.weight_decay = 0.0, .seed = 3});
  for (int i = 0; i < 300; ++i) optimizer.step(1e-5);
  double mean = 0.0;
  for (const double value : to_doubles(data)) mean += value / kCount;
  REQUIRE(mean == Approx(0.997).margin(2e-4));
}

TEST_CASE("AdamW: a parameter cut into shards gets the bits of the whole") {
  const test::Rank rank;
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const auto make = [&](std::int64_t begin, std::int64_t end) {
    return ParameterShard{.name = "w",
                          .data = normal_tensor({1003}, dtype, "w").slice(begin, end).clone(),
                          .gradient = normal_tensor({1003}, DType::f32, "g").slice(begin, end),
                          .elements = {.first = begin}};
  };
  AdamW whole({make(0, 1003)}), cut({make(0, 334), make(334, 334), make(334, 1003)});
  for (int i = 0; i < 3; ++i) {
    whole.step(0.01, 0.7);
    cut.step(0.01, 0.7);
  }
  const Tensor& data = whole.shards()[0].data;
  REQUIRE(same_bits(cut.shards()[0].data, data.slice(0, 334)));
  REQUIRE(same_bits(cut.shards()[2].data, data.slice(334, 1003)));
}

TEST_CASE("AdamW: a skipped step changes nothing and does not count") {
  const test::Rank rank;
  const ParameterShard s = shard("w", 50);
  const Tensor copy = s.data.clone();
  AdamW known({s}), scaled({{.name = "w", .data = copy, .gradient = s.gradient}});
  known.step(0.01, 0.5);
  scaled.step(0.01, Tensor::from(std::vector{0.5f}, {1}));
  scaled.step(0.01, Tensor::from(std::vector{std::nanf("")}, {1}));
  REQUIRE(same_bits(copy, s.data));
  REQUIRE(scaled.steps() == 2);
  scaled.step_was_skipped();
  REQUIRE(scaled.steps() == 1);
  REQUIRE_THROWS_WITH(scaled.step_was_skipped(), Contains("no step since"));
  known.step(0.01);
  scaled.step(0.01);
  REQUIRE(same_bits(copy, s.data));
}

TEST_CASE("AdamW: shards in host memory are updated there, with the device's bits") {
  test::Rank rank;
  const ParameterShard s = shard("w", 1030);
  // Copied by the device: the optimizer waits for them.
  AdamW there({{.name = "w", .data = on_host(s.data), .gradient = on_host(s.gradient)}});
  const std::int64_t before = rank.context.allocator().account()[Category::optimizer].current;
  const std::int64_t host = rank.context.host_allocator().account()[Category::optimizer].current;
  AdamW here({s});
  if (!rank.context.device().is_cpu()) {
    REQUIRE(before == 0);
    REQUIRE(host == 8 * 1030);
  }
  const Tensor scale = Tensor::from(std::vector{0.25f}, {1});
  for (int i = 0; i < 3; ++i) {
    here.step(0.01, scale);
    there.step(0.01, scale);
  }
  REQUIRE(there.state()[0].second.device().is_cpu());
  REQUIRE(same_bits(here.shards()[0].data, there.shards()[0].data));
  REQUIRE(same_bits(here.state()[0].second, there.state()[0].second));
  REQUIRE(same_bits(here.state()[1].second, there.state()[1].second));
}

TEST_CASE("AdamW: shards in both memories are each updated where they are") {
  const test::Rank rank;
  const ParameterShard a = shard("a", 100), b = shard("b", 200), c = shard("c", 300);
  const auto moved = [](const ParameterShard& s) {
    return ParameterShard{.name = s.name, .data = on_host(s.data), .gradient = on_host(s.gradient)};
  };
  const auto copied = [](const ParameterShard& s) {
    return ParameterShard{.name = s.name, .data = s.data.clone(), .gradient = s.gradient};
  };
  AdamW mixed({moved(a), copied(b), moved(c)});
  AdamW here({a, b, c});
  for (AdamW* optimizer : {&mixed, &here}) {
    optimizer->step(0.01, Tensor::from(std::vector{0.25f}, {1}));
    optimizer->step(0.01);
    REQUIRE(optimizer->steps() == 2);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(same_bits(mixed.shards()[i].data, here.shards()[i].data));
    CHECK(same_bits(mixed.state()[2 * i].second, here.state()[2 * i].second));
  }
}

TEST_CASE("AdamW: a missing or ill-fitting gradient is an error, before anything changes") {
  const test::Rank rank;
  const ParameterShard good = shard("good", 4);
  const Tensor before = good.data.clone();
  AdamW optimizer({good, shard("bad", 6)});
  optimizer.shards()[1].gradient = Tensor::zeros({5}, DType::f32);
  REQUIRE_THROWS_WITH(optimizer.step(0.1), Contains("bad is f32 [6] and its gradient is f32 [5]"));
  optimizer.shards()[1].gradient = Tensor();
  REQUIRE_THROWS_WITH(optimizer.step(0.1), Contains("bad has no gradient"));
  REQUIRE(optimizer.steps() == 0);
  REQUIRE(same_bits(good.data, before));
  REQUIRE_THROWS_WITH(AdamW({{.name = "w", .data = Tensor::zeros({2}, DType::f16)}}),
                      Contains("the data of w is f16 [2]; it must be f32 or bf16"));
  REQUIRE_THROWS_WITH(optimizer.set_steps(-1), Contains("updates is -1"));
}

}  // namespace tessera
