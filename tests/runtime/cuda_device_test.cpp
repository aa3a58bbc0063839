#include "runtime/cuda/device.h"

#include <catch2/catch.hpp>

#include "runtime/context.h"
#include "runtime/cuda/moment.h"
#include "runtime/cuda/stream.h"
#include "runtime/tensor.h"
#include "tests/support/rank.h"

#if defined(TESSERA_EMULATED)
#include "runtime/emulation/toolkit/emulated_device.h"
#endif

namespace tessera {

using Catch::Contains;

TEST_CASE("peak rates are those of the data sheets") {
  struct Card {
    cuda::DeviceProperties properties;
    double tensor_tflops;  // bf16 and f16, dense, f32 accumulation
    double f32_tflops;
  };
  // Multiprocessors and clocks as the driver reports them. Rates: NVIDIA's data sheets of the A100
  // (2021), A40 (2021), H100 (2022), H200 (2023), L4 and L40 (2023), HGX B200 (2024; in f32 148 x 128
  // multiply-adds a clock), the last three halved where they count sparsity, and the appendices of the
  // whitepapers on GA102, Ada and RTX Blackwell.
  const std::vector<Card> cards = {
      {{"NVIDIA A100-SXM4-80GB", 108, 1.410e9, 0, 8, 0}, 312.0, 19.5},
      {{"NVIDIA A40", 84, 1.740e9, 0, 8, 6}, 149.7, 37.4},
      {{"NVIDIA GeForce RTX 3090", 82, 1.695e9, 0, 8, 6}, 71.0, 35.6},
      {{"NVIDIA GeForce RTX 4090", 128, 2.520e9, 0, 8, 9}, 165.2, 82.6},
      {{"NVIDIA L4", 58, 2.040e9, 0, 8, 9}, 121.0, 30.3},
      {{"NVIDIA L40", 142, 2.490e9, 0, 8, 9}, 181.05, 90.5},
      {{"NVIDIA H100 PCIe", 114, 1.755e9, 0, 9, 0}, 756.0, 51.2},
      {{"NVIDIA H100 80GB HBM3", 132, 1.980e9, 0, 9, 0}, 989.4, 66.9},
      {{"NVIDIA H200", 132, 1.980e9, 0, 9, 0}, 989.5, 66.9},
      {{"NVIDIA B200", 148, 1.965e9, 0, 10, 0}, 2250.0, 74.5},
      {{"NVIDIA GeForce RTX 5090", 170, 2.407e9, 0, 12, 0}, 209.5, 104.8},
      {{"NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 2.617e9, 0, 12, 0}, 503.8, 126.0},
  };
  for (const Card& card : cards) {
    CAPTURE(card.properties.name);
    for (const DType dtype : {DType::bf16, DType::f16}) {
      REQUIRE(peak_flops(card.properties, dtype).value() * 1e-12 ==
              Approx(card.tensor_tflops).epsilon(0.005));
    }
    REQUIRE(peak_flops(card.properties, DType::f32).value() * 1e-12 ==
            Approx(card.f32_tflops).epsilon(0.005));
    REQUIRE_FALSE(peak_flops(card.properties, DType::i32).has_value());
  }
}

TEST_CASE("the peak of a GPU or dtype outside the table is unknown") {
  REQUIRE_FALSE(cuda::peak_flops({"NVIDIA Thor", 20, 1.575e9, 0, 11, 0}, DType::bf16).has_value());
  REQUIRE_FALSE(cuda::peak_flops({"NVIDIA H100", 132, 0.0, 0, 9, 0}, DType::bf16).has_value());
}

TEST_CASE("a machine's GPUs are named and sized") {
  REQUIRE(cuda::device_count() >= 1);
  const cuda::DeviceProperties properties = cuda::device_properties(0);
  REQUIRE_FALSE(properties.name.empty());
  REQUIRE(properties.multiprocessors >= 1);
  REQUIRE(properties.memory_bytes > 0);
  REQUIRE(properties.major >= 8);
  REQUIRE_THROWS_WITH(cuda::device_properties(99), Contains("cudaGetDeviceProperties"));
}

TEST_CASE("moments measure the device's time between two points of the current stream") {
  const test::Rank rank;
  const cuda::Moment begin;
  const Tensor zeros = Tensor::zeros({1 << 20}, DType::f32);
  const cuda::Moment middle, end;
  const double ms = middle.milliseconds_since(begin);
  const double rest = end.milliseconds_since(middle);
  REQUIRE(ms > 0.0);
  REQUIRE(rest >= 0.0);
  REQUIRE(end.milliseconds_since(begin) == Approx(ms + rest));
  REQUIRE(begin.milliseconds_since(middle) == Approx(-ms));
  REQUIRE(end.passed());
}

#if defined(TESSERA_EMULATED)
TEST_CASE("the device name auto is a GPU if the machine has one") {
  REQUIRE(parse_device("auto") == Device{DeviceType::cuda, 0});
  const emulation::DeviceOptionsGuard none({.devices = 0});
  REQUIRE(parse_device("auto") == Device{});
  REQUIRE(cuda::device_count() == 0);
  REQUIRE_THROWS_WITH(
      RankContext({.device = parse_device("cuda").value()}),
      Contains("cuda:0 is not available: no GPU was found (no CUDA-capable device is detected)"));
}

TEST_CASE("each context works on its own device, whichever is current") {
  const emulation::DeviceOptionsGuard two({.devices = 2});
  const test::Rank first;
  const Tensor here = Tensor::from(std::vector<float>{1, 2}, {2});
  RankContext second({.device = {DeviceType::cuda, 1}, .threads = 1});
  Tensor there;
  {
    const ContextGuard guard(second);
    current_stream().wait(first.context.compute_stream().record());  // of another device
    there = here.clone();
    REQUIRE(there.device() == Device{DeviceType::cuda, 1});
    REQUIRE(there.to_vector<float>() == std::vector<float>{1, 2});
  }
  REQUIRE_NOTHROW(emulation::enqueue(cuda::native(current_stream()), [] {}));
  const Tensor back = there.clone();
  REQUIRE(back.device() == Device{DeviceType::cuda, 0});
  REQUIRE(back.to_vector<float>() == std::vector<float>{1, 2});
}
#endif

}  // namespace tessera
