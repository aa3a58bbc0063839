// The arithmetic of bench_counts: extrapolation, names of kernels, rooflines.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/check.h"
#include "tools/bench/counts/extrapolation.h"
#include "tools/bench/counts/kernel_label.h"
#include "tools/bench/counts/layer_bytes.h"
#include "tools/bench/counts/processes.h"
#include "tools/bench/counts/roofline.h"

namespace tessera {
namespace {

/// A polynomial of width and length with all terms up to the second degree in each.
double of_batch(const StepSize& s, double a, double b, double c) {
  const double w = s.width, t = s.sequence;
  return (a + b * w + c * w * w) + s.batch * t * (b + c * w + a * w * w) +
         s.batch * t * t * (c + a * w);
}

/// A counter of the form that extrapolation.h states.
double counter(const StepSize& s) {
  return of_batch(s, 3, 5, 7) + s.layers * of_batch(s, 2, 11, 1) +
         s.layers * s.experts * of_batch(s, 1, 2, 0) + s.classes * of_batch(s, 1, 0, 4);
}

TransformerShape heads_of_128() {
  TransformerShape shape;
  shape.width = 4096, shape.head_size = 128;
  return shape;
}

double combined(const std::vector<StepSize>& runs, const std::vector<double>& weights) {
  double sum = 0;
  REQUIRE(runs.size() == weights.size());
  for (std::size_t i = 0; i < runs.size(); ++i) sum += weights[i] * counter(runs[i]);
  return sum;
}

}  // namespace

TEST_CASE("counts of large steps follow from counts of small ones") {
  const Extrapolation extrapolation({1, 2, 3}, {128, 256, 384}, {1024, 2048});
  REQUIRE(extrapolation.runs().size() == 27);
  for (const StepSize& size :
       {StepSize{16, 8, 4096, 128256, 4}, {1, 1, 128, 1024, 1}, {3, 4, 512, 1536, 2}}) {
    const double expected = counter(size);
    REQUIRE(combined(extrapolation.runs(), extrapolation.weights(size)) ==
            Approx(expected).epsilon(1e-12));
  }
  const StepSize size{16, 8, 4096, 128256, 4};
  StepSize deeper = size;
  deeper.layers += 1;
  REQUIRE(combined(extrapolation.runs(), extrapolation.layer_weights(size)) ==
          Approx(counter(deeper) - counter(size)).epsilon(1e-12));
}

TEST_CASE("counts of layers with more experts follow from counts of few") {
  const Extrapolation extrapolation({2, 3, 4}, {256, 512, 768}, {1024, 2048}, {8, 16});
  REQUIRE(extrapolation.runs().size() == 36);
  const StepSize size{48, 4, 4096, 151936, 4, 128};
  REQUIRE(combined(extrapolation.runs(), extrapolation.weights(size)) ==
          Approx(counter(size)).epsilon(1e-11));
  StepSize deeper = size;
  deeper.layers += 1;
  REQUIRE(combined(extrapolation.runs(), extrapolation.layer_weights(size)) ==
          Approx(counter(deeper) - counter(size)).epsilon(1e-11));
}

TEST_CASE("jobs in processes give their texts in the order of the jobs") {
  const std::string long_text(100'000, 'x');  // more than a pipe holds
  std::vector<std::size_t> ended;
  const std::vector<std::string> texts = run_in_processes(
      5, [&](std::size_t job) { return std::to_string(job) + long_text; },
      [&](std::size_t count) { ended.push_back(count); });
  REQUIRE(texts.size() == 5);
  for (std::size_t job = 0; job < 5; ++job) CHECK(texts[job] == std::to_string(job) + long_text);
  CHECK(ended == std::vector<std::size_t>{1, 2, 3, 4, 5});
}

TEST_CASE("a job in a process that fails is an error") {
  const auto job = [](std::size_t number) -> std::string {
    if (number == 1) fail("this job cannot be done");
    return {};
  };
  REQUIRE_THROWS_WITH(run_in_processes(3, job, [](std::size_t) {}),
                      Catch::Contains("job 2 of 3 failed"));
}

TEST_CASE("a kernel is named by its operation") {
  REQUIRE(kernel_label("void tessera::cuda::(anonymous namespace)::forward_kernel<8, "
                       "tessera::bfloat16>(tessera::cuda::(anonymous namespace)::Rows<float>)",
                       "/src/kernels/swiglu/cuda.cu") == "swiglu/forward_kernel");
  REQUIRE(kernel_label("tessera::cuda::(anonymous namespace)::clip_kernel(float*)",
                       "kernels/gradient_norm/cuda.cu") == "gradient_norm/clip_kernel");
  REQUIRE(kernel_label("void tessera::gpu::elementwise_kernel<tessera::bfloat16, "
                       "tessera::cuda::(anonymous namespace)::Add, tessera::bfloat16>(int)",
                       "/src/kernels/cuda/elementwise.h") == "elementwise/Add");
  REQUIRE(kernel_label("void tessera::cuda::groups::grouped_hopper_kernel<tessera::E4m3Pair, "
                       "tessera::bfloat16>(int)",
                       "kernels/grouped_matmul/hopper/kernel.h") ==
          "grouped_matmul/grouped_hopper_kernel, 8 bits");
  REQUIRE(kernel_label("cublasLtMatmul", "") == "cublasLtMatmul");
}

TEST_CASE("a step's phases begin with a norm's gradient and with the norm of the gradients") {
  StepPhase phase = StepPhase::forward;
  const auto after = [&](const char* label) { return phase = next_phase(phase, label); };
  REQUIRE(after("rms_norm/forward_kernel") == StepPhase::forward);
  REQUIRE(after("linear_cross_entropy/kernel") == StepPhase::forward);
  REQUIRE(after("cross_entropy/loss_and_gradient_kernel") == StepPhase::forward);
  REQUIRE(after("cublasLtMatmul") == StepPhase::forward);  // the head's gradients, as in bench_step
  REQUIRE(after("rms_norm/backward_kernel") == StepPhase::backward);
  REQUIRE(after("cublasLtMatmul") == StepPhase::backward);
  REQUIRE(after("cuda/squares_kernel") == StepPhase::optimizer);
  REQUIRE(after("cuda/adamw_kernel") == StepPhase::optimizer);
  phase = StepPhase::backward;
  REQUIRE(after("gradient_norm/clip_kernel") == StepPhase::optimizer);
}

TEST_CASE("a roofline is the slower of memory and tensor cores") {
  const Gpu h200 = gpus()[0];
  REQUIRE(h200.name == "H200");
  REQUIRE(roofline_time(h200, 989.4e12, 1.0) == Approx(1.0));
  REQUIRE(roofline_time(h200, 1.0, 4.8e12) == Approx(1.0));
  REQUIRE(roofline_time(h200, 989.4e12, 4.8e12, {"", 0.5, 0.25, ""}) == Approx(4.0));
}

TEST_CASE("efficiencies are not above the rates that were reached") {
  for (const char* kernel : {"cublasLtMatmul", "attention/forward_hopper_kernel",
                             "rms_norm/forward_kernel", "adamw/adamw_kernel"}) {
    for (const bool backward : {false, true}) {
      const Efficiency efficiency =
          efficiency_of(gpus()[0], ProductRate::burst, kernel, backward, heads_of_128());
      REQUIRE_FALSE(efficiency.source.empty());
      REQUIRE(efficiency.of_bytes <= 4.18 / 4.8);
      if (efficiency.kind == "product") REQUIRE(efficiency.of_flops <= 716.0 / 989);
      if (efficiency.kind == "attention") {
        REQUIRE(efficiency.of_flops <= (backward ? 7.0 / 5 * 474 : 591.0) / 989 + 1e-3);
      }
    }
  }
}

TEST_CASE("products have a burst rate and a sustained one, with a source for each") {
  const auto products = [](const Gpu& gpu, ProductRate rate) {
    return efficiency_of(gpu, rate, "cublasLtMatmul", /*backward=*/false, heads_of_128());
  };
  const Gpu h200 = gpus()[0];
  const Efficiency sustained = products(h200, ProductRate::sustained);
  CHECK(roofline_time(h200, 636e12, 1.0, sustained) == Approx(1.0));
  CHECK_THAT(std::string(sustained.source), Catch::Contains("gpu_results.md"));
  CHECK(products(h200, ProductRate::burst).of_flops == 0.72);
  CHECK(products(gpus(/*h200_sustained=*/700e12)[0], ProductRate::sustained).of_flops ==
        Approx(700 / 989.4));
  CHECK(products(gpus()[1], ProductRate::sustained).of_flops == 0.72);  // none is known of an H100
  const Efficiency attention = efficiency_of(
      h200, ProductRate::sustained, "attention/forward_hopper_kernel", false, heads_of_128());
  CHECK(attention.of_flops == 0.597);
}

TEST_CASE(
    "products of 8-bit numbers have twice the peak, and keep the part of it that 16-bit ones do") {
  const Gpu h200 = gpus()[0];
  const Efficiency in_8_bits =
      efficiency_of(h200, ProductRate::sustained, "cublasLtMatmul, 8 bits", false, {});
  CHECK(roofline_time(h200, 2 * 636e12, 1.0, in_8_bits) == Approx(1.0));
  CHECK(is_product(in_8_bits));
  const std::string own = "grouped_matmul/grouped_hopper_kernel";
  CHECK(efficiency_of(h200, ProductRate::sustained, own + ", 8 bits", false, {}).of_flops ==
        Approx(2.0 * efficiency_of(h200, ProductRate::sustained, own, false, {}).of_flops));
  CHECK(peak_of("cublasLtMatmul, 8 bits") == 2.0);
  CHECK(peak_of("cublasLtMatmul") == 1.0);
}

TEST_CASE("tessera's own products are slower than the library's, and are products") {
  for (const ProductRate rate : {ProductRate::burst, ProductRate::sustained}) {
    const Efficiency own =
        efficiency_of(gpus()[0], rate, "grouped_matmul/grouped_hopper_kernel", false, {});
    const Efficiency library = efficiency_of(gpus()[0], rate, "cublasLtMatmul", false, {});
    CHECK(own.of_flops == Approx(661.0 / 774 * library.of_flops).epsilon(0.002));
    CHECK(is_product(own));
    CHECK(own.source != library.source);
  }
}

TEST_CASE("norms have the rate of the nearest rows that were measured") {
  const auto rate = [](std::int64_t width, bool backward) {
    TransformerShape shape;
    shape.width = width;
    return efficiency_of(gpus()[0], ProductRate::burst, "rms_norm/kernel", backward, shape)
        .of_bytes;
  };
  CHECK(rate(768, false) == Approx(2.07 / 4.8).epsilon(0.01));
  CHECK(rate(768, true) == Approx(2.39 / 4.8).epsilon(0.01));
  CHECK(rate(2048, false) == Approx(3.82 / 4.8).epsilon(0.01));
  CHECK(rate(2048, true) == Approx(3.10 / 4.8).epsilon(0.01));
  CHECK(rate(4096, false) == Approx(0.90 * 4.19 / 4.8).epsilon(0.01));
  CHECK(rate(4096, true) == Approx(0.67 * 4.19 / 4.8).epsilon(0.01));
}

TEST_CASE("the least bytes of a Llama layer") {
  TransformerShape shape;
  shape.width = 8, shape.heads = 2, shape.kv_heads = 1, shape.head_size = 4;
  shape.mlp_width = 16, shape.gated_mlp = true;
  const LayerBytes least = least_layer_bytes(shape, 10);
  REQUIRE(least.forward == 2 * 320 + 480 + 480 + 80);
  REQUIRE(least.backward == 2 * 640 + 960 + 80);
}

TEST_CASE("the least bytes of experts: a token reads the result of each of its experts") {
  TransformerShape shape;
  shape.width = 8, shape.heads = 2, shape.kv_heads = 1, shape.head_size = 4, shape.gated_mlp = true;
  shape.experts.layers = 1, shape.experts.count = 4, shape.experts.per_token = 2;
  shape.experts.width = 16;
  const LayerBytes least = least_layer_bytes(shape, 10);
  REQUIRE(least.forward == 2 * 320 + 480 + 480 + 80 + 480);
  REQUIRE(least.backward == 2 * 640 + 960 + 80 + 480);
}

TEST_CASE("norms of queries and keys add a statistic a head, and backward a pass over three") {
  TransformerShape shape;
  shape.width = 8, shape.heads = 2, shape.kv_heads = 1, shape.head_size = 4;
  shape.mlp_width = 16, shape.gated_mlp = true;
  const LayerBytes without = least_layer_bytes(shape, 10);
  shape.qk_norm = true;
  const LayerBytes with = least_layer_bytes(shape, 10);
  REQUIRE(with.forward - without.forward == 120);
  REQUIRE(with.backward - without.backward == 720 + 120);
}

}  // namespace tessera
