#include "kernels/matmul/parts.h"

#include <algorithm>
#include <bit>
#include <string_view>

#include "kernels/checks.h"
#include "kernels/matmul/checks.h"
#include "runtime/check.h"

namespace tessera {
namespace {

constexpr std::string_view kOp = "matmul_in_parts";

void check_parts(std::span<const DepthPart> parts, std::int64_t K) {
  check(std::has_single_bit(parts.size()), "{}: {} parts; their number must be a power of two", kOp,
        parts.size());
  std::vector<DepthRange> ranges;
  for (std::size_t p = 0; p < parts.size(); ++p) {
    check(!parts[p].empty(), "{}: part {} has no range; it needs at least one", kOp, p);
    for (const DepthRange& range : parts[p]) {
      check(range.first >= 0 && range.count >= 1 && range.count <= K - range.first,
            "{}: part {} has {} depths from {} on; a range needs at least one depth, within the {} "
            "of op(a)",
            kOp, p, range.count, range.first, K);
      ranges.push_back(range);
    }
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const DepthRange& a, const DepthRange& b) { return a.first < b.first; });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    check(ranges[i].first >= ranges[i - 1].first + ranges[i - 1].count,
          "{}: depth {} belongs to two ranges; ranges must not overlap", kOp, ranges[i].first);
  }
}

}  // namespace

void matmul_in_parts(Out c, const Tensor& a, const Tensor& b, Transpose transpose_a,
                     Transpose transpose_b, std::span<const DepthPart> parts,
                     Accumulate accumulate) {
  const std::int64_t K = check_product(kOp, c, a, b, transpose_a, transpose_b);
  check_rank(kOp, {"c", c}, 2);
  check_parts(parts, K);
  if (c.numel() == 0) return;
  run_on<cpu::matmul_in_parts, cuda::matmul_in_parts>(c.device(), kOp, c, a, b, transpose_a,
                                                      transpose_b, parts, accumulate);
}

std::vector<DepthPart> equal_depth_parts(std::int64_t depth, std::int64_t count) {
  check(count >= 1 && depth % count == 0, "{}: {} depths cannot be cut into {} equal parts", kOp,
        depth, count);
  std::vector<DepthPart> parts;
  const std::int64_t of_part = depth / count;
  for (std::int64_t p = 0; p < count; ++p) parts.push_back({{p * of_part, of_part}});
  return parts;
}

}  // namespace tessera
