#include "runtime/shape.h"

#include <fmt/ranges.h>

#include "runtime/check.h"

namespace tessera {

Shape::Shape(std::initializer_list<std::int64_t> extents)
    : Shape(std::span<const std::int64_t>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const std::int64_t> extents) {
  check(extents.size() <= kMaxRank, "a shape has {} dimensions; expected at most {}",
        extents.size(), kMaxRank);
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) {
    check(extent >= 0, "the shape [{}] has a negative extent", fmt::join(extents, ", "));
    check(!__builtin_mul_overflow(product, extent, &product),
          "the shape [{}] has more elements than 64 bits can count", fmt::join(extents, ", "));
    extents_[rank_++] = extent;
  }
}

std::int64_t Shape::numel() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : *this) product *= extent;
  return product;
}

Shape Shape::with(int dim, std::int64_t extent) const {
  const int index = dim < 0 ? rank_ + dim : dim;
  check(0 <= index && index < rank_, "a shape of rank {} has no dimension {}", rank_, dim);
  Shape result = *this;
  result.extents_[index] = extent;
  return Shape(std::span(result.begin(), result.end()));  // checks the new extent
}

std::string to_string(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace tessera
