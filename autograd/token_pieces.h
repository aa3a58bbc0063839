// Pieces of a rank's tokens that an operation computes one after another.
#pragma once

#include <cstdint>

#include "autograd/activations.h"

namespace tessera {

/// Runs the stages of every piece, each of which is called with the number of a piece. If `side_by_side`, a
/// stage runs for all pieces before the next one does: rows of one piece travel while another computes.
template <typename... Stages>
void run_stages(std::int64_t pieces, bool side_by_side, const Stages&... stages) {
  if (!side_by_side) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) (stages(piece), ...);
    return;
  }
  const auto run_all = [&](const auto& stage) {
    for (std::int64_t piece = 0; piece < pieces; ++piece) stage(piece);
  };
  (run_all(stages), ...);
}

/// The rows of all pieces, one after another.
class JoinedPieces {
 public:
  /// `rows` in all.
  JoinedPieces(std::int64_t pieces, std::int64_t rows) : pieces_(pieces), rows_(rows) {}

  /// Undefined if nothing is wanted of any piece.
  void add(const Tensor& rows) {
    if (pieces_ == 1 || !rows.defined()) {
      joined_ = rows;
      return;
    }
    const std::int64_t count = rows.size(0);
    if (!joined_.defined()) joined_ = activation(rows.shape().with(0, rows_), rows.dtype());
    joined_.slice(added_, added_ + count).copy_from(rows);
    added_ += count;
  }
  const Tensor& joined() const { return joined_; }

 private:
  std::int64_t pieces_, rows_, added_ = 0;
  Tensor joined_;
};

}  // namespace tessera
