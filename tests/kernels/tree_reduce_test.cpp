// The tree of kernels/tree_reduce/op.h against a plain recursive sum, bit for bit.
#include "kernels/tree_reduce/op.h"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/support/precision.h"
#include "tests/support/random_tensor.h"
#include "tests/support/rank.h"

namespace tessera {

using test::normal_tensor;
using test::poisoned;
using test::same_bits;
using Floats = std::vector<float>;

namespace {

float tree(const Floats& leaves, std::size_t begin, std::size_t end) {
  if (end - begin == 1) return leaves[begin];
  std::size_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return tree(leaves, begin, begin + half) + tree(leaves, begin + half, end);
}

/// The sums in f32, rounded to T once.
template <typename T>
std::vector<T> expected_sums(const std::vector<Tensor>& sources) {
  std::vector<Floats> values;
  for (const Tensor& source : sources) {
    Floats& wide = values.emplace_back();
    for (const double value : test::to_doubles(source)) wide.push_back(static_cast<float>(value));
  }
  std::vector<T> sums;
  for (std::size_t i = 0; i < values[0].size(); ++i) {
    Floats leaves;
    for (const Floats& source : values) leaves.push_back(source[i]);
    sums.push_back(T(tree(leaves, 0, leaves.size())));
  }
  return sums;
}

std::vector<Tensor> make_sources(int count, std::int64_t numel, DType dtype) {
  std::vector<Tensor> sources;
  for (int r = 0; r < count; ++r) {
    sources.push_back(normal_tensor({numel}, dtype, "source " + std::to_string(r), 1.0 + 10.0 * r));
  }
  return sources;
}

void check_sums(const Tensor& result, const std::vector<Tensor>& sources) {
  visit_floating(result.dtype(), [&](auto type) {
    using T = decltype(type);
    if constexpr (sizeof(T) < 8) {
      const Tensor expected = Tensor::from(expected_sums<T>(sources), result.shape());
      tree_reduce(result, sources, Reduction::sum);
      CHECK(same_bits(result, expected));
    }
  });
}

}  // namespace

TEST_CASE("tree_reduce: sums of f32 follow the documented tree, for any number of sources") {
  const test::Rank rank;
  for (const int count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 31, 32, 33, 64, 100, 128}) {
    INFO(count << " sources");
    check_sums(poisoned({259}, DType::f32), make_sources(count, 259, DType::f32));
  }
}

TEST_CASE("tree_reduce: more sources than one launch takes follow the same tree") {
  const test::Rank rank;
  for (const int count : {129, 200, 256, 257, 1000}) {
    INFO(count << " sources");
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const std::vector<Tensor> sources = make_sources(count, 67, dtype);
      check_sums(poisoned({67}, dtype), sources);
      check_sums(poisoned({67}, DType::f32), sources);
      check_sums(sources.back(), sources);
    }
    std::vector<Tensor> integers, floats;
    for (int r = 0; r < count; ++r) {
      integers.push_back(Tensor::from(std::vector<std::int64_t>(5, r), {5}));
      floats.push_back(Tensor::from(Floats(5, static_cast<float>(r % (count - 1))), {5}));
    }
    const Tensor sum = Tensor::empty({5}, DType::i64), largest = poisoned({5}, DType::f32);
    tree_reduce(sum, integers, Reduction::sum);
    const std::int64_t expected = std::int64_t{count} * (count - 1) / 2;
    CHECK(sum.to_vector<std::int64_t>() == std::vector<std::int64_t>(5, expected));
    tree_reduce(largest, floats, Reduction::maximum);
    CHECK(largest.to_vector<float>() == Floats(5, static_cast<float>(count - 2)));
    floats[128] = Tensor::from(Floats(5, std::nanf("")), {5});
    tree_reduce(largest, floats, Reduction::maximum);
    for (const float value : largest.to_vector<float>()) CHECK(std::isnan(value));
  }
}

TEST_CASE("tree_reduce: the workspace of many sources is returned") {
  test::Rank rank;
  const std::vector<Tensor> sources = make_sources(200, 67, DType::bf16);
  const auto workspace = [&] { return rank.context.allocator().account()[Category::workspace]; };
  check_sums(poisoned({67}, DType::bf16), sources);
  CHECK(workspace().current == 0);
  CHECK(workspace().peak == (test::kOnGpu ? 2 * 67 * 4 : 0));  // f32, of 128 and of 72 sources
}

TEST_CASE(
    "tree_reduce: every dtype and size, where 16 bits are summed in f32 and rounded at most once") {
  const test::Rank rank;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const std::int64_t numel : {0, 1, 3, 4, 7, 8, 9, 64, 1023, 2049, 3000}) {
      INFO(name_of(dtype) << ", " << numel << " elements");
      for (const int count : {3, 8, 11}) {
        const std::vector<Tensor> sources = make_sources(count, numel, dtype);
        check_sums(poisoned({numel}, dtype), sources);
        check_sums(poisoned({numel}, DType::f32), sources);
      }
    }
  }
}

