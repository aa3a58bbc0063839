// Grades a sum in the order of the tree: its bits are those of the library's tree_reduce.
#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "examples/course/10_tree/tree_sum.h"
#include "examples/course/grader.h"
#include "kernels/tree_reduce/op.h"
#include "runtime/context.h"
#include "sharding/comm/threads/threads.h"

namespace tessera::course {
namespace {

constexpr std::size_t kCount = 200;

std::vector<std::vector<float>> values_of(int ranks) {
  std::vector<std::vector<float>> values(static_cast<std::size_t>(ranks));
  for (std::size_t r = 0; r < values.size(); ++r) {
    const RandomStream random(7, "values", r, values.size());
    for (std::size_t i = 0; i < kCount; ++i) {
      const auto draw = static_cast<float>(random.below(i, 2'000'001));
      values[r].push_back((draw - 1e6f) * (i % 3 == 0 ? 1e-6f : 1e-3f));
    }
  }
  return values;
}

std::vector<float> by_the_library(const std::vector<std::vector<float>>& values) {
  std::vector<Tensor> sources;
  for (const std::vector<float>& one : values) {
    sources.push_back(Tensor::from(std::span(one), {static_cast<std::int64_t>(one.size())}));
  }
  const Tensor sum = Tensor::empty(sources.front().shape(), DType::f32);
  tree_reduce(sum, sources, Reduction::sum);
  return sum.to_vector<float>();
}

std::string wrong_sums() {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const std::vector<std::vector<float>> values = values_of(ranks);
    const std::vector<float> found = tree_sum(values);
    if (found.size() != kCount) {
      return fmt::format("{} ranks: the result has {} values instead of {}", ranks, found.size(),
                         kCount);
    }
    for (std::size_t i = 0; i < kCount; ++i) {
      double sum = 0.0, magnitude = 0.0;
      for (const std::vector<float>& one : values) sum += one[i], magnitude += std::abs(one[i]);
      if (std::abs(found[i] - sum) <= magnitude * ranks * 0x1p-24) continue;
      return fmt::format("{} ranks: value {} is {} instead of {}: is every rank added, and once?",
                         ranks, i, found[i], sum);
    }
  }
  return "";
}

std::string wrong_bits() {
  for (int ranks = 1; ranks <= 9; ++ranks) {
    const std::vector<std::vector<float>> values = values_of(ranks);
    const std::vector<float> found = tree_sum(values), right = by_the_library(values);
    if (found.size() == right.size() &&
        std::memcmp(found.data(), right.data(), right.size() * sizeof(float)) == 0) {
      continue;
    }
    return fmt::format(
        "{} ranks: the sums are right up to rounding, but their bits are not: ranks "
        "are added in another order",
        ranks);
  }
  return "";
}

}  // namespace
}  // namespace tessera::course

int main() {
  using namespace tessera;
  course::Grader grader;
  run_ranks({.ranks = 1, .threads = 1}, [&](Communicator&) {
    grader.run("sums", course::wrong_sums);
    grader.run("bits", course::wrong_bits);
  });
  return grader.status();
}
