#include "kernels/sgd/op.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "tests/kernels/optimizer_case.h"
#include "tests/support/precision.h"
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

SgdTensors tensors_of(std::int64_t count, DType gradient_dtype = DType::f32,
                      const std::string& name = "") {
  return {.p = normal_tensor({count}, DType::f32, name + "p"),
          .b = normal_tensor({count}, DType::f32, name + "b"),
          .gradient = normal_tensor({count}, gradient_dtype, name + "gradient")};
}

void update(const SgdTensors& tensors, const SgdSettings& settings) {
  sgd(std::span(&tensors, 1), settings);
}

/// PyTorch's documented algorithm (torch.optim.SGD), in double.
void reference_update(Values& p, Values& b, const Values& gradient, const SgdSettings& s) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    double g = gradient[i] * s.gradient_scale + s.weight_decay * p[i];
    if (s.momentum != 0.0) {
      b[i] = s.first_step ? g : s.momentum * b[i] + g;
      g = s.nesterov ? g + s.momentum * b[i] : b[i];
    }
    p[i] -= s.learning_rate * g;
  }
}

/// Plain, with momentum and with nesterov; the latter two on the first step and later.
std::vector<SgdSettings> all_kinds() {
  const SgdSettings plain = {.learning_rate = 0.1, .weight_decay = 0.01, .gradient_scale = 0.5};
  SgdSettings momentum = plain;
  momentum.momentum = 0.9;
  SgdSettings first = momentum;
  first.first_step = true;
  SgdSettings nesterov = momentum;
  nesterov.nesterov = true;
  SgdSettings first_nesterov = nesterov;
  first_nesterov.first_step = true;
  return {plain, momentum, first, nesterov, first_nesterov};
}

/// For tests/kernels/optimizer_case.h.
struct SgdOperation {
  using Tensors = SgdTensors;
  using Settings = SgdSettings;

  static Tensors make(std::int64_t count, DType gradient_dtype, const std::string& name) {
    return tensors_of(count, gradient_dtype, name);
  }
  static void update(std::span<const Tensors> list, const Settings& settings, const Tensor& scale) {
    sgd(list, settings, scale);
  }
  static Tensors slice(const Tensors& t, std::int64_t begin, std::int64_t end) {
    return {.p = t.p.slice(begin, end),
            .b = t.b.slice(begin, end),
            .gradient = t.gradient.slice(begin, end),
            .decay = t.decay};
  }
  static std::vector<Tensor> written(const Tensors& t) { return {t.p, t.b}; }
  static std::vector<Settings> settings() { return all_kinds(); }
  static Settings without_decay(Settings settings) {
    settings.weight_decay = 0.0;
    return settings;
  }
};

}  // namespace

TEST_CASE("sgd: p and b follow PyTorch's update, plain, with momentum and with nesterov") {
  const test::Rank rank;
  for (const SgdSettings& settings : all_kinds()) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t count : {0, 1, 19, 8193, 20'001}) {
        const SgdTensors c = tensors_of(count, dtype);
        Values p = to_doubles(c.p), b = to_doubles(c.b);
        reference_update(p, b, to_doubles(c.gradient), settings);
        update(c, settings);
        REQUIRE(relative_error(to_doubles(c.p), p) <= 2e-7);
        REQUIRE(relative_error(to_doubles(c.b), b) <= 2e-7);
      }
    }
  }
}

TEST_CASE("sgd: the first step does not read b") {
  const test::Rank rank;
  SgdTensors c = tensors_of(100);
  c.b = test::poisoned({100}, DType::f32);
  update(c, {.momentum = 0.9, .first_step = true});
  REQUIRE(same_bits(c.b, c.gradient));
}

TEST_CASE("sgd: without momentum b may be missing") {
  const test::Rank rank;
  const Tensor p = Tensor::from(std::vector<float>{1.0f, 2.0f}, {2});
  const Tensor gradient = Tensor::from(std::vector<float>{4.0f, -8.0f}, {2});
  update({p, Tensor(), gradient}, {.learning_rate = 0.25});
  REQUIRE(to_doubles(p) == Values{0.0, 4.0});
}

TEST_CASE("sgd: a range gives the same bits whole or in pieces of any alignment") {
  test::check_pieces<SgdOperation>();
}

TEST_CASE("sgd: many tensors in one call, each with its own decay, neighbours untouched") {
  test::check_many_tensors<SgdOperation>(DType::f32);
  test::check_many_tensors<SgdOperation>(DType::bf16);
}

TEST_CASE("sgd: a scale on the device replaces the setting, and stops the update if not finite") {
  test::check_scale_on_device<SgdOperation>();
}

TEST_CASE("sgd: the device gives the CPU's bits") {
  test::check_device_against_cpu<SgdOperation>();
}

TEST_CASE("sgd: the same bits for any number of threads", "[cpu]") {
  test::check_threads<SgdOperation>();
}

TEST_CASE("sgd: wrong arguments are named") {
  const test::Rank rank;
  const SgdTensors c = tensors_of(4);
  const SgdSettings momentum = {.momentum = 0.9};
  const Tensor five = Tensor::zeros({5}, DType::f32), i32 = Tensor::zeros({4}, DType::i32),
               bf16 = Tensor::zeros({4}, DType::bf16);
  REQUIRE_THROWS_WITH(update({c.p, c.b, five}, {}),
                      Contains("sgd: p is f32 [4] and gradient is f32 [5]"));
  REQUIRE_THROWS_WITH(update({bf16, c.b, c.gradient}, {}), Contains("p is bf16 [4]"));
  REQUIRE_THROWS_WITH(update({c.p, c.b, i32}, {}), Contains("gradient is i32 [4]"));
  REQUIRE_THROWS_WITH(update({c.p, Tensor(), c.gradient}, momentum),
                      Contains("b is an undefined tensor"));
  REQUIRE_THROWS_WITH(update({c.p, five, c.gradient}, momentum), Contains("b is f32 [5]"));
  REQUIRE_THROWS_WITH(update({c.p, c.p, c.gradient}, momentum), Contains("b overlaps p"));
  const std::vector<SgdTensors> mixed = {c, tensors_of(4, DType::bf16)};
  REQUIRE_THROWS_WITH(sgd(mixed, {}), Contains("gradient is bf16 [4]"));
  REQUIRE_THROWS_WITH(sgd(std::span(&c, 1), {}, bf16.slice(0, 1)),
                      Contains("gradient_scale is bf16 [1]"));
}

}  // namespace tessera
