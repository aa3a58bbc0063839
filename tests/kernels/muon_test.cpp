#include "kernels/muon/op.h"

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

/// For tests/kernels/optimizer_case.h.
struct DirectionOperation {
  using Settings = MuonDirectionSettings;
  struct Tensors {
    Tensor p, gradient, direction;  // p is m
    bool decay = true;              // for the tests; there is no decay here
  };

  static Tensors make(std::int64_t count, DType gradient_dtype, const std::string& name) {
    return {.p = normal_tensor({count}, DType::f32, name + "m"),
            .gradient = normal_tensor({count}, gradient_dtype, name + "gradient"),
            .direction = normal_tensor({count}, DType::bf16, name + "direction")};
  }
  static void update(std::span<const Tensors> list, const Settings& settings, const Tensor& scale) {
    std::vector<MuonDirection> ranges;
    for (const Tensors& t : list) ranges.push_back({t.p, t.gradient, t.direction});
    muon_direction(ranges, settings, scale);
  }
  static Tensors slice(const Tensors& t, std::int64_t begin, std::int64_t end) {
    return {.p = t.p.slice(begin, end),
            .gradient = t.gradient.slice(begin, end),
            .direction = t.direction.slice(begin, end),
            .decay = t.decay};
  }
  static std::vector<Tensor> written(const Tensors& t) { return {t.p, t.direction}; }
  static std::vector<Settings> settings() {
    Settings nesterov, heavy_ball;
    nesterov.gradient_scale = heavy_ball.gradient_scale = 0.5;
    heavy_ball.nesterov = false;
    return {nesterov, heavy_ball};
  }
  static Settings without_decay(const Settings& settings) { return settings; }
};

/// The same for the update.
struct ApplyOperation {
  using Settings = MuonUpdateSettings;
  struct Tensors {
    Tensor p, gradient;  // the gradient is the update
    bool decay = true;
  };

  static Tensors make(std::int64_t count, DType dtype, const std::string& name) {
    if (dtype == DType::f16) dtype = DType::bf16;  // which updates may have
    return {.p = normal_tensor({count}, DType::f32, name + "p"),
            .gradient = normal_tensor({count}, dtype, name + "update")};
  }
  static void update(std::span<const Tensors> list, const Settings& settings, const Tensor& scale) {
    std::vector<MuonUpdate> ranges;
    for (const Tensors& t : list) ranges.push_back({t.p, t.gradient, 1.75, t.decay});
    muon_apply(ranges, settings, scale);
  }
  static Tensors slice(const Tensors& t, std::int64_t begin, std::int64_t end) {
    return {.p = t.p.slice(begin, end), .gradient = t.gradient.slice(begin, end), .decay = t.decay};
  }
  static std::vector<Tensor> written(const Tensors& t) { return {t.p}; }
  static std::vector<Settings> settings() {
    return {{.learning_rate = 0.1, .weight_decay = 0.3}, {.learning_rate = 2.0}};
  }
  static Settings without_decay(Settings settings) {
    settings.weight_decay = 0.0;
    return settings;
  }
};

}  // namespace

TEST_CASE("muon_direction: momentum and Nesterov's direction follow torch.optim.Muon's lerps") {
  const test::Rank rank;
  for (const bool nesterov : {true, false}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const std::int64_t count : {1, 19, 8193, 20'001}) {
        const Tensor m = normal_tensor({count}, DType::f32, "m");
        const Tensor gradient = normal_tensor({count}, dtype, "gradient");
        const Tensor direction = test::poisoned({count}, DType::f32);
        Values expected_m = to_doubles(m), expected(expected_m);
        const Values g = to_doubles(gradient);
        for (std::size_t i = 0; i < g.size(); ++i) {
          const double scaled = 0.25 * g[i];
          expected_m[i] = 0.9 * expected_m[i] + 0.1 * scaled;  // buffer.lerp_(g, 1 - momentum)
          expected[i] = nesterov ? 0.1 * scaled + 0.9 * expected_m[i] : expected_m[i];
        }
        const MuonDirection range{m, gradient, direction};
        muon_direction({&range, 1},
                       {.momentum = 0.9, .nesterov = nesterov, .gradient_scale = 0.25});
        REQUIRE(relative_error(to_doubles(m), expected_m) <= 2e-7);
        REQUIRE(relative_error(to_doubles(direction), expected) <= 2e-7);
      }
    }
  }
}

