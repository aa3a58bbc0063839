// The extents of a tensor, outermost first. Rank 0 is a scalar.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace tessera {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  /// Raises Error if an extent is negative, there are more than kMaxRank, or the product overflows.
  Shape(std::initializer_list<std::int64_t> extents);
  explicit Shape(std::span<const std::int64_t> extents);

  int rank() const { return rank_; }
  std::int64_t numel() const;
  /// Extent of one dimension; negative indices count from the back.
  std::int64_t operator[](int dim) const { return extents_[dim < 0 ? rank_ + dim : dim]; }

  const std::int64_t* begin() const { return extents_.data(); }
  const std::int64_t* end() const { return extents_.data() + rank_; }

  /// This shape with dimension `dim` set to `extent`. Raises Error as the constructor does.
  Shape with(int dim, std::int64_t extent) const;

  bool operator==(const Shape&) const = default;

 private:
  std::array<std::int64_t, kMaxRank> extents_{};  // unused extents stay 0, so == works
  int rank_ = 0;
};

/// "[2, 3]".
std::string to_string(const Shape& shape);

}  // namespace tessera