TEST_CASE("tree_reduce: slices at any offset, equal or different in each source") {
  const test::Rank rank;
  constexpr std::int64_t kCount = 1030;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<Tensor> buffers = make_sources(3, kCount + 16, dtype);
    for (std::int64_t offset = 0; offset < 9; ++offset) {
      for (const std::int64_t stagger : {0, 1}) {
        for (const DType result_dtype : {dtype, DType::f32}) {
          for (const std::int64_t result_offset : {std::int64_t{0}, offset}) {
            std::vector<Tensor> sources;
            for (std::int64_t r = 0; r < 3; ++r) {
              const std::int64_t begin = offset + stagger * r;
              sources.push_back(buffers[static_cast<std::size_t>(r)].slice(begin, begin + kCount));
            }
            const Tensor whole = poisoned({kCount + 20}, result_dtype);
            const Tensor untouched = whole.clone();
            const std::int64_t end = result_offset + kCount;
            INFO(name_of(dtype) << " at " << offset << ", result at " << result_offset);
            check_sums(whole.slice(result_offset, end), sources);
            CHECK(same_bits(whole.slice(0, result_offset), untouched.slice(0, result_offset)));
            CHECK(same_bits(whole.slice(end, kCount + 20), untouched.slice(end, kCount + 20)));
          }
        }
      }
    }
  }
}

TEST_CASE("tree_reduce: the result may be any of the sources") {
  const test::Rank rank;
  for (const int count : {2, 5, 9}) {
    for (int at = 0; at < count; ++at) {
      const std::vector<Tensor> sources = make_sources(count, 777, DType::f32);
      check_sums(sources[static_cast<std::size_t>(at)], sources);
    }
  }
}

TEST_CASE("tree_reduce: sums of integers are exact") {
  const test::Rank rank;
  const std::int64_t large = (std::int64_t{1} << 60) + 1;
  std::vector<std::int64_t> values(1025), sums(1025);
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<std::int64_t>(i) - large;
    sums[i] = 3 * values[i];
  }
  const Tensor x = Tensor::from(values, {1025});
  const Tensor result = Tensor::zeros({1025}, DType::i64);
  tree_reduce(result, std::vector{x, x, x}, Reduction::sum);
  CHECK(result.to_vector<std::int64_t>() == sums);
}

TEST_CASE("tree_reduce: the maximum of f32 lets NaN through") {
  const test::Rank rank;
  const auto f32 = [](float value) { return Tensor::from(Floats(5, value), {5}); };
  const Tensor result = f32(0);
  tree_reduce(result, std::vector{f32(-3), f32(2), f32(-1)}, Reduction::maximum);
  CHECK(result.to_vector<float>() == Floats(5, 2.0f));
  for (const std::size_t at : {0u, 1u, 2u}) {
    std::vector<Tensor> with_nan = {f32(1), f32(2), f32(3)};
    with_nan[at] = f32(std::nanf(""));
    tree_reduce(result, with_nan, Reduction::maximum);
    for (const float value : result.to_vector<float>()) CHECK(std::isnan(value));
  }
}

TEST_CASE("tree_reduce: wrong arguments are named") {
  const test::Rank rank;
  const Tensor f32 = Tensor::zeros({4}, DType::f32), longer = Tensor::zeros({5}, DType::f32);
  const Tensor bf16 = Tensor::zeros({4}, DType::bf16), i64 = Tensor::zeros({4}, DType::i64);
  const Tensor i32 = Tensor::zeros({4}, DType::i32);
  const auto refuses = [](const Tensor& result, const std::vector<Tensor>& sources,
                          Reduction reduction, const std::string& message) {
    REQUIRE_THROWS_WITH(tree_reduce(result, sources, reduction), Catch::Contains(message));
  };
  refuses(f32, {}, Reduction::sum, "no sources");
  refuses(f32, {f32, longer}, Reduction::sum, "f32 [4] and f32 [5] into f32 [4]");
  refuses(f32, {f32, bf16}, Reduction::sum, "f32 [4] and bf16 [4] into f32 [4]");
  refuses(bf16, {f32, f32}, Reduction::sum, "into bf16 [4]");
  refuses(f32, {i64}, Reduction::sum, "i64 [4]");
  refuses(i32, {i32, i32}, Reduction::sum, "cannot sum i32 [4]");
  refuses(bf16, {bf16, bf16}, Reduction::maximum, "maximum of f32, not of bf16 [4]");
}

}  // namespace tessera
