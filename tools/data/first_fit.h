// FirstFit: places pieces into rows of equal length.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

/// A piece goes to the first row that has room for it. A tree of the rows' free places finds that row
/// in logarithmic time.
class FirstFit {
 public:
  explicit FirstFit(std::int32_t row_length) : row_length_(row_length), free_(2, row_length) {}

  /// The row of the next piece, which has 1 to row_length tokens.
  std::int64_t place(std::int32_t tokens);
  /// Rows that have a piece.
  std::int64_t rows() const { return rows_; }

 private:
  std::size_t leaves() const { return free_.size() / 2; }
  /// Sets the free places above a leaf.
  void update_above(std::size_t node);
  void double_rows();

  std::int32_t row_length_;
  std::int64_t rows_ = 0;
  /// The most free places among the rows below a node. Node 1 is the root, the children of node n are
  /// 2n and 2n + 1, and the last half are the rows. Rows without a piece are all free.
  std::vector<std::int32_t> free_;
};

}  // namespace tessera