TEST_CASE("muon_direction: momentum moves without a direction, too") {
  const test::Rank rank;
  const Tensor gradient = normal_tensor({100}, DType::f32, "gradient");
  const Tensor with = normal_tensor({100}, DType::f32, "m");
  const Tensor without = normal_tensor({100}, DType::f32, "m");
  const std::vector<MuonDirection> ranges = {{without, gradient},
                                             {with, gradient, Tensor::empty({100}, DType::bf16)}};
  muon_direction(ranges, {});
  REQUIRE(same_bits(with, without));
  REQUIRE(!same_bits(with, normal_tensor({100}, DType::f32, "m")));
}

TEST_CASE("muon_direction: with a scale that is not finite, m stays and directions are zeros") {
  const test::Rank rank;
  for (const float scale : {NAN, INFINITY}) {
    const Tensor m = normal_tensor({1030}, DType::f32, "m");
    const Tensor direction = test::poisoned({1030}, DType::bf16);
    const MuonDirection range{m, normal_tensor({1030}, DType::f32, "gradient"), direction};
    muon_direction({&range, 1}, {}, Tensor::from(std::vector{scale}, {1}));
    REQUIRE(same_bits(m, normal_tensor({1030}, DType::f32, "m")));
    REQUIRE(to_doubles(direction) == Values(1030, 0.0));
  }
}

TEST_CASE("muon_apply: the decayed p less the update times its learning rate") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const bool decay : {true, false}) {
      const Tensor p = normal_tensor({10'001}, DType::f32, "p");
      const Tensor update = normal_tensor({10'001}, dtype, "update");
      Values expected = to_doubles(p);
      const Values o = to_doubles(update);
      for (std::size_t i = 0; i < o.size(); ++i) {
        expected[i] = expected[i] * (decay ? 1.0 - 0.1 * 0.3 : 1.0) - 0.1 * 1.5 * o[i];
      }
      const MuonUpdate range{p, update, 1.5, decay};
      muon_apply({&range, 1}, {.learning_rate = 0.1, .weight_decay = 0.3});
      REQUIRE(relative_error(to_doubles(p), expected) <= 2e-7);
    }
  }
}

TEST_CASE("muon_apply: p stays if the scale is not finite") {
  const test::Rank rank;
  const Tensor p = normal_tensor({1030}, DType::f32, "p");
  const MuonUpdate range{p, normal_tensor({1030}, DType::bf16, "update")};
  muon_apply({&range, 1}, {}, Tensor::from(std::vector{NAN}, {1}));
  REQUIRE(same_bits(p, normal_tensor({1030}, DType::f32, "p")));
  muon_apply({&range, 1}, {}, Tensor::from(std::vector{0.5f}, {1}));
  REQUIRE(!same_bits(p, normal_tensor({1030}, DType::f32, "p")));
}

TEST_CASE("muon: a range gives the same bits whole or in pieces of any alignment") {
  test::check_pieces<DirectionOperation>();
  test::check_pieces<ApplyOperation>();
}

TEST_CASE("muon: many tensors in one call, neighbours untouched") {
  test::check_many_tensors<DirectionOperation>(DType::f32);
  test::check_many_tensors<ApplyOperation>(DType::bf16);
}

TEST_CASE("muon: the device gives the CPU's bits") {
  test::check_device_against_cpu<DirectionOperation>();
  test::check_device_against_cpu<ApplyOperation>();
}

TEST_CASE("muon: the same bits for any number of threads", "[cpu]") {
  test::check_threads<DirectionOperation>();
  test::check_threads<ApplyOperation>();
}

TEST_CASE("muon: wrong arguments are named") {
  const test::Rank rank;
  const Tensor m = normal_tensor({4}, DType::f32, "m"), g = normal_tensor({4}, DType::f32, "g"),
               five = Tensor::zeros({5}, DType::bf16), half = Tensor::zeros({4}, DType::f16),
               bf16 = Tensor::zeros({4}, DType::bf16);
  const auto direct = [](const MuonDirection& range, double momentum = 0.95) {
    muon_direction({&range, 1}, {.momentum = momentum});
  };
  REQUIRE_THROWS_WITH(direct({bf16, g}), Contains("m is bf16 [4]"));
  REQUIRE_THROWS_WITH(direct({m, g, five}), Contains("m is f32 [4] and direction is bf16 [5]"));
  REQUIRE_THROWS_WITH(direct({m, g, half}),
                      Contains("direction is f16 [4]; its dtype must be f32 or bf16"));
  REQUIRE_THROWS_WITH(direct({m, g, g}), Contains("direction overlaps gradient"));
  REQUIRE_THROWS_WITH(direct({m, g}, 1.0), Contains("the momentum is 1"));
  const MuonUpdate update{m, half};
  REQUIRE_THROWS_WITH(muon_apply({&update, 1}, {}), Contains("update is f16 [4]"));
}

}  // namespace tessera
