#include "optim/sgd.h"

#include <catch2/catch.hpp>

#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

using Catch::Contains;
using test::normal_tensor;
using test::relative_error;
using test::to_doubles;
using Values = std::vector<double>;

// Five steps from [1, -2, 0.5, 3] with learning rate 0.1. In PyTorch, with float64 tensors:
//   for t in range(1, 6):
//     p.grad = torch.tensor([.5, -.25, 1e-4, 2.]) * t * (-1)**t * .5 + .1 * p.detach(); o.step()
Values five_steps(const SgdOptions& options) {
  const Tensor data = Tensor::from(std::vector<float>{1.0f, -2.0f, 0.5f, 3.0f}, {4});
  const Tensor gradient = Tensor::zeros({4}, DType::f32);
  Sgd optimizer({{.name = "w", .data = data, .gradient = gradient}}, options);
  const std::vector<float> direction = {0.5f, -0.25f, 1e-4f, 2.0f};
  for (int t = 1; t <= 5; ++t) {
    const float sign = t % 2 == 0 ? 0.5f : -0.5f;
    std::vector<float> values = data.to_vector<float>();
    for (int i = 0; i < 4; ++i) {
      // Twice too large on purpose: gradient_scale takes it back.
      values[i] = 2.0f * (direction[i] * static_cast<float>(t) * sign + 0.1f * values[i]);
    }
    gradient.copy_from(Tensor::from(values, {4}));
    optimizer.step(0.1, 0.5);
  }
  return to_doubles(data);
}

ParameterShard shard(std::int64_t count, bool decay = true) {
  return {.name = "w",
          .data = normal_tensor({count}, DType::f32, "w"),
          .gradient = normal_tensor({count}, DType::f32, "gradient"),
          .decay = decay};
}

}  // namespace

TEST_CASE("Sgd: five steps agree with torch.optim.SGD: plain, with momentum, and Nesterov's") {
  const test::Rank rank;
  // torch.optim.SGD([p], lr=.1, weight_decay=.01)
  const Values plain = {1.021205771859974, -1.9298980304959106, 0.4731133833237377,
                        3.138626324395947};
  REQUIRE(relative_error(five_steps({.weight_decay = 0.01}), plain) <= 1e-6);
  // With momentum=.9
  const Values momentum = {0.926049956317574, -1.7517238755961102, 0.42957968261737967,
                           2.845067226978747};
  SgdOptions options = {.momentum = 0.9, .weight_decay = 0.01};
  REQUIRE(relative_error(five_steps(options), momentum) <= 1e-6);
  // With nesterov=True, too
  const Values nesterov = {0.9572410859938811, -1.7131389190006563, 0.4115329711016369,
                           3.005952093306381};
  options.nesterov = true;
  REQUIRE(relative_error(five_steps(options), nesterov) <= 1e-6);
}

TEST_CASE("Sgd: momentum costs 4 bytes per element, plain steps nothing") {
  test::Rank rank;
  const Sgd plain({shard(100)});
  REQUIRE(plain.state().empty());
  REQUIRE(rank.context.allocator().account()[Category::optimizer].current == 0);
  const Sgd momentum({shard(100), shard(11)}, {.momentum = 0.9});
  REQUIRE(rank.context.allocator().account()[Category::optimizer].current == 4 * 111);
  REQUIRE(momentum.state().size() == 2);
  REQUIRE(momentum.state()[0].first == "w.momentum");
}

TEST_CASE("Sgd: a shard that does not decay keeps out of weight decay") {
  const test::Rank rank;
  const ParameterShard s = shard(9, false);
  s.gradient.zero();
  const Values before = to_doubles(s.data);
  Sgd optimizer({s}, {.weight_decay = 0.5});
  optimizer.step(0.1);
  REQUIRE(to_doubles(s.data) == before);
}

TEST_CASE("Sgd: wrong options are named") {
  const test::Rank rank;
  REQUIRE_THROWS_WITH(Sgd({}, {.momentum = -0.1}), Contains("momentum is -0.1"));
  REQUIRE_THROWS_WITH(Sgd({}, {.nesterov = true}), Contains("nesterov needs a momentum"));
  REQUIRE_THROWS_WITH(Sgd({{.name = "w", .data = Tensor::zeros({2}, DType::bf16)}}),
                      Contains("the data of w is bf16 [2]; it must be f32"));
}

}  // namespace tessera
