// The measured choice of a product's algorithm. On the emulated GPU a test decides which is the fastest.
#include <catch2/catch.hpp>
#include <chrono>
#include <utility>

#include "kernels/cuda/gemm.h"
#include "kernels/matmul/measured.h"
#include "kernels/matmul/op.h"
#include "kernels/matmul/options.h"
#include "runtime/emulation/toolkit/emulated_device.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {
namespace {

/// Products of cuBLASLt take so many hours, by the algorithm: then four of each decide.
emulation::DeviceOptions with_delays(int whole, int in_halves) {
  emulation::DeviceOptions options = emulation::device_options();
  options.product_delays.whole = std::chrono::hours(whole);
  options.product_delays.in_halves = std::chrono::hours(in_halves);
  return options;
}

struct Product {
  std::vector<float> values;
  MeasuredAlgorithms algorithms;
};

std::vector<float> values_of_product() {
  const Tensor a = test::normal_tensor({24, 304}, DType::f32, "a");
  const Tensor b = test::normal_tensor({304, 40}, DType::f32, "b");
  const Tensor c = Tensor::empty({24, 40}, DType::f32);
  matmul(c, a, b);
  return c.to_vector<float>();
}

/// A product on a new rank, which knows these algorithms.
Product product(AlgorithmChoice choice, const MeasuredAlgorithms* known = nullptr) {
  RankContext context({.device = test::device(), .threads = 1});
  const ContextGuard guard(context);
  matmul_options().choice = choice;
  if (known) CHECK(use_measured_algorithms(*known));
  return {values_of_product(), measured_algorithms()};  // the values first
}

}  // namespace

TEST_CASE("products are planned again when NCCL may hold multiprocessors") {
  const std::vector<float> for_all = product(AlgorithmChoice::suggested).values;
  const test::Rank rank;
  CHECK(values_of_product() == for_all);
  cuda::held_multiprocessors() = 1;  // of four: the library suggests another algorithm for three
  CHECK(values_of_product() != for_all);
  cuda::held_multiprocessors() = 16;
  CHECK_NOTHROW(values_of_product());  // for one
  cuda::held_multiprocessors() = 0;
  CHECK(values_of_product() == for_all);
}

TEST_CASE("a measured choice is one for the multiprocessors that were free") {
  const test::Rank rank;
  matmul_options().choice = AlgorithmChoice::measured;
  values_of_product();
  cuda::held_multiprocessors() = 1;
  values_of_product();
  CHECK(measured_algorithms().choices.size() == 2);
}

TEST_CASE("a rank takes the fastest algorithm, and another rank can be given its choice") {
  using enum AlgorithmChoice;
  const std::vector<float> in_halves = product(suggested).values;
  MeasuredAlgorithms choices;
  {
    const emulation::DeviceOptionsGuard slow_halves(with_delays(1, 2));
    const Product whole = product(measured);
    REQUIRE(whole.values != in_halves);
    REQUIRE(whole.algorithms.choices.size() == 1);
    choices = whole.algorithms;
  }
  const emulation::DeviceOptionsGuard slow_whole(with_delays(2, 1));
  CHECK(product(measured).values == in_halves);
  CHECK(product(measured, &choices).values != in_halves);
  CHECK(product(measured, &choices).algorithms.choices == choices.choices);
  CHECK(product(suggested, &choices).values == in_halves);

  SECTION("a choice that is given replaces one that the rank made") {
    const test::Rank rank;
    matmul_options().choice = measured;
    CHECK(values_of_product() == in_halves);
    CHECK(use_measured_algorithms(choices));
    CHECK(values_of_product() != in_halves);
  }
  SECTION("choices of another library are refused") {
    const test::Rank rank;
    choices.made_by = "cuBLASLt 1 on another GPU";
    CHECK_FALSE(use_measured_algorithms(choices));
    CHECK(measured_algorithms().choices.empty());
  }
  SECTION("a choice that the library does not take is named") {
    choices.choices.begin()->second = "12";
    CHECK_THROWS_WITH(product(measured, &choices),
                      Catch::Contains("f32 [24, 40] = f32 [24, 304] [304, 40]"));
  }
}

}  // namespace tessera
