#include "models/transformer_shape.h"

#include <catch2/catch.hpp>
#include <set>
#include <tuple>

#include "models/registry.h"

namespace tessera {
namespace {

using Catch::Contains;

const TransformerShape kLlama3_8B = shape_of(model_preset("llama3-8b"));
// The weights in its matrix products, counted by hand: q, k, v, o; gate, up, down; the head.
constexpr double kLlamaWeights =
    32.0 * (4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096 + 3.0 * 4096 * 14336) + 128256.0 * 4096;

TEST_CASE("grouped queries and gated feed-forward layers are counted") {
  double products = 0.0;
  for (const MatmulShape& product : training_matmuls(kLlama3_8B, 512)) products += product.flops();
  REQUIRE(products == 512 * 6 * kLlamaWeights);
  const double attention = 6.0 * 32 * 4096 * 256;
  REQUIRE(training_flops(kLlama3_8B, 2, 256) == 512 * (6 * kLlamaWeights + attention));
}

TEST_CASE("of experts those count that a token takes") {
  // Qwen3-30B-A3B's 3.3 billion active parameters: attention, router, 8 experts of 768, head.
  const TransformerShape shape = shape_of(model_preset("qwen3-30b-a3b"));
  const double block = 2.0 * 2048 * 4096 + 2.0 * 2048 * 512 + 2048.0 * 128 + 8 * 3.0 * 2048 * 768;
  const double weights = 48 * block + 151936.0 * 2048;
  double products = 0.0;
  for (const MatmulShape& product : training_matmuls(shape, 512)) products += product.flops();
  REQUIRE(products == 512 * 6 * weights);
  const double attention = 6.0 * 48 * 4096 * 256;
  REQUIRE(training_flops(shape, 2, 256) == 512 * (6 * weights + attention));

  // A shared expert, and half of the layers without experts.
  TransformerShape half = shape;
  half.experts.layers = 24;
  half.experts.shared_width = 100;
  const double dense = block - 8 * 3.0 * 2048 * 768 - 2048.0 * 128 + 3.0 * 2048 * 6144;
  const double expected =
      24 * (dense + block + 3.0 * 2048 * 100) + 151936.0 * 2048 + 48.0 * 4096 * 256;
  REQUIRE(training_flops(half, 2, 256) == 512 * 6 * expected);
}

TEST_CASE("attention in chunks counts the squares of the chunks") {
  const TransformerShape shape = shape_of(model_preset("llama4-mini"));
  REQUIRE(shape.chunks.layers == 3);  // of 64 tokens
  TransformerShape full = shape;
  full.chunks = {};
  const auto attention = [&](std::int64_t length) {
    const double less = training_flops(full, 1, length) - training_flops(shape, 1, length);
    const double each = 6.0 * 4 * 64;  // of a pair of positions in a layer
    return static_cast<double>(length * length) - less / each / 3;
  };
  CHECK(attention(40) == 40 * 40);
  CHECK(attention(64) == 64 * 64);
  CHECK(attention(150) == Approx(2 * 64 * 64 + 22 * 22).epsilon(1e-12));
}

TEST_CASE("attention in windows counts the square less what they hide") {
  TransformerShape shape = shape_of(model_preset("llama3-mini"));
  const double full = attention_flops(shape, 1, 150);
  shape.windows = {.layers = 3, .tokens = 64};
  const double hidden = 3.0 / 4.0 * 86 * 86 / (150 * 150);
  CHECK(attention_flops(shape, 1, 150) == Approx(full * (1.0 - hidden)).epsilon(1e-12));
  CHECK(attention_flops(shape, 1, 64) ==
        attention_flops(shape_of(model_preset("llama3-mini")), 1, 64));
}

TEST_CASE("every product of a step has the layout of its weight") {
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    TransformerShape shape = kLlama3_8B;
    shape.layout = layout;
    // The down projection: 14336 channels to 4096. Forward, input gradient, weight gradient.
    const bool in_out = layout == WeightLayout::in_out;
    const auto no = Transpose::no, yes = Transpose::yes;
    std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, Transpose, Transpose>> found;
    for (const MatmulShape& p : training_matmuls(shape, 7)) {
      found.insert({p.m, p.n, p.k, p.transpose_a, p.transpose_b});
    }
    CHECK(found.contains({7, 4096, 14336, no, in_out ? no : yes}));
    CHECK(found.contains({7, 14336, 4096, no, in_out ? yes : no}));
    CHECK(found.contains({in_out ? 14336 : 4096, in_out ? 4096 : 14336, 7, yes, no}));
    // The head's weight is [vocab_size, width] in both.
    CHECK(found.contains({7, 128256, 4096, no, yes}));
    CHECK(found.contains({128256, 4096, 7, yes, no}));
  }
}

TEST_CASE("a size is refused outside its bounds and accepted on them") {
  check_size("layers", 1, 4096);
  check_size("layers", 4096, 4096);
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{4097}}) {
    CHECK_THROWS_WITH(check_size("layers", value, 4096),
                      Contains("layers is " + std::to_string(value)) && Contains("1 to 4096"));
  }
}

TEST_CASE("the largest model has counts that fit in 64 bits") {
  using Largest = LargestSizes;
  // Bytes of all block weights (12 width^2 each), of the embedding and of the positions, with 16
  // bytes of master, gradient and two moments per element.
  const __int128 blocks = __int128{12} * Largest::width * Largest::width * Largest::layers;
  const __int128 ends = __int128{Largest::vocab_size + Largest::context} * Largest::width;
  REQUIRE(16 * (blocks + ends) < (__int128{1} << 63));
  const __int128 experts =
      __int128{3} * Largest::expert_channels * Largest::width * Largest::layers;
  REQUIRE(16 * (experts + blocks + ends) < (__int128{1} << 63));
}

}  // namespace
}  // namespace tessera
